"""The index files of a segment, built as an agent builds them."""

from __future__ import annotations

from collections.abc import Iterable

from tierstate.log.batch import BatchHeader
from tierstate.log.indexes import OffsetIndexBuilder, TimeIndexBuilder


def built_indexes(batches: Iterable[BatchHeader], base_offset: int) -> tuple[bytes, bytes]:
    """Return the offset index and the time index of a rolled segment's batches, which come in order."""
    offsets, times = OffsetIndexBuilder(base_offset), TimeIndexBuilder(base_offset)
    for batch in batches:
        times.add(batch, offsets.add(batch))
    return offsets.bytes(), times.bytes()
