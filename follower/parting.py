"""Finds where a tier-state topic and its archive diverge: both are read in parallel, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat

from ..broker.tier_topic import TierTopic
from ..state.offsets import Position, TimestampMs
from ..storage.object_store import ObjectReader
from .archive import batches_until
from .archive_chain import chain_of
from .archive_piece import ArchivedEntry
from .archive_reader import read_archive
from .shelf import Shelf


@dataclass(frozen=True, slots=True)
class Parting:
    """The result for one tier-state partition. ``common``: the last position with the same record in both, or None.

    ``at``: the first position above ``common`` at which the topic has another record or has ended. None means that they
    have not diverged. ``lost``: the archive's records above ``common``; empty if they have not diverged.
    """

    tier_partition: int
    common: Position | None
    at: Position | None
    archived_to: Position
    end: Position
    lost: tuple[ArchivedEntry, ...] = field(repr=False)


def find_parting(topic: TierTopic, shelf: Shelf[ObjectReader]) -> Parting:
    """Compare the whole archive with the topic. Memory: the lost records. Raises CorruptData, BrokerUnavailable."""
    objects, tier_partition = shelf.objects, shelf.tier_partition
    end = topic.end(tier_partition)
    chain = chain_of(objects, shelf.place)
    records = _records(topic, tier_partition, chain.start, end)
    record = next(records, None)
    common, at, lost = None, None, list[ArchivedEntry]()
    for piece in read_archive(objects, chain):
        for archived in piece.entries:
            while record is not None and record.position < archived.position:
                record = next(records, None)
            if record == archived:
                common, at = archived.position, None
                lost.clear()
                continue
            lost.append(archived)
            differs = archived.position >= end or (record is not None and record.position == archived.position)
            at = archived.position if at is None and differs else at
    if at is None and chain.end > end:
        at = end  # from there on, the archive has only positions without a record
    return Parting(tier_partition, common, at, chain.end, end, tuple(lost) if at is not None else ())


def _records(topic: TierTopic, tier_partition: int, start: Position, end: Position) -> Iterator[ArchivedEntry]:
    if start >= end:
        return
    for batch in batches_until(topic.reader({tier_partition: start}), tier_partition, end):
        for entry, timestamp in zip(batch.entries, batch.timestamps or repeat(TimestampMs(-1)), strict=False):
            if entry.position < end:
                yield ArchivedEntry(entry, timestamp)
