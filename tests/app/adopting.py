"""An adoption over twins: the objects of another writer, an empty bucket, and its tier-state topic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.leader.world import World
from tests.twins.counting_ids import CountingIds
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.operating.adoption import Adopted, AdoptTools, adopt_partition, recorded
from tierstate.app.operating.foreign_segments import adoptable
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.leader.copier import CopyTools, FormatPolicy
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.recover import RecoverTools
from tierstate.leader.recover_scan import DamagedManifest, scan_bucket
from tierstate.rules.adoption import Proposal, propose, with_log_starts
from tierstate.rules.recovery import ArchivedPartition, FoundSegment
from tierstate.runtime.operation import Operation, run
from tierstate.state.facts import OperatorOrder
from tierstate.state.ids import TopicId
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.manifest_json import format_manifest
from tierstate.storage.segment.reader import SegmentReader, read_manifest

FRESH_ID = "BBBBBBBBBBBBBBBBBBBBBg"


@dataclass
class Adopting:
    """``world``: what the other writer copied; its bucket is the source. ``topic`` and ``store`` outlive processes."""

    world: World
    topic: MemoryTierTopic = field(default_factory=lambda: MemoryTierTopic(1, FRESH_ID))
    past_holes: bool = False
    prefix: str = "ours/"
    standing: tuple[OperatorOrder, ...] = ()
    """Orders in the archive of the other writer."""

    def __post_init__(self) -> None:
        self.source, self.store = self.world.store, MemoryStore(self.world.clock)

    def fresh(self) -> Adopting:
        return Adopting(self.world, past_holes=self.past_holes, standing=self.standing)

    # --- the other writer's bucket

    @property
    def segments(self) -> tuple[RemoteSegment, ...]:
        return self.world.view().readable

    def as_aiven(self) -> Adopting:
        """Make all objects those of Aiven's plugin."""
        for segment in self.segments:
            self.put(segment, ObjectKind.MANIFEST, format_manifest(replace(self.manifest(segment), tierstate=None)))
        return self

    def manifest(self, segment: RemoteSegment) -> Any:
        return read_manifest(self.source, segment.object_key)

    def put(self, segment: RemoteSegment, kind: ObjectKind, data: bytes, store: MemoryStore | None = None) -> None:
        key, store = object_key(segment.object_key, kind), store or self.source
        store.delete(key)
        store.put_if_absent(key, data)

    def flip(self, segment: RemoteSegment, kind: ObjectKind, at: int) -> None:
        data = bytearray(self.source.get(object_key(segment.object_key, kind)))
        data[at] ^= 1
        self.put(segment, kind, bytes(data))

    # --- processes

    def proposal(self, follower: Follower) -> Proposal:
        findings = list(scan_bucket(self.source, judge=adoptable))
        self.damaged = [each for each in findings if isinstance(each, DamagedManifest)]
        segments = [each for each in findings if isinstance(each, FoundSegment)]
        if any(self.manifest(each.segment).tierstate is None for each in segments):
            segments = with_log_starts(segments, {})
        partition = self.world.partition
        view = follower.partition(partition)
        archived = recorded(ArchivedPartition(partition, standing=self.standing), view)
        return propose(view, segments, archived, None, past_holes=self.past_holes)

    def process(self, live: Callable[[Operation[Adopted]], Any], seed: int = 1) -> Any:
        """Adopt in a process of its own. Return what ``live`` returns."""
        follower = open_view(self.topic, "memory", self.world.clock)
        try:
            follower.require_fresh(0, 0)
            copy = CopyTools(
                store=self.store,
                proof=ObjectProof(self.store),
                keys=ObjectKeys(self.prefix),
                format=FormatPolicy("auto", 3, 32_768, "memory", TopicId(self.topic.topic_id)),
                throttle=lambda size: None,
                listener=lambda event: None,
                longest_s=math.inf,
            )
            recover = RecoverTools(self.topic, follower, self.world.clock, CountingIds(seed))
            tools = AdoptTools(self.source, None, copy, recover, self.past_holes)
            return live(adopt_partition(self.proposal(follower), tools))
        finally:
            follower.close()

    def adopt(self, seed: int = 99) -> Adopted:
        adopted: Adopted = self.process(run, seed)
        return adopted

    def planned(self) -> Proposal:
        follower = open_view(self.topic, "memory", self.world.clock)
        try:
            follower.require_fresh(0, 0)
            return self.proposal(follower)
        finally:
            follower.close()

    # --- what is there then

    def view(self) -> PartitionView:
        follower = open_view(self.topic, "memory", self.world.clock)
        try:
            follower.require_fresh(0, 0)
            return follower.partition(self.world.partition)
        finally:
            follower.close()

    def log(self, segment: RemoteSegment) -> bytes:
        """Return the plain log of an adopted segment, every byte and checksum verified."""
        reader = SegmentReader.open(self.store, segment.object_key)
        reader.verify(segment)
        return b"".join(reader.read_log())

    def logs(self) -> list[bytes]:
        """Return the plain logs of the other writer's segments, from the broker's own files."""
        return [self.world.file(each.offsets.start).read_bytes() for each in self.segments]

    def keys(self) -> list[str]:
        return [entry.key for batch in self.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]

    def objects(self) -> dict[str, int]:
        return {info.key: info.size for info in self.store.list()}
