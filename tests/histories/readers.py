"""Readers of a history, with a current or an old view, under any leader and in any state of its agent.

A reader gets the leader's own record or a named error, and never a record of a lost branch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.histories.cluster import NAME, Cluster, HistoryControl
from tests.histories.epoch_cache import said_of_epoch
from tests.histories.replica import Written
from tierstate.state.errors import LineageUnconfirmed, LogGap, OffsetOutOfRange
from tierstate.state.lineage import confirmed_end, readable_ranges
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import LocalBounds, ReadRemote, Tier, begin_of, in_force, log_start, route
from tierstate.state.segment import RemoteSegment

if TYPE_CHECKING:
    from tests.histories.world import World

OLD_VIEWS, EVERY = 3, 12
Stored = Callable[[RemoteSegment], dict[int, bytes] | None]
"""Base offset to bytes of every batch of a segment. None: its objects may be deleted, which a reader would report."""


class Readers:
    """Read all remote records, with the current and with old views. ``stored``: the batches of a segment."""

    def __init__(self, world: World, stored: Stored) -> None:
        self._world, self._stored = world, stored
        self._old: deque[PartitionView] = deque(maxlen=OLD_VIEWS)
        self._asked = 0

    def ask(self, view: PartitionView) -> None:
        """Read with the current view and with old ones. Raises AssertionError with the first false record."""
        bounds = HistoryControl(self._world.cluster).bounds(NAME, 0)
        truth = {batch.base: batch for batch in self._world.cluster.truth}
        for seen in (view, *self._old):
            self._read_all(seen, bounds, truth, fresh=seen is view)
        self._asked += 1
        if self._asked % EVERY == 0:
            self._old.append(view)

    def _read_all(self, view: PartitionView, bounds: LocalBounds, truth: dict[int, Written], *, fresh: bool) -> None:
        """Read from the log start to the local log start, as a scan does. Skipped gaps are checked for a fresh view."""
        confirmed, ours = confirmed_by(self._world.cluster, view), in_force(view, bounds)
        position = log_start(view, bounds)
        while position < bounds.local_start:
            try:
                where = route(view, bounds, position, confirmed=confirmed, tier=Tier.AUTO)
            except LogGap as gap:
                position = Offset(gap.end + 1)
                continue
            except (LineageUnconfirmed, OffsetOutOfRange) as error:
                self._world.seen[type(error).__name__] += 1
                return
            if (begin := begin_of(where)) > position:
                if fresh:
                    self._is_lost(view, OffsetRange(position, Offset(begin - 1)), truth)
                position = begin
                continue
            assert isinstance(where, ReadRemote), f"{where} at {position}"
            last = min(where.offsets.end, bounds.local_start - 1)
            self._compare(where, last, truth)
            self._world.seen["remote read" if ours else "remote read that the broker confirmed"] += 1
            position = Offset(last + 1)

    def _is_lost(self, view: PartitionView, skipped: OffsetRange, truth: dict[int, Written]) -> None:
        """Check that no tier has the skipped records, and that a person accepted the loss of these very records.

        Records of an epoch that left no trace need no acceptance: their existence is unknown.
        """
        self._world.seen["gap passed over"] += 1
        assert skipped.end < self._world.cluster.leader.start, f"SKIPPED {skipped}, which the broker has"
        for batch in truth.values():
            if batch.end <= skipped.start or batch.base > skipped.end:
                continue
            held = (s for s in view.readable if (self._stored(s) or {}).get(batch.base) == batch.data)
            claimed = (part for s in held for part in readable_ranges(s, s.leader_epochs))
            lost = OffsetRange(Offset(max(batch.base, skipped.start)), Offset(min(batch.end - 1, skipped.end)))
            holding = [part for part in claimed if part.overlap(lost)]
            assert not holding, f"SKIPPED {batch}, which is in {holding}"
            accepted = batch.number in self._world.gaps.lost or batch.epoch in self._world.cluster.unseen
            assert accepted, f"SKIPPED {batch}, whose loss nobody accepted"

    def _compare(self, read: ReadRemote, last: int, truth: dict[int, Written]) -> None:
        stored = self._stored(read.segment)
        if stored is None:
            return
        first = read.offsets.start
        told = f"{first}..{last} of {read.segment.segment_id}, unclean {self._world.cluster.unclean}"
        for batch in truth.values():
            if batch.end > first and batch.base <= last:
                assert stored.get(batch.base) == batch.data, f"FALSE record: not the leader's at {batch.base} in {told}"
        more = [base for base in stored if first <= base <= last and base not in truth]
        assert not more, f"FALSE record: the leader has none that begin at {more} in {told}"


def confirmed_by(cluster: Cluster, view: PartitionView) -> Offset:
    """Return the offset below which the leader confirms the view, as production's reader computes it."""
    leader = cluster.leader
    return confirmed_end(view.lineage, lambda asked: said_of_epoch(leader.epochs, leader.start, leader.end, asked))
