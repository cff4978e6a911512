"""Plans for readers without credentials for the bucket: leases, routed ranges, and access to single segments.

    make    lease  ->  read back to it  ->  route                   once per job
    grant   still readable, or leased by this plan?  ->  URLs       once per segment and reader, and again when they end

A gateway keeps no state of a plan. The only record of a plan is its lease in the tier-state topic, so that any gateway
of the cluster can continue the plan of another gateway.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...fetch.granted_objects import NAMES, DataKey, SegmentGrant
from ...fetch.plan import PlannedRange, planned
from ...fetch.plan_lines import PlanHead
from ...fetch.reader import LogReader
from ...leader.brokers_time import BrokersTime
from ...runtime.clock import Clock
from ...runtime.id_source import IdSource, RandomIds
from ...state.errors import AccessDenied, InvalidRequest, SegmentExpired, Unavailable
from ...state.facts import ReaderLease
from ...state.ids import RemoteSegmentId, TopicIdPartition
from ...state.object_keys import ObjectKind, object_key
from ...state.offsets import ByteRange, Extent, Offset
from ...state.partition_view import PartitionView
from ...state.routing import Isolation, Tier
from ...state.segment import RemoteSegment
from ...state.view import TierView
from ...storage.object_store import MIB, ObjectReader, SignsReads
from ...storage.segment.encryption import KeyUnwrapper, open_data_key
from ...storage.segment.reader import read_manifest
from ..opening.connection import Connection
from .reader_leases import Ranges, end_leases, take_leases

LOCKS = 64
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A segment in a request, by the present name of its topic."""

    topic: str
    partition: int
    segment_id: RemoteSegmentId

    def path(self, name: str) -> str:
        """Return the path of one of its objects at a gateway."""
        return f"/v1/topics/{self.topic}/partitions/{self.partition}/segments/{self.segment_id}/{name}"


@dataclass(frozen=True, slots=True)
class Leasing:
    """Functions for leases. ``take``: `reader_leases.take_leases` for ranges, a holder and seconds. ``end``:
    `end_leases` for partitions and a holder. ``longest_s``: ``lease.max`` in seconds.
    """

    take: Callable[[Ranges, str, float], Sequence[ReaderLease]]
    end: Callable[[Sequence[TopicIdPartition], str], int]
    longest_s: float


class Plans:
    """Plans from one cluster's view and store. Thread-safe, blocking. ``keys`` decrypts data keys of segments."""

    def __init__(
        self,
        reader: LogReader,
        store: ObjectReader,
        keys: KeyUnwrapper | None,
        leasing: Leasing,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._reader, self._store, self._keys, self._leasing = reader, store, keys, leasing
        self._clock, self._ids = clock, ids
        self._renewing = [threading.Lock() for _ in range(LOCKS)]

    def lease(self, extents: Mapping[Place, Extent], user: str, lease_s: float) -> PlanHead:
        """Take the leases of a plan, before anything is routed. ``lease_s`` 0: none; expired segments may be deleted.

        Raises InvalidRequest if ``lease_s`` exceeds ``lease.max``, and AccessDenied if the gateway may not write to the
        tier-state topic. Also raises UnknownTopic and Unavailable.
        """
        if lease_s == 0:
            return PlanHead("", 0.0)
        plan = f"{self._ids.uuid().hex()}-{lease_s:.0f}"
        ranges = {self._reader.partition(*place).partition: extent for place, extent in extents.items()}
        try:
            self._leasing.take(ranges, _holder(plan, user), lease_s)
        except AccessDenied as error:
            raise AccessDenied(
                "the gateway may not take leases: it needs Write on the tier-state topic; lease_seconds 0 takes none"
            ) from error
        return PlanHead(plan, lease_s)

    def end(self, plan: str, user: str, topics: Sequence[str]) -> int:
        """End this user's leases of a plan on these topics. Return their number: 0 for another user's plan, or an ended
        plan. Raises InvalidRequest if ``plan`` names no plan. Also raises UnknownTopic, AccessDenied, Unavailable.
        """
        _lease_s(plan)
        numbers = [(topic, number) for topic in topics for number in range(self._reader.topic(topic).partitions)]
        return self._leasing.end([self._reader.partition(*each).partition for each in numbers], _holder(plan, user))

    def routed(self, extents: Mapping[Place, Extent], isolation: Isolation, tier: Tier) -> Iterator[PlannedRange]:
        """Yield the planned ranges of each extent in turn. Raises as `fetch.plan.planned`."""
        for place, extent in extents.items():
            yield from planned(self._reader, {place: extent}, isolation=isolation, tier=tier)

    def extent(self, place: Place, isolation: Isolation, tier: Tier) -> Extent:
        """Return the present half-open range of the partition's offsets."""
        return self._reader.extent(*place, isolation=isolation, tier=tier)

    def grant(
        self, at: SegmentPlace, plan: str, user: str, longest_s: float, *, with_key: bool, sign: bool
    ) -> SegmentGrant:
        """Return URLs for ``longest_s``, but no longer than the plan's lease. Renews a lease when half of it is over.

        ``plan`` empty: there is no lease. ``with_key``: whether the answer may contain a data key. ``sign``: whether it
        may contain URLs of the store itself. Raises InvalidRequest if ``plan`` names no plan, AccessDenied if a key is
        needed and may not be sent. Also raises SegmentExpired and Unavailable.
        """
        segment, lease = self.segment(at, plan, user)
        lifetime = min(longest_s, self._kept(at, segment, lease, plan, user)) if plan else longest_s
        key = None
        if segment.encryption_key_id is not None:
            if not with_key:
                raise AccessDenied(
                    "the segment is encrypted, and its data key is told over TLS only", segment_id=at.segment_id
                )
            key = self._data_key(segment)
        store = self._store if sign and isinstance(self._store, SignsReads) else None
        urls = {kind: _url(at, segment, name, lifetime, store) for name, kind in NAMES.items()}
        return SegmentGrant(lifetime, urls, key)

    def segment(self, at: SegmentPlace, plan: str, user: str) -> tuple[RemoteSegment, ReaderLease | None]:
        """Return a segment that is readable or leased by this plan, and the plan's lease. Raises SegmentExpired."""
        view = self._reader.view(at.topic, at.partition)
        lease = self._lease_of(view, plan, user)
        entry = view.segments.get(at.segment_id)
        if entry is not None and isinstance(entry.subject, RemoteSegment):
            readable = any(each.segment_id == at.segment_id for each in view.readable)
            if readable or (lease is not None and entry.subject.offsets.overlap(lease.offsets) is not None):
                return entry.subject, lease
        raise SegmentExpired(
            "segment is not readable, or not any more", topic=at.topic, partition=at.partition, segment_id=at.segment_id
        )

    def stored(self, segment: RemoteSegment, kind: ObjectKind, range: ByteRange) -> Iterator[bytes]:
        """Yield a range of one of the segment's objects, as stored. Raises the store's errors."""
        return self._store.stream_range(object_key(segment.object_key, kind), range, MIB)

    def manifest(self, segment: RemoteSegment) -> bytes:
        """Return the complete manifest. Its length is unknown, as it may have been rewritten under another key."""
        return self._store.get(object_key(segment.object_key, ObjectKind.MANIFEST))

    def _lease_of(self, view: PartitionView, plan: str, user: str) -> ReaderLease | None:
        """Return the lease of this plan that ends last. Returns None if the plan has no lease."""
        now, holder = self._clock.now_ms(), _holder(plan, user)
        own = [each for each in view.leases if plan and each.holder == holder and each.expires_at > now]
        return max(own, key=lambda each: each.expires_at, default=None)

    def _kept(self, at: SegmentPlace, segment: RemoteSegment, lease: ReaderLease | None, plan: str, user: str) -> float:
        """Return the seconds that the plan keeps the segment. Renews the lease, or leases a segment copied since."""
        offsets = segment.offsets if lease is None else lease.offsets
        lease_s = min(_lease_s(plan), self._leasing.longest_s)
        ranges = {segment.partition: Extent(offsets.start, Offset(offsets.end + 1))}
        try:
            # One at a time: all executors of a job see together that half is over, and the first renews it for all.
            with self._renewing[hash((segment.partition, plan)) % len(self._renewing)]:
                leases = self._leasing.take(ranges, _holder(plan, user), lease_s)
            if leases:
                return lease_s
        except (AccessDenied, Unavailable):
            if lease is None:
                raise  # else the present lease still holds
        if lease is None:
            return lease_s
        longest = self._lease_of(self._reader.view(at.topic, at.partition), plan, user) or lease
        return (longest.expires_at - self._clock.now_ms()) / 1000

    def _data_key(self, segment: RemoteSegment) -> DataKey:
        manifest, keys = read_manifest(self._store, segment.object_key), self._keys
        if keys is None or manifest.encryption is None:
            raise InvalidRequest("segment is encrypted and the gateway has no key ring", segment_id=segment.segment_id)
        source = object_key(segment.object_key, ObjectKind.MANIFEST)
        return DataKey(manifest.encryption.wrapped_key, open_data_key(manifest.encryption, keys, source=source))


def _url(at: SegmentPlace, segment: RemoteSegment, name: str, seconds: float, store: SignsReads | None) -> str:
    try:
        signed = None if store is None else store.signed_url(object_key(segment.object_key, NAMES[name]), seconds)
    except AccessDenied as error:
        raise AccessDenied(
            "the gateway may not sign URLs of the store; with gateway.url_lifetime = 0 it hands out the bytes itself"
        ) from error
    return at.path(name) if signed is None else signed


def _lease_s(plan: str) -> float:
    """Return the seconds that a plan's leases last, from its name. Raises InvalidRequest."""
    seconds = plan.rpartition("-")[2]
    if not seconds.isascii() or not seconds.isdecimal() or len(seconds) > 9:
        raise InvalidRequest("not the name of a plan", given=plan[:100])
    return float(seconds)


def user_of_plan(holder: str) -> str | None:
    """Return the user of the plan that a lease belongs to. Returns None if it belongs to no gateway's plan."""
    parsed = re.fullmatch(r"gateway plan \S+ of (.+)", holder, re.DOTALL)
    return None if parsed is None else parsed[1]


def _holder(plan: str, user: str) -> str:
    """Return the holder of a plan's leases. A plan belongs to one user alone."""
    return f"gateway plan {plan} of {user or 'anybody'}"


def plans_of(connection: Connection, reader: LogReader, view: TierView) -> Plans:
    """Return plans with leases in the tier-state topic."""
    ids = RandomIds()
    leasing = Leasing(
        take=lambda ranges, holder, seconds: take_leases(connection, view, ranges, holder, seconds, ids),
        end=partial(end_leases, connection.topic, view),
        longest_s=connection.settings.lease.max,
    )
    time = BrokersTime(connection.clock, connection.topic, connection.store)
    return Plans(reader, connection.store, connection.keys, leasing, time, ids)
