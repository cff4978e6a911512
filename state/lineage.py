"""Logical lineage: which epochs own which offsets of the whole log, both tiers.

The broker truncates its epoch checkpoint when DeleteRecords moves its log start, so the checkpoint alone would disown
all remote data. Lineage decides what is *read*, never what is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .epochs import LeaderEpoch, Lineage
from .offsets import Offset, OffsetRange
from .segment import RemoteSegment


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """A leader's log leaves ``epoch`` at ``end`` (exclusive; the end of the log when it is still in it)."""

    epoch: LeaderEpoch
    end: Offset


def epoch_end(asked: LeaderEpoch, found: LeaderEpoch | None, end: Offset, first: LeaderEpoch | None) -> EpochEnd | None:
    """What an answer to OffsetForLeaderEpoch proves: where the log leaves its newest epoch up to ``asked``; or nothing.

    ``first``: the first epoch that the log knows, asked for after the answer, of the same leader. Kafka answers for an
    epoch before that one as if it were known and ended where the first one begins*: of branches that says nothing.
    """
    if found is None or first is None or asked < first:
        return None
    return EpochEnd(found, end)


def confirmed_end(lineage: Lineage, ask: Callable[[LeaderEpoch], EpochEnd | None]) -> Offset:
    """Up to which offset (exclusive) a leader's log is the one that a lineage describes; 0: nothing is proven.

    ``ask``: `epoch_end` of the leader. As a follower finds where to truncate (KIP-101, KIP-279): two logs that have an
    epoch are the same up to where the first of them leaves it, for one leader wrote it on one past (decision 0016).
    """
    epochs = [entry.epoch for entry in lineage.entries]
    while epochs and (found := ask(epochs[-1])) is not None:
        owned = lineage.owned_by(found.epoch)
        if owned is not None:
            return found.end if owned[1] is None else min(found.end, owned[1])
        epochs = [epoch for epoch in epochs if epoch < found.epoch]
    return Offset(0)


def compose(checkpoint: Lineage, elders: Iterable[Lineage]) -> tuple[Lineage, bool]:
    """The broker's checkpoint, continued below its first offset by an elder's lineage.

    ``elders``: lineages of the live `LeaderElected` facts, highest term first; the first that has the checkpoint's
    first epoch continues it, and gives that epoch its true start. Whatever became of that epoch on the elder's branch:
    one leader began it, so below its beginning all logs that have it are the same (decision 0016).
    Returns the lineage and whether an elder continued it (or nothing had to be continued).
    """
    if not checkpoint.entries:
        return checkpoint, True
    first = checkpoint.entries[0]
    for elder in elders:
        owned = elder.owned_by(first.epoch)
        if owned is not None and owned[0] <= first.start_offset:
            below = tuple(entry for entry in elder.entries if entry.epoch <= first.epoch)
            return Lineage(below + checkpoint.entries[1:]), True
    return checkpoint, first.start_offset == 0


def readable_ranges(segment: RemoteSegment, lineage: Lineage) -> tuple[OffsetRange, ...]:
    """The parts of a segment that lie in the lineage, ascending; adjacent parts are joined.

    An offset is in lineage when both sides give it the same epoch. Below the lineage's first entry only its first
    epoch is trusted, at any offset (Kafka's ``isRemoteSegmentWithinLeaderEpochs``, rule 4: the log start moved).
    """
    parts: list[OffsetRange] = []
    entries = segment.leader_epochs.entries
    for at, entry in enumerate(entries):
        start = max(entry.start_offset, segment.offsets.start)
        end = entries[at + 1].start_offset - 1 if at + 1 < len(entries) else segment.offsets.end
        owned = lineage.owned_by(entry.epoch)
        if owned is None or end < start:
            continue
        own_start, own_stop = owned
        if entry.epoch != lineage.entries[0].epoch:
            start = max(start, own_start)
        if own_stop is not None:
            end = min(end, own_stop - 1)
        if end < start:
            continue
        if parts and parts[-1].end + 1 == start:
            parts[-1] = OffsetRange(parts[-1].start, Offset(end))
        elif (start, end) == (segment.offsets.start, segment.offsets.end):
            return (segment.offsets,)  # the rule, not the exception: nothing to make
        else:
            parts.append(OffsetRange(Offset(start), Offset(end)))
    return tuple(parts)
