"""The logical lineage: which epochs own which offsets of the complete log, in both tiers.

The broker truncates its epoch checkpoint when DeleteRecords moves its log start, so the checkpoint alone does not cover
remote data. Lineage decides what is *read*, never what is deleted.

An epoch identifies its past (decision 0016): two lineages with a common epoch describe the same log up to the offset
where the first of the logs ends that epoch. A log start or an order on one log holds on the other up to there (0032).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .epochs import EpochEntry, LeaderEpoch, Lineage
from .facts import LogStartAdvanced
from .offsets import Offset, OffsetRange
from .segment import RemoteSegment

FOLDED_AT_ONCE = 256
"""Entries are dropped in groups of at least this size: each fold leaves one log start that no later one replaces."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The offset (exclusive) at which a leader's log leaves ``epoch``; for the last epoch, the end of the log."""

    epoch: LeaderEpoch
    end: Offset


def epoch_end(limit: LeaderEpoch, epoch: LeaderEpoch | None, end: Offset, first: LeaderEpoch | None) -> EpochEnd | None:
    """Return where the log leaves its newest epoch that is at most ``limit``; None if the answer proves nothing.

    ``epoch`` and ``end`` answer OffsetForLeaderEpoch. ``first``: the first epoch of the same leader's log, read after
    the answer. If ``limit`` is before ``first``, Kafka answers with the start of ``first``: that proves nothing.
    """
    if epoch is None or first is None or limit < first:
        return None
    return EpochEnd(epoch, end)


def confirmed_end(lineage: Lineage, ask: Callable[[LeaderEpoch], EpochEnd | None]) -> Offset:
    """Return the offset below which a leader's log is the one that ``lineage`` describes; 0 if nothing is proven.

    ``ask`` returns `epoch_end` of the leader. A follower finds where to truncate in the same way (KIP-101, KIP-279):
    logs with a common epoch are equal up to where the first leaves it, since one leader began it (decision 0016).
    """
    epochs = [entry.epoch for entry in lineage.entries]
    while epochs and (answer := ask(epochs[-1])) is not None:
        span = lineage.owned_by(answer.epoch)
        if span is not None:
            return answer.end if span[1] is None else min(answer.end, span[1])
        epochs = [epoch for epoch in epochs if epoch < answer.epoch]
    return Offset(0)


def continued_down(checkpoint: Lineage, log_start: Offset, epoch_of: Callable[[Offset], LeaderEpoch]) -> Lineage:
    """Return a log's lineage from ``log_start`` on, if its checkpoint begins higher; else the checkpoint itself.

    A broker that died after DeleteRecords begins its log again at an older log start, but its checkpoint at the newer
    one. ``epoch_of`` returns the epoch in the header of the batch at an offset, from which Kafka rebuilds a lost
    checkpoint; -1 for none. Epochs never decrease along a log, so bisection finds the end of each. Also returns the
    checkpoint itself if a header contradicts it.
    """
    if not checkpoint.entries:
        return checkpoint
    first, at, older = checkpoint.entries[0], log_start, list[EpochEntry]()
    while at < first.start_offset:
        epoch = epoch_of(at)
        if not 0 <= epoch <= first.epoch:
            return checkpoint
        older.append(EpochEntry(epoch, at))
        at = Offset(at + bisect_right(range(at, first.start_offset), epoch, key=lambda each: epoch_of(Offset(each))))
    return laid_over(Lineage(tuple(older)), checkpoint) if older else checkpoint


def compose(checkpoint: Lineage, earlier: Iterable[Lineage]) -> tuple[Lineage, bool]:
    """Continue the broker's checkpoint below its first offset with an earlier lineage. Returns the resulting lineage,
    and whether an earlier lineage continued it or nothing had to be continued.

    ``earlier``: lineages of the live `LeaderElected` facts, highest term first, then those that a person settled. Among
    those with the checkpoint's first epoch, the lineage that begins lowest is used: it gives that epoch its true start.
    Its log may be another branch above that start. Below, all logs with the epoch are equal (decision 0016).
    """
    if not checkpoint.entries:
        return checkpoint, True
    first = checkpoint.entries[0]
    candidates = [each for each in earlier if (span := each.owned_by(first.epoch)) and span[0] <= first.start_offset]
    if not candidates:
        return checkpoint, first.start_offset == 0
    longest = min(candidates, key=lambda each: each.entries[0].start_offset)
    below = tuple(entry for entry in longest.entries if entry.epoch <= first.epoch)
    return Lineage(below + checkpoint.entries[1:]), True


def laid_over(lineage: Lineage, log: Lineage) -> Lineage:
    """Return a lineage with the epochs that a log shows, and its own epochs only below them.

    ``lineage``: the composed lineage of the same log. It changes only if the log begins below its checkpoint.
    """
    if not log.entries:
        return lineage
    first = log.entries[0]
    older = [each for each in lineage.entries if each.start_offset <= first.start_offset and each.epoch <= first.epoch]
    joined = bool(older) and older[-1].epoch == first.epoch
    return Lineage((*older, *log.entries[joined:]))


def settles(settled: Lineage, lineage: Lineage) -> bool:
    """Return whether a person settled that the log begins where ``lineage`` begins. Lower offsets are in another log.

    Only the first epoch is compared: one leader began it, on one log, whichever replica has it (decision 0016).
    """
    return bool(settled.entries and lineage.entries) and settled.entries[0].epoch == lineage.entries[0].epoch


def readable_ranges(segment: RemoteSegment, lineage: Lineage) -> tuple[OffsetRange, ...]:
    """Return the parts of a segment that are in the lineage, ascending; adjacent parts are joined.

    An offset is in the lineage if segment and lineage give it the same epoch. Below the lineage's first entry only its
    first epoch is trusted, at any offset (Kafka's ``isRemoteSegmentWithinLeaderEpochs``, rule 4: the log start moved).
    """
    parts: list[OffsetRange] = []
    entries = segment.leader_epochs.entries
    for at, entry in enumerate(entries):
        start = max(entry.start_offset, segment.offsets.start)
        end = entries[at + 1].start_offset - 1 if at + 1 < len(entries) else segment.offsets.end
        span = _readable_span(entry.epoch, lineage)
        if span is None or end < start:
            continue
        own_start, own_stop = span
        start = max(start, own_start)
        if own_stop is not None:
            end = min(end, own_stop - 1)
        if end < start:
            continue
        if parts and parts[-1].end + 1 == start:
            parts[-1] = OffsetRange(parts[-1].start, Offset(end))
        elif (start, end) == (segment.offsets.start, segment.offsets.end):
            return (segment.offsets,)  # the usual case: no new object is needed
        else:
            parts.append(OffsetRange(Offset(start), Offset(end)))
    return tuple(parts)


def is_owned(offset: Offset, epoch: LeaderEpoch, lineage: Lineage) -> bool:
    """Return whether an offset with this epoch is in the lineage, by the rule of `readable_ranges`."""
    span = _readable_span(epoch, lineage)
    return span is not None and span[0] <= offset and (span[1] is None or offset < span[1])


def _readable_span(epoch: LeaderEpoch, lineage: Lineage) -> tuple[Offset, Offset | None] | None:
    """Return `Lineage.owned_by`, but from 0 on for the lineage's first epoch."""
    span = lineage.owned_by(epoch)
    return (Offset(0), span[1]) if span is not None and epoch == lineage.entries[0].epoch else span


def shared_end(origin: Lineage, ruling: Lineage) -> Offset | None:
    """Return the offset below which the logs of the two lineages are the same; None if nothing shows that they diverge.

    Without a common epoch, the result is the first offset of ``ruling``, which does not describe lower offsets; a new
    log begins at 0. An empty lineage contradicts nothing.
    """
    if not origin.entries or not ruling.entries:
        return None
    epoch = last_common(origin, ruling)
    if epoch is None:
        return ruling.first_offset
    spans = [owner for lineage in (origin, ruling) if (owner := lineage.owned_by(epoch))]
    return min((stop for _, stop in spans if stop is not None), default=None)


def last_common(origin: Lineage, ruling: Lineage) -> LeaderEpoch | None:
    """Return the highest epoch that both lineages have; None if nothing shows that they belong to one log."""
    for entry in reversed(origin.entries):
        if not ruling.entries or entry.epoch < ruling.entries[0].epoch:
            return None
        if ruling.owned_by(entry.epoch) is not None:
            return entry.epoch
    return None


def holds_up_to(offset: Offset, origin: Lineage, ruling: Lineage) -> Offset:
    """Return the offset up to which a fact about everything below ``offset`` holds on the lineage ``ruling``.

    ``origin``: the lineage for which the fact was recorded.
    """
    end = shared_end(origin, ruling)
    return offset if end is None else min(offset, end)


def below(lineage: Lineage, offset: Offset) -> Lineage:
    """Return the lineage to record in a fact about everything below ``offset``: the epochs that begin below it.

    If no epoch begins there, return the first entry: an empty lineage would mean that no lineage was recorded.
    """
    lower = lineage.up_to(Offset(offset - 1))
    return lower if lower.entries else Lineage(lineage.entries[:1])


def log_start_on(fact: LogStartAdvanced, ruling: Lineage) -> Offset:
    """Return the offset up to which a log start holds on the lineage ``ruling``.

    Version 1 of the fact does not record a lineage: it holds up to the start of the first epoch after its term's epoch.
    """
    if fact.lineage.entries:
        return holds_up_to(fact.log_start, fact.lineage, ruling)
    end = begun_after(fact.term.epoch, ruling)
    return fact.log_start if end is None else min(fact.log_start, end)


def begun_after(epoch: LeaderEpoch, ruling: Lineage) -> Offset | None:
    """Return the offset where the first epoch after this one begins, or None if there is none."""
    at = bisect_right(ruling.entries, epoch, key=lambda entry: entry.epoch)
    return ruling.entries[at].start_offset if at < len(ruling.entries) else None


def highest_log_start(facts: Iterable[LogStartAdvanced], ruling: Lineage) -> Offset | None:
    """Return the highest log start that holds on ``ruling``, which is 0 for a new log. Returns None without facts."""
    highest: Offset | None = None
    for fact in sorted(facts, key=lambda each: each.log_start, reverse=True):
        if highest is not None and fact.log_start <= highest:
            break
        end = log_start_on(fact, ruling)
        highest = end if highest is None else max(highest, end)
    return highest


def stands_for(log_start: LogStartAdvanced, other: LogStartAdvanced) -> bool:
    """Return whether a log start holds at least as far as another one on every possible lineage, and so replaces it.

    It must be at least as high, its log must have everything below the other one, and both must begin with the same
    epoch. Otherwise it might hold less far on a branch that diverged earlier. If that branch became the log again, it
    would lack the erased log start. Version 1 of the fact has no lineage: only another fact of version 1 replaces it.
    """
    mine, theirs = log_start.lineage, other.lineage
    if log_start.log_start < other.log_start:
        return False
    if not mine.entries or not theirs.entries:
        return not mine.entries and not theirs.entries and log_start.term.epoch >= other.term.epoch
    same_beginning = mine.entries[0].epoch == theirs.entries[0].epoch
    return same_beginning and holds_up_to(other.log_start, theirs, mine) == other.log_start


def is_below(fact: LogStartAdvanced, segment: RemoteSegment) -> bool:
    """Return whether a segment ends below a log start on its own branch. Log starts of other branches do not count."""
    return log_start_on(fact, segment.leader_epochs) > segment.offsets.end


def folded(lineage: Lineage, log_start: Offset | None, at_once: int = FOLDED_AT_ONCE) -> Lineage:
    """Return the lineage without the entries wholly below its log start, once there are at least ``at_once`` of them.

    The entry that owns the offset below the log start is kept: the log start was recorded with that epoch, and would no
    longer hold without a common epoch.
    """
    if not log_start:
        return lineage
    owner = bisect_right(lineage.entries, log_start - 1, key=lambda entry: entry.start_offset) - 1
    return lineage if owner < at_once else Lineage(lineage.entries[owner:])
