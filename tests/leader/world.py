"""A small world in memory: a partition whose folder a real broker wrote, its cluster, the store, the tier-state topic.

`World` outlives an agent; `Process` is one agent: its own view, its own ids, nothing else of its own.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import google_crc32c

from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_broker import MemoryBroker
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_reader import TierReader
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.follower.replay import catch_up
from tierstate.leader.copier import CopyTools, FormatPolicy, copy_segment
from tierstate.leader.lost_facts import LostFactsWatch
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.observe import GroupPolicy, Observer
from tierstate.leader.partition_worker import PartitionWorker, WorkerTools
from tierstate.leader.status import PartitionStatus, StatusBoard
from tierstate.leader.sweeper import OrphanSweeps
from tierstate.leader.term import TermContext, TermSession, begin_term
from tierstate.log.batch import HEADER_BYTES, BatchHeader, iter_batches
from tierstate.log.local_log import LogDirs
from tierstate.rules.candidates import CopyCandidate, next_candidate
from tierstate.rules.decide import Policy
from tierstate.rules.observed import NO_GROUPS, Observed
from tierstate.runtime.clock import Clock
from tierstate.runtime.listener import Event
from tierstate.runtime.operation import Operation, run
from tierstate.schemas.codec import decode_fact
from tierstate.state.ids import BrokerId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import Offset, Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.retention import TopicConfig
from tierstate.state.routing import LocalBounds
from tierstate.state.segment import RemoteSegment, SegmentState
from tierstate.state.view import MemoryView
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.reader import SegmentReader

R = TypeVar("R")
GOLDEN = Path(__file__).parents[1] / "data" / "kafka-logs"
TRIMS_ALL = {"local.retention.bytes": "0"}
"""A topic whose local retention keeps no rolled segment."""


class FaultyTopic(MemoryTierTopic):
    """The twin with a network: ``on_append(number, key)`` runs before an append lands, ``after_append`` after it,
    ``on_end`` before an end is returned.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.appends = 0
        self.on_append: Callable[[int, str], None] = lambda number, key: None
        self.after_append: Callable[[int, str], None] = lambda number, key: None
        self.on_end: Callable[[], None] = lambda: None

    def end(self, tier_partition: int) -> Position:
        self.on_end()
        return super().end(tier_partition)

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        number, self.appends = self.appends, self.appends + 1
        self.on_append(number, key)
        position = super().append(tier_partition, key, value)
        self.after_append(number, key)
        return position

    def keys(self) -> list[str]:
        """Return every fact so far, by key, without tombstones."""
        reader: TierReader = self.reader({0: Position(0)})
        return [entry.key for batch in reader.poll(0) for entry in batch.entries if entry.value is not None]


class World:
    """``case`` is a folder of `tests/data/kafka-logs`. Broker 1 leads in the folder's last epoch."""

    def __init__(self, tmp: Path, case: str, config: Mapping[str, str] | None = None) -> None:
        source = next(path for path in (GOLDEN / case).iterdir() if path.is_dir())
        self.folder = tmp / "logs" / source.name
        shutil.copytree(source, self.folder)
        self.name = source.name.rpartition("-")[0]
        self.clock = ManualClock()
        self.broker = MemoryBroker((1, 2), CountingIds(seed=9))
        self.topic_id: TopicId = self.broker.create_topic(self.name, config={"retention.ms": "-1", **(config or {})})
        self.partition = TopicIdPartition(self.topic_id, 0)
        (self.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {self.topic_id}\n")
        (tmp / "logs" / "meta.properties").write_text("version=1\ncluster.id=memory\nnode.id=1\n")
        self.broker.append(self.name, 0, self.end())
        for _ in range(self.checkpoint()[-1][0]):
            self.broker.elect(self.name, 0, 1)
        self.topic = FaultyTopic(self.clock)
        self.faults: Callable[[str, str, int], None] = lambda operation, key, writes: None
        self.store = MemoryStore(self.clock, lambda *what: self.faults(*what))
        self.log = LogDirs([tmp / "logs"])
        self._processes: list[Process] = []

    # The broker's folder.

    @property
    def bases(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.glob("*.log"))

    @property
    def rolled(self) -> list[int]:
        return self.bases[:-1]

    def file(self, base: int, suffix: str = ".log") -> Path:
        return self.folder / f"{base:020d}{suffix}"

    def end(self) -> int:
        active = self.bases[-1]
        return max((batch.last_offset for batch in self.batches(active)), default=active - 1) + 1

    def batches(self, base: int) -> list[BatchHeader]:
        return list(iter_batches(self.file(base).read_bytes(), source="folder"))

    def checkpoint(self) -> list[tuple[int, int]]:
        lines = self.file_text("leader-epoch-checkpoint").split("\n")[2:]
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines if line]

    def write_checkpoint(self, *entries: tuple[int, int]) -> None:
        lines = "".join(f"{epoch} {start}\n" for epoch, start in entries)
        (self.folder / "leader-epoch-checkpoint").write_text(f"0\n{len(entries)}\n{lines}")

    def file_text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def roll(self) -> None:
        """Let the broker roll its active segment: indexes are cut to their entries; a new empty segment is active."""
        active, end = self.bases[-1], self.end()
        for suffix, entry in ((".index", 8), (".timeindex", 12)):
            data = self.file(active, suffix).read_bytes()
            while data[-entry:] == bytes(entry):
                data = data[:-entry]
            self.file(active, suffix).write_bytes(data)
        youngest = max(self.batches(active), key=lambda batch: (batch.max_timestamp, -batch.base_offset))
        if data[-12:-4] != youngest.max_timestamp.to_bytes(8, "big"):
            last = struct.pack(">qi", youngest.max_timestamp, youngest.last_offset - active)
            self.file(active, ".timeindex").write_bytes(data + last)
        self.file(end).write_bytes(b"")
        self.file(end, ".snapshot").write_bytes(b"snapshot at the end")

    def retire(self) -> None:
        """Let the broker drop what DeleteRecords gave up: files, and its checkpoint below the start."""
        start = self.broker.bounds(self.name, 0).local_start
        for base, following in zip(self.bases, self.bases[1:], strict=False):
            if following <= start:
                for file in self.folder.glob(f"{base:020d}.*"):
                    file.unlink()
        entries = self.checkpoint()
        kept = [(epoch, at) for epoch, at in entries if at > start]
        covering = [(epoch, start) for epoch, at in entries if at <= start][-1:]
        self.write_checkpoint(*covering, *kept)

    def elect_here(self) -> None:
        """Let this broker lead again, in a new epoch that begins at the end."""
        epoch = self.broker.elect(self.name, 0, 1)
        kept = [entry for entry in self.checkpoint() if entry[1] < self.end()]  # an epoch without records leaves none
        self.write_checkpoint(*kept, (int(epoch), self.end()))

    def flip(self, base: int, position: int, suffix: str = ".log") -> None:
        data = bytearray(self.file(base, suffix).read_bytes())
        data[position] ^= 0x40
        self.file(base, suffix).write_bytes(data)

    def lift_record(self, base: int) -> Offset:
        """Give a record of an uncompressed batch an offset above the batch's last one, as a broker may accept it.

        Returns the base offset of the batch.
        """
        data = bytearray(self.file(base).read_bytes())
        batch = [each for each in self.batches(base) if not each.codec and each.record_count < 60][1]
        at = batch.position + HEADER_BYTES
        for skipped in (0, 1):  # length; attributes and timestamp
            at += skipped
            while data[at] & 0x80:
                at += 1
            at += 1
        data[at] = 126
        begin, end = batch.position + 21, batch.position + batch.size_bytes
        data[begin - 4 : begin] = google_crc32c.value(bytes(data[begin:end])).to_bytes(4, "big")
        self.file(base).write_bytes(data)
        return Offset(batch.base_offset)

    # The state in the end.

    def process(self, seed: int = 0, address: str = "b1:1") -> Process:
        self._processes.append(Process(self, seed or len(self._processes) + 1, address))
        return self._processes[-1]

    def view(self) -> PartitionView:
        """Return the partition as a follower that starts now sees it."""
        view = MemoryView(decode_fact)
        catch_up(self.topic, view, {0: self.topic.end(0)})
        return view.state(self.partition).view()

    def all_fresh(self) -> None:
        """Let every process receive all facts that landed."""
        for process in self._processes:
            process.view.require_fresh(0, 0)

    def objects(self) -> set[str]:
        return {info.key for info in self.store.list()}

    def local_start(self) -> int:
        return self.broker.bounds(self.name, 0).local_start

    def check_promises(self) -> PartitionView:
        """Check what must hold at any time, whatever crashed: every readable segment is whole and true, no offset that
        the broker gave up is without one, and facts name every object there is.
        """
        view = self.view()
        for segment in view.readable:
            SegmentReader.open(self.store, segment.object_key).verify(segment)
        start = self.local_start()
        if view.log_start is not None and start > view.log_start:
            assert view.coverage.prefix_end(view.log_start) >= start - 1, "trimmed what is not durable"
        else:
            assert start <= (view.log_start or 0)
        assert not view.contradictions
        named = {each.subject.object_key for each in view.segments.values() if each.subject}
        assert {key.rsplit(".", 1)[0] for key in self.objects()} <= named
        return view

    def states(self) -> list[SegmentState]:
        return sorted(each.state for each in self.view().segments.values())

    def close(self) -> None:
        for process in self._processes:
            process.view.close()
        self.log.close()


@dataclass
class Process:
    """One agent process on broker 1: it is killed by being forgotten."""

    world: World
    seed: int
    address: str = "b1:1"

    def __post_init__(self) -> None:
        world = self.world
        self.view: Follower = open_view(world.topic, "memory", world.clock)
        self.context = TermContext(
            BrokerId(1),
            self.address,
            world.topic,
            self.view,
            world.broker,
            world.log,
            world.clock,
            CountingIds(self.seed),
            world.store,
            ObjectKeys(),
        )
        self.events: list[Event] = []
        self.tools = CopyTools(
            store=world.store,
            proof=ObjectProof(world.store),
            keys=ObjectKeys(),
            format=FormatPolicy("auto", 3, 32_768, "memory", TopicId(world.topic.topic_id)),
            throttle=lambda size: None,
            listener=self.events.append,
            longest_s=3600.0,
        )
        self.board = StatusBoard()

    def worker(
        self,
        *,
        delay_ms: int = 0,
        lag_ms: int = 0,
        allow_unclean: bool = False,
        groups: GroupPolicy | None = None,
        observe: Observer | None = None,
        orphans: OrphanSweeps | None = None,
        lost: LostFactsWatch | None = None,
    ) -> PartitionWorker:
        world = self.world
        groups = groups or GroupPolicy(True, (), 7 * 86_400.0)
        plain = Observer(self.context, groups, lambda name, config: config, world.topic.problems)
        policy = Policy(lag_ms, delay_ms, allow_unclean)
        tools = WorkerTools(self.context, observe or plain, self.tools, policy, self.board, self.events.append)
        return PartitionWorker(tools, world.partition, world.name, orphans, lost)

    def work(self, worker: PartitionWorker | None = None) -> PartitionWorker:
        """Work until there is nothing to do, or something failed."""
        worker = worker or self.worker()
        while worker.advance():
            pass
        return worker

    def status(self) -> PartitionStatus:
        return self.board.all()[0]

    def begin(self) -> TermSession:
        return run(begin_term(self.context, self.world.partition, self.world.name))

    def candidate(self, session: TermSession) -> CopyCandidate:
        local = self.world.log.snapshot(self.world.partition, self.world.name)
        seen = Observed(local.segments, local.checkpoint, local.lineage, session.bounds(), TopicConfig(), NO_GROUPS)
        next_segment = next_candidate(session.view(), seen, self.world.clock.now_ms())
        assert isinstance(next_segment, CopyCandidate), next_segment
        return next_segment

    def copy_next(self, session: TermSession) -> RemoteSegment:
        return run(copy_segment(session, self.candidate(session), self.tools))

    def copy_all(self) -> TermSession:
        """Copy every rolled segment, without trimming."""
        session = self.begin()
        for _ in self.world.rolled:
            self.copy_next(session)
        return session


def run_with(act: Operation[R], step: str, happen: Callable[[], object]) -> R:
    """Take every step, and let something happen right before ``step``."""
    while True:
        try:
            if next(act) == step:
                happen()
        except StopIteration as done:
            result: R = done.value
            return result


def nobody_reads(
    partition: TopicIdPartition, name: str, bounds: LocalBounds, moment: float
) -> Mapping[str, Offset] | None:
    """Report that no consumer group holds anything."""
    return {}


def object_keys(segment: RemoteSegment) -> list[str]:
    return [object_key(segment.object_key, kind) for kind in ObjectKind]
