"""The promises about records: they are readable with their true bytes, and `read_committed` hides the aborted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.histories.cluster import NAME, HistoryControl
from tierstate.log.batch import iter_batches
from tierstate.log.isolation import AbortFilter
from tierstate.state.errors import LogGap, Unavailable
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import ReadRemote, route
from tierstate.state.segment import RemoteSegment, SegmentState

if TYPE_CHECKING:
    from tests.histories.world import World


class RecordPromises:
    """Compares what readable segments have with every record that the brokers ever had."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._batches: dict[RemoteSegmentId, dict[int, bytes]] = {}
        self._committed: set[RemoteSegmentId] = set()
        """Segments whose aborted records were checked."""

    def are_readable(self) -> None:
        cluster, view = self._world.cluster, self._world.promises.live.view()
        if not cluster.exists:
            return
        log_start, local_start = view.log_start or 0, cluster.leader.start
        rules = view.term is not None and view.term.epoch == cluster.epoch
        bounds, unknown = HistoryControl(cluster).bounds(NAME, 0), view.lineage_unknown
        for batch in cluster.truth:
            first = cluster.kept_from(batch)
            if first >= batch.end or batch.number in cluster.cut:
                continue
            told = f"offset {first} (local start {local_start}, unclean {cluster.unclean}, anew {cluster.anew})"
            assert not rules or unknown or log_start <= first, f"log start {log_start} is above {told}"
            if first >= local_start:
                continue
            holding = [s for s in view.readable if self.stored_in(s).get(batch.base) == batch.data]
            assert holding, f"LOSS of {told}"
            if not rules:
                continue
            if self._past_is_unknown(view):
                continue
            try:
                found = route(view, bounds, first)
            except LogGap as gap:
                raise AssertionError(f"GAP at {told}: {gap}; held by {[str(s.offsets) for s in holding]}") from gap
            assert isinstance(found, ReadRemote), f"{found} at {told}"
            assert self.stored_in(found.segment).get(batch.base) == batch.data, f"WRONG bytes for {told}"

    def hide_what_was_aborted(self) -> None:
        for segment in self._world.promises.live.view().readable:
            if segment.segment_id in self._committed:
                continue
            self._committed.add(segment.segment_id)
            hidden = AbortFilter(segment.aborted.entries)
            for data in self.stored_in(segment).values():
                batch = self._world.cluster.ledger[data]
                if batch.producer < 0 or batch.is_marker:
                    continue
                hides = hidden.covers(batch.producer, batch.base)
                assert hides == batch.aborts, f"{batch} is {'hidden' if hides else 'shown'} by {segment.offsets}"
                self._world.seen["aborted" if hides else "committed"] += 1

    def stored(self, segment: RemoteSegment) -> dict[int, bytes] | None:
        """Return a segment's batches. None if its objects may be deleted, and its batches were never loaded."""
        meant = self._world.promises.live.view().segments.get(segment.segment_id)
        alive = meant is not None and meant.state is SegmentState.COPY_SEGMENT_FINISHED
        return self.stored_in(segment) if alive or segment.segment_id in self._batches else None

    def _past_is_unknown(self, view: PartitionView) -> bool:
        """Return whether the lineage is unknown. Raises AssertionError if it should be known.

        It may be unknown after an unclean election or an epoch without a trace, until an agent observes its settled
        past.
        """
        if not view.lineage_unknown:
            return False
        cluster, first = self._world.cluster, next(entry.epoch for entry in view.lineage.entries)
        heard = first in cluster.settled and cluster.looked == cluster.epoch
        assert cluster.unclean or first in cluster.unseen, f"lineage unknown, though epoch {first} was seen"
        assert not heard, f"lineage unknown, though a person told the past of epoch {first}"
        self._world.seen["lineage unknown"] += 1
        return True

    def cut(self, before: int | None = None) -> None:
        """Add the records that no readable segment has to `Cluster.cut`, before the brokers delete them.

        ``before``: the end of what they delete. None: they delete all records.
        """
        cluster, view = self._world.cluster, self._world.promises.live.view()
        end = cluster.leader.end if before is None else before
        if view.log_start is None:  # the first term will set the log start there
            cluster.order(end)
        there = {(base, data) for segment in view.readable for base, data in self.stored_in(segment).items()}
        cluster.cut |= {
            batch.number for batch in cluster.truth if batch.base < end and (batch.base, batch.data) not in there
        }

    def stored_in(self, segment: RemoteSegment) -> dict[int, bytes]:
        """Return base offset to bytes of every batch that was stored for the segment."""
        found = self._batches.get(segment.segment_id)
        if found is None:
            key = object_key(segment.object_key, ObjectKind.LOG)
            data = self._world.bit_rot.sent(key, _get(self._world, key))
            found = {}
            for batch in iter_batches(data, source=segment.object_key):
                found[batch.base_offset] = data[batch.position : batch.position + batch.size_bytes]
            self._batches[segment.segment_id] = found
        return found


def _get(world: World, key: str) -> bytes:
    while True:
        try:
            return world.store.get(key)
        except Unavailable:
            continue
