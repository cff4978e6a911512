"""Logical lineage: which epochs own which offsets of the whole log, both tiers.

The broker truncates its epoch checkpoint when DeleteRecords moves its log start, so the checkpoint alone would disown
all remote data. Lineage decides what is *read*, never what is deleted.

An epoch names its past (decision 0016), so two lineages that have an epoch are of one log up to where the first of them
leaves it. What is said of offsets of one log, a log start or an order, holds on another one up to there (0032).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .epochs import LeaderEpoch, Lineage
from .facts import LogStartAdvanced
from .offsets import Offset, OffsetRange
from .segment import RemoteSegment

FOLDED_AT_ONCE = 256
"""Entries that are dropped together: each fold leaves one log start that no later one stands for everywhere."""


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

    ``elders``: lineages of the live `LeaderElected` facts, highest term first, then what a person settled. Of those
    that have the checkpoint's first epoch the one that knows the log furthest down continues it, and gives that epoch
    its true start: one that was itself continued by nobody knows less*. Whatever became of that epoch on the elder's
    branch: one leader began it, so below its beginning all logs that have it are the same (decision 0016).
    Returns the lineage and whether an elder continued it (or nothing had to be continued).
    """
    if not checkpoint.entries:
        return checkpoint, True
    first = checkpoint.entries[0]
    know = [elder for elder in elders if (owned := elder.owned_by(first.epoch)) and owned[0] <= first.start_offset]
    if not know:
        return checkpoint, first.start_offset == 0
    elder = min(know, key=lambda each: each.entries[0].start_offset)
    below = tuple(entry for entry in elder.entries if entry.epoch <= first.epoch)
    return Lineage(below + checkpoint.entries[1:]), True


def settles(settled: Lineage, lineage: Lineage) -> bool:
    """Whether a person said that the log below ``lineage`` is another one: that this one begins where it begins.

    By the epoch alone: whichever replica has it, one leader began it, with one log below (decision 0016).
    """
    return bool(settled.entries and lineage.entries) and settled.entries[0].epoch == lineage.entries[0].epoch


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


def shared_end(said: Lineage, ruling: Lineage) -> Offset | None:
    """Up to which offset the logs that the two lineages describe are the same; None: nothing says that they part.

    Where they have no epoch in common that is the first offset of ``ruling``: below it, it says nothing, and a log that
    began anew begins at 0. An empty lineage contradicts nothing.
    """
    if not said.entries or not ruling.entries:
        return None
    epoch = last_common(said, ruling)
    if epoch is None:
        return ruling.first_offset
    owned = [owner for lineage in (said, ruling) if (owner := lineage.owned_by(epoch))]
    return min((stop for _, stop in owned if stop is not None), default=None)


def last_common(said: Lineage, ruling: Lineage) -> LeaderEpoch | None:
    """The highest epoch that both have; None where nothing shows that they are of one log."""
    for entry in reversed(said.entries):
        if not ruling.entries or entry.epoch < ruling.entries[0].epoch:
            return None
        if ruling.owned_by(entry.epoch) is not None:
            return entry.epoch
    return None


def holds_up_to(offset: Offset, said: Lineage, ruling: Lineage) -> Offset:
    """How much of "everything below ``offset``", said of one log, is said of the other."""
    end = shared_end(said, ruling)
    return offset if end is None else min(offset, end)


def below(lineage: Lineage, offset: Offset) -> Lineage:
    """In what lineage something is said of everything below ``offset``: the epochs that begin there.

    Never empty where the lineage is not, because empty means that nobody said: then it is the first entry.
    """
    begun = lineage.up_to(Offset(offset - 1))
    return begun if begun.entries else Lineage(lineage.entries[:1])


def log_start_on(fact: LogStartAdvanced, ruling: Lineage) -> Offset:
    """How much of a log start holds on a lineage.

    Version 1 of the fact does not say in which lineage: it holds up to where an epoch after its own term's begins.
    """
    if fact.lineage.entries:
        return holds_up_to(fact.log_start, fact.lineage, ruling)
    end = begun_after(fact.term.epoch, ruling)
    return fact.log_start if end is None else min(fact.log_start, end)


def begun_after(epoch: LeaderEpoch, ruling: Lineage) -> Offset | None:
    """Where the first epoch after this one begins; None where none does."""
    at = bisect_right(ruling.entries, epoch, key=lambda entry: entry.epoch)
    return ruling.entries[at].start_offset if at < len(ruling.entries) else None


def highest_log_start(said: Iterable[LogStartAdvanced], ruling: Lineage) -> Offset | None:
    """The highest of what holds; None where nothing was said. 0 for a log that began anew, whatever was said before."""
    found: Offset | None = None
    for fact in sorted(said, key=lambda each: each.log_start, reverse=True):
        if found is not None and fact.log_start <= found:
            break
        holds = log_start_on(fact, ruling)
        found = holds if found is None else max(found, holds)
    return found


def stands_for(log_start: LogStartAdvanced, other: LogStartAdvanced) -> bool:
    """Whether a log start holds at least as far as another one on every lineage that there can be*.

    It is the higher one, said in a log that has everything below the other one, and it knows the log from the same
    epoch on: of a branch that left before, it would know less. (Then for any lineage: the epochs that it has in common
    with the other one it has in common with this one too.) Erased otherwise, a log start would be missed by a branch
    that comes back. Of version 1 nothing says in which log it was said: only another such one stands for it.
    """
    mine, theirs = log_start.lineage, other.lineage
    if log_start.log_start < other.log_start:
        return False
    if not mine.entries or not theirs.entries:
        return not mine.entries and not theirs.entries and log_start.term.epoch >= other.term.epoch
    same_beginning = mine.entries[0].epoch == theirs.entries[0].epoch
    return same_beginning and holds_up_to(other.log_start, theirs, mine) == other.log_start


def is_below(fact: LogStartAdvanced, segment: RemoteSegment) -> bool:
    """Whether a segment ends below a log start, on its own branch*: that of another one says nothing of its records."""
    return log_start_on(fact, segment.leader_epochs) > segment.offsets.end


def folded(lineage: Lineage, log_start: Offset | None, at_once: int = FOLDED_AT_ONCE) -> Lineage:
    """The lineage without what lies wholly below the log start that holds on it, once that are ``at_once`` entries.

    The entry that owns the offset below the log start stays*: a log start is said in it, and without an epoch in common
    it would not hold any more.
    """
    if not log_start:
        return lineage
    owner = bisect_right(lineage.entries, log_start - 1, key=lambda entry: entry.start_offset) - 1
    return lineage if owner < at_once else Lineage(lineage.entries[owner:])
