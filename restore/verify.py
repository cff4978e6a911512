"""Compare what was restored with the source, range by range, by the record digest of `log/record_digest.py`.

A source record counts with its target's offset and as create time, so equal digests mean: the same keys, values,
headers and times, in the same order, at the offsets that the map has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..broker.answers import FetchSpec
from ..log.batch import iter_batches
from ..log.decode import decode_records
from ..log.record_block import RecordBlock
from ..log.record_digest import RecordDigest
from ..state.offsets import Offset
from ..state.routing import Isolation
from .offset_map import MappedRange
from .topic import Source, Target

RANGE_RECORDS = 1_000_000
"""Records of one line of the report, about."""
FETCH_BYTES = 8 * 1024 * 1024
EQUAL, DIFFERENT, EXPIRED = "equal", "different", "expired in the target"


@dataclass(frozen=True, slots=True)
class Compared:
    """Records of both logs. Ranges are ``[start, end)``."""

    partition: int
    source_start: Offset
    source_end: Offset
    target_start: Offset
    target_end: Offset
    records: int
    target_records: int
    source_digest: str
    target_digest: str
    outcome: str


def report(source: Source, target: Target | None, rows: Sequence[Compared]) -> dict[str, Any]:
    """Return the comparison as JSON. ``target``: None if there is none, because it could not be made."""
    made = None
    if target is not None:
        made = {"cluster_id": target.cluster_id, "topic": target.topic, "topic_id": str(target.topic_id)}
    return {
        "source": {"cluster_id": source.cluster_id, "topic": source.topic, "topic_id": str(source.topic_id)},
        "target": made,
        "requested": {str(number): list(extent) for number, extent in source.ranges.items()},
        "digest": "docs/formats.md#the-record-digest; source records count with their target's offset, as create time",
        "ranges": [asdict(each) for each in rows],
    }


def compared(source: Source, target: Target, partition: int) -> Iterator[Compared]:
    """Yield the comparison of each part of the offset map. Raises the errors of reading both logs."""
    progress = target.progress(partition)
    for part in _parts(progress.ranges if progress else []):
        first, last = part[0], part[-1]
        log_start = target.broker.reads.bounds(target.topic, partition).local_start
        expected = _source_digest(source, partition, part)
        if first.target_start < log_start:
            actual, outcome = RecordDigest(), EXPIRED
        else:
            actual = _target_digest(target, partition, first.target_start, last.target_end)
            outcome = EQUAL if actual.digest() == expected.digest() else DIFFERENT
        yield Compared(
            partition,
            first.source_start,
            last.source_end,
            first.target_start,
            last.target_end,
            expected.count,
            actual.count,
            expected.hexdigest(),
            actual.hexdigest(),
            outcome,
        )


def _parts(ranges: Sequence[MappedRange]) -> Iterator[list[MappedRange]]:
    """Yield groups of whole ranges with about `RANGE_RECORDS` records each."""
    part: list[MappedRange] = []
    for each in ranges:
        part.append(each)
        if sum(one.records for one in part) >= RANGE_RECORDS:
            yield part
            part = []
    if part:
        yield part


def _source_digest(source: Source, partition: int, part: Sequence[MappedRange]) -> RecordDigest:
    digest = RecordDigest()
    places = np.concatenate([np.arange(each.target_start, each.target_end) for each in part])
    at = 0
    start, end = part[0].source_start, part[-1].source_end
    for piece in source.reader.scan(source.topic, partition, start, end):
        for block in decode_records(
            piece.data,
            source=piece.source(source.topic, partition),
            position=piece.position,
            aborted=piece.aborted,
            start=piece.offset,
            end=piece.limit,
        ):
            numbers = places[at : at + len(block)]
            at += len(block)
            if len(numbers) < len(block):  # the map has fewer records: count on, so that the digests differ
                more = np.arange(len(block) - len(numbers)) + part[-1].target_end
                numbers = np.concatenate([numbers, more + at])
            digest.update(_moved(block, numbers))
    return digest


def _moved(block: RecordBlock, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> RecordBlock:
    return replace(block, offsets=np.ascontiguousarray(offsets, np.int64), types=np.zeros_like(block.types))


def _target_digest(target: Target, partition: int, start: Offset, end: Offset) -> RecordDigest:
    digest, position = RecordDigest(), start
    while position < end:
        spec = FetchSpec(
            target.topic, partition, position, FETCH_BYTES, Isolation.READ_UNCOMMITTED, topic_id=target.topic_id
        )
        data = target.broker.reads.fetch(spec).batches
        if not data:
            break
        source = f"{target.topic}-{partition}@{position}"
        for block in decode_records(data, source=source, start=position, end=end):
            digest.update(block)
        position = _following(data, source)
    return digest


def _following(data: bytes, source: str) -> Offset:
    *_, last = iter_batches(data, source=source, verify_crc=False)
    return Offset(last.last_offset + 1)
