"""One partition in two tiers. Each read is routed, and routed once more if it raced with a trim or an expiry.

    local tier: offset out of range, fenced   read the bounds, route again, once
    object of a segment is missing            refresh the view, route again, once; then SegmentExpired or CorruptData
    route raises OffsetOutOfRange or LogGap   read the bounds, then refresh the view, route again; the result is final
    route raises LineageUnconfirmed           ask the leader, once an epoch; then bounds and view again, once
    bucket has segments, but no fact exists   as for OffsetOutOfRange; then TierStateLost

The order "bounds, then view" matters. Facts are written before the broker trims, so a view that is refreshed *after*
the bounds were read knows every segment below that local start. In the opposite order, a trim in between would look
like a gap. Rules marked * prevent a loss that a model or a review found.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ..broker.answers import FetchSpec
from ..runtime.clock import Clock
from ..state.errors import (
    Fenced,
    LineageUnconfirmed,
    LogGap,
    ObjectNotFound,
    OffsetOutOfRange,
    SegmentExpired,
    TierStateLost,
)
from ..state.ids import TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView, require_readable
from ..state.routing import (
    EVERYTHING,
    AtEnd,
    Isolation,
    LocalBounds,
    ReadLocal,
    ReadRemote,
    Route,
    Tier,
    begin_of,
    in_force,
    route,
    sure_end,
    sure_log_start,
    unconfirmed,
)
from ..state.segment import RemoteSegment, SegmentState
from ..state.view import TierView
from .confirmation import Confirmation
from .local import LocalTier
from .piece import Fetched, LogicalBounds, missing_object, naming
from .recent_views import VIEW_AGE_S, RecentViews
from .remote import RemotePiece, RemoteTier

BOUNDS_AGE_S = 1.0
"""The highest age in seconds of bounds that route a read. They are only a hint: the local tier's answer decides."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The options of one read."""

    max_bytes: int
    isolation: Isolation = Isolation.READ_COMMITTED
    tier: Tier = Tier.AUTO
    end: Offset | None = None


class LogicalPartition:
    """The log of one partition. Thread-safe."""

    def __init__(
        self,
        topic: str,
        partition: TopicIdPartition,
        view: TierView,
        local: LocalTier,
        remote: RemoteTier,
        clock: Clock,
        recent: RecentViews,
    ) -> None:
        """``recent``: shared by all partitions, so that not each of them waits for an unavailable tier-state topic."""
        self.topic, self.partition = topic, partition
        self.local = local
        self._recent = recent
        self._view, self.remote, self._clock = view, remote, clock
        self._confirmation = Confirmation(topic, partition, local)
        self._tier_partition = view.tier_partition(partition)
        self._lock = threading.Lock()
        self._bounds: tuple[float, LocalBounds] | None = None

    def view(self) -> PartitionView:
        """Return the partition as it is in the view now."""
        return self._view.partition(self.partition)

    def fresh_view(self, max_age: float = VIEW_AGE_S) -> PartitionView:
        """Return the partition with at least the facts of ``max_age`` seconds ago. Raises ViewBehind."""
        self._view.require_fresh(self._tier_partition, max_age)
        return self.view()

    def recent_view(self) -> PartitionView:
        """Return a view to route a read: fresh, or older if the tier-state topic is unavailable. Raises ViewBehind."""
        self._recent.require(self._tier_partition)
        return self.view()

    def local_bounds(self, max_age: float = 0.0) -> LocalBounds:
        """Return the broker's bounds, at most ``max_age`` seconds old. Raises UnknownTopic, BrokerUnavailable."""
        now = self._clock.monotonic()
        with self._lock:
            cached = self._bounds
        if cached is not None and now - cached[0] < max_age:
            return cached[1]
        bounds = self.local.bounds(self.topic, self.partition)
        with self._lock:
            self._bounds = (now, bounds)
        return bounds

    def bounds(self, max_age: float = 0.0) -> LogicalBounds:
        """Return the bounds of both tiers. Those of the broker are at most ``max_age`` seconds old.

        Raises ViewBehind, BrokerUnavailable, TierStateLost.
        """
        local = self.local_bounds(max_age)
        view = self.known(self.recent_view(), local)
        if sure_log_start(view, local, None) is None:
            self._confirmation.of(view, local)
        return self._logical(view, local)

    def known(self, view: PartitionView, local: LocalBounds) -> PartitionView:
        """Return ``view``, or a fresh view if the bucket has segments but ``view`` has no facts. Raises TierStateLost
        if the fresh view has no facts, either."""
        try:
            self.remote.known.check(view, self.topic, local)
        except TierStateLost:
            view = self.fresh_view(max_age=0.0)
            self.remote.known.check(view, self.topic, local)
        return view

    def sure_end(self, view: PartitionView, bounds: LocalBounds) -> Offset:
        """Return the exclusive end up to which ``view`` describes the log of the bounds' leader. May ask the leader."""
        return sure_end(view, bounds, None if in_force(view, bounds) else self._confirmation.of(view, bounds))

    def copied_end(self, start: Offset) -> Offset:
        """Return the exclusive end of the remote tier's gap-free part from ``start`` on. Raises LineageUnconfirmed."""
        view, bounds = self.view(), self.local_bounds(BOUNDS_AGE_S)
        end, sure = view.coverage.prefix_end(start) + 1, self.sure_end(view, bounds)
        if start < end and sure < end:
            raise unconfirmed(view, bounds, sure, offset=max(start, sure))
        return Offset(end)

    def route(self, offset: int, isolation: Isolation, tier: Tier) -> Route:
        """Return the place of ``offset``. Only fresh bounds and views raise OffsetOutOfRange, LogGap, TierStateLost.

        Raises UpgradeNeeded in place of LogGap or LineageUnconfirmed if a later release's fact may explain the error*.
        """
        try:
            where = self._routed_by_hints(offset, isolation, tier)
            if begin_of(where) == offset:
                return where
            bounds = self.local_bounds()  # only fresh bounds and a fresh view allow to skip an accepted gap*
            view = self.fresh_view(max_age=0.0)
        except (OffsetOutOfRange, LogGap, TierStateLost):
            bounds = self.local_bounds()
            view = self.fresh_view(max_age=0.0)
        except LineageUnconfirmed:
            require_readable(self.view(), self.topic)
            raise
        try:
            return self._routed(view, bounds, offset, isolation, tier)
        except (LogGap, LineageUnconfirmed):
            require_readable(view, self.topic)
            raise

    def _routed_by_hints(self, offset: int, isolation: Isolation, tier: Tier) -> Route:
        try:
            where = self._routed(self.view(), self.local_bounds(BOUNDS_AGE_S), offset, isolation, tier)
            if not isinstance(where, ReadRemote):
                return where
            return self._routed(self.recent_view(), self.local_bounds(BOUNDS_AGE_S), offset, isolation, tier)
        except LineageUnconfirmed:  # the bounds may be those of the previous leader
            bounds = self.local_bounds()
            return self._routed(self.recent_view(), bounds, offset, isolation, tier)

    def _routed(self, view: PartitionView, bounds: LocalBounds, offset: int, isolation: Isolation, tier: Tier) -> Route:
        self.remote.known.check(view, self.topic, bounds)
        confirmed = self._confirmation.known(view, bounds)
        try:
            where = route(view, bounds, offset, isolation=isolation, tier=tier, confirmed=confirmed)
        except LineageUnconfirmed:
            if confirmed is not None:
                raise
            confirmed = self._confirmation.of(view, bounds)
            where = route(view, bounds, offset, isolation=isolation, tier=tier, confirmed=confirmed)
        return _left_to_the_broker(where, bounds, tier)

    def fetch(self, offset: int, ask: Ask) -> Fetched:
        """Return one piece from ``offset``; empty only at the end of the log or at ``ask.end``.

        Segments without a record at or above the offset are skipped, but only within the offsets that they own.
        """
        position = Offset(offset)
        local_raced, missing = False, None
        while True:
            if ask.end is not None and position >= ask.end:
                return self._nothing(position, ask.end)
            try:
                where = self.route(position, ask.isolation, ask.tier)
            except (OffsetOutOfRange, LogGap) as error:
                if missing is not None and self._is_deleted(missing):
                    raise _expired(missing, position) from error
                raise
            if begin_of(where) > position:
                position = begin_of(where)
                if ask.end is not None and position >= ask.end:
                    return self._nothing(ask.end, ask.end)
            if not isinstance(where, ReadRemote):
                try:
                    piece = self._fetch_local(where, ask)
                except (OffsetOutOfRange, Fenced):
                    if local_raced:
                        raise
                    local_raced = True
                    self.local_bounds()
                    continue
            else:
                try:
                    piece = self._fetch_remote(where, ask)
                except ObjectNotFound as error:
                    if missing is not None:
                        raise self._gone(where.segment, position, error) from error
                    missing = where.segment
                    self.fresh_view(max_age=0.0)
                    continue
            if piece.data or piece.next_offset == position:
                return piece
            position = piece.next_offset

    def _fetch_local(self, where: ReadLocal | AtEnd, ask: Ask) -> Fetched:
        bounds = self.local_bounds(BOUNDS_AGE_S)
        if isinstance(where, AtEnd) and (ask.tier is Tier.REMOTE or where.offset < bounds.local_start):
            return self._nothing(where.offset, where.offset)
        piece = self.local.fetch(
            FetchSpec(
                self.topic,
                self.partition.partition,
                where.offset,
                ask.max_bytes,
                ask.isolation,
                bounds.leader_epoch,
                topic_id=self.partition.topic_id,
            )
        )
        with self._lock:
            self._bounds = (self._clock.monotonic(), piece.bounds)
        limit = piece.bounds.end(ask.isolation)
        limit = limit if ask.end is None else min(limit, ask.end)
        return Fetched(
            data=piece.data,
            tier=Tier.LOCAL,
            aborted=piece.aborted,
            offset=where.offset,
            next_offset=piece.next_offset,
            limit=Offset(max(limit, where.offset)),
            bounds=self._logical(self.view(), piece.bounds),
            topic_id=self.partition.topic_id,
        )

    def _fetch_remote(self, where: ReadRemote, ask: Ask) -> Fetched:
        last = where.offsets.end if ask.end is None else min(where.offsets.end, ask.end - 1)
        part = ReadRemote(where.segment, OffsetRange(where.offsets.start, Offset(last)))
        following = partial(self.following, where, ask)
        with naming(self.topic, self.partition.partition, part.offsets.start):
            piece = self.remote.read(
                part.segment,
                part.offsets,
                ask.max_bytes,
                ask.isolation,
                following,
            )
        return self.of_remote(part, piece)

    def of_remote(self, where: ReadRemote, piece: RemotePiece) -> Fetched:
        """Return ``piece``, which was read at ``where``, with the current bounds."""
        return Fetched(
            data=piece.data,
            tier=Tier.REMOTE,
            aborted=piece.aborted,
            offset=where.offsets.start,
            next_offset=piece.next_offset,
            limit=Offset(where.offsets.end + 1),
            bounds=self._logical(self.view(), self.local_bounds(BOUNDS_AGE_S)),
            topic_id=self.partition.topic_id,
            read=where,
            position=piece.position,
            proven=piece.proven,
        )

    def parts(self, where: ReadRemote, ask: Ask) -> Iterator[tuple[RemoteSegment, OffsetRange]]:
        """Yield the part at ``where`` and those of `following`, for readers that have nothing but the segments.

        Raises the errors of `RemoteTier.with_aborted`.
        """
        last = where.offsets.end if ask.end is None else min(where.offsets.end, ask.end - 1)
        first = where.segment, OffsetRange(where.offsets.start, Offset(last))
        for segment, offsets in chain([first], self.following(where, ask)):
            committed = ask.isolation is Isolation.READ_COMMITTED
            yield (self.remote.with_aborted(segment) if committed else segment), offsets

    def following(self, where: ReadRemote, ask: Ask) -> Iterator[tuple[RemoteSegment, OffsetRange]]:
        """Yield the parts after ``where`` in the remote tier, by the current view and the last known bounds."""
        view = self.view()
        with self._lock:
            cached = self._bounds
        end = EVERYTHING if ask.end is None else ask.end
        if cached is not None:
            bounds = cached[1]
            end = min(end, sure_end(view, bounds, self._confirmation.known(view, bounds)))
            end = min(end, bounds.local_start) if ask.tier is Tier.AUTO else end
        position = where.offsets.end + 1
        while position < end and (owned := view.coverage.at(position)) is not None:
            last = min(owned.offsets.end, end - 1)
            yield owned.segment, OffsetRange(Offset(position), Offset(last))
            position = owned.offsets.end + 1

    def _nothing(self, offset: Offset, limit: Offset) -> Fetched:
        bounds = self._logical(self.view(), self.local_bounds(BOUNDS_AGE_S))
        return Fetched(b"", Tier.LOCAL, (), offset, offset, limit, bounds, None, self.partition.topic_id)

    def _logical(self, view: PartitionView, local: LocalBounds) -> LogicalBounds:
        """Return the known bounds of both tiers as one log, without a request."""
        owned = view.coverage.owned
        return LogicalBounds(
            log_start=sure_log_start(view, local, self._confirmation.known(view, local)),
            local_start=local.local_start,
            highest_remote=owned[-1].offsets.end if owned else None,
            last_stable_offset=local.last_stable_offset,
            high_watermark=local.high_watermark,
        )

    def _is_deleted(self, segment: RemoteSegment) -> bool:
        segment_now = self.view().segments.get(segment.segment_id)
        return segment_now is None or segment_now.state is not SegmentState.COPY_SEGMENT_FINISHED

    def _gone(self, segment: RemoteSegment, offset: Offset, error: ObjectNotFound) -> Exception:
        if self._is_deleted(segment):
            return _expired(segment, offset)
        require_readable(self.view(), self.topic)
        return missing_object(error, self.topic, self.partition.partition, segment_id=segment.segment_id, offset=offset)


def _left_to_the_broker(where: Route, bounds: LocalBounds, tier: Tier) -> Route:
    """Limit ``where`` to offsets below the local start. The broker serves all offsets that it has, copied or not."""
    if tier is Tier.AUTO and isinstance(where, ReadRemote) and where.offsets.end >= bounds.local_start:
        return ReadRemote(where.segment, OffsetRange(where.offsets.start, Offset(bounds.local_start - 1)))
    return where


def _expired(segment: RemoteSegment, offset: Offset) -> SegmentExpired:
    return SegmentExpired(
        "segment was deleted while it was read",
        segment_id=segment.segment_id,
        partition=segment.partition,
        topic=segment.topic,
        offsets=segment.offsets,
        offset=offset,
    )
