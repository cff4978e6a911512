"""Histories whose agents copy by Fetch (``agent.source = "fetch"``): production's `FetchLog` and `Ownership`.

Events that agents with the disks do not have: one to three processes share the work by a consumer group; logs change
between any two requests of a look; Kafka's retention overtakes the copier; the topic is re-created under its name; the
first start is at a log start inside a batch and inside open transactions; nothing is trimmed in archives. Further
promises:

owners       a term begins only while its process owns the partition by the group's coordinator
one topic    nothing is deleted in another topic of the same name
archives     no DeleteRecords is sent for an archive, except what a person ordered
indexes      a segment's transaction index has each abort marker of the segment, with the transaction's first offset
             and no last stable offset that is too high: Kafka's readers look for aborted transactions there
alarms       no copy fails because of damage: the spool never has batches that the leader's log does not have
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Thread
from typing import cast

from tests.histories.cluster import HistoryControl
from tests.histories.copiers import Coordinator, HistoryConsumer, new_consumer
from tests.histories.leaders import FetchedCluster, FetchedControl, HistoryRaw
from tests.histories.process import Process
from tests.histories.topic import DAY
from tests.histories.world import STEPS, World
from tierstate.app.operating.log_source import producer_snapshots
from tierstate.broker.raw import RawClient
from tierstate.log.local_log import LocalLog
from tierstate.log.transaction_index import parse_transaction_index
from tierstate.runtime.clock import Clock
from tierstate.runtime.listener import CopyFailed
from tierstate.state.errors import TierstateError
from tierstate.state.ids import RemoteSegmentId, TopicId
from tierstate.state.retention import TopicConfig
from tierstate.state.view import ViewStore
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.reader import SegmentReader
from tierstate.tail.fetch_log import FetchLog, RollPolicy
from tierstate.tail.ownership import Ownership

FOR_EVER = 10**15
DAMAGE = ("another leader epoch than", "not in order", "damaged", "CRC", "shorter", "past the end", "contradict")
"""Words of the errors of a copy whose log does not fit."""


class FetchedProcess(Process):
    """An agent that copies by Fetch. ``broker`` is its number only."""

    world: FetchedWorld
    log: FetchLog
    ownership: Ownership
    member: HistoryConsumer

    def _open_log(self, clock: Clock) -> tuple[HistoryControl, LocalLog]:
        world = self.world
        self.trims = world.archive is None
        self.ownership = Ownership({}, "_tier-state", clock, new_consumer(world.group, world.clock, world.rnd))
        self.member = cast(HistoryConsumer, self.ownership._consumer)
        control = FetchedControl(world.cluster, world.groups.freeze)
        self.log = FetchLog(
            cast(RawClient, HistoryRaw(world.cluster, world.between)),
            control,
            self.ownership.owned,
            1,
            world.folder_of(self.broker),
            world.roll,
            clock,
            producer_snapshots(world.store, None),
        )
        self.log.view = self.follower.partition
        return control, self.log

    def step(self) -> None:
        if not self.busy:
            self.world.clock.advance(self.world.rnd.random())
        super().step()

    def _cares_for(self) -> Collection[int]:
        return self.ownership.owned()

    def _configured(self, name: str, config: TopicConfig) -> TopicConfig:
        archive = self.world.archive
        return config if archive is None else replace(config, remote_ms=archive, remote_bytes=-1)

    def _leads(self) -> bool:
        return self.world.cluster.partition in self.log.partitions()

    def _leads_now(self) -> bool:
        cluster, led = self.world.cluster, self.log._led.get(self.world.cluster.partition)
        return led is not None and (led.broker, led.epoch) == (cluster.leader.number, cluster.epoch)


class FetchedWorld(World):
    """The state of a history whose agents copy by Fetch.

    ``archive``: the remote tier's own retention (ms), -1 without limit; None if the agents trim. ``busy_between``: logs
    change between two requests of a look.
    """

    cluster: FetchedCluster
    new_cluster = FetchedCluster

    archive: int | None = None
    busy_between = False

    def prepare(self) -> None:
        self.group = Coordinator(self.clock, self.seen)
        shared = Path("/dev/shm")
        self._state = TemporaryDirectory(dir=shared if shared.exists() else None, ignore_cleanup_errors=True)
        self.topic.writing, self.cluster.trimming = self.writing, self.trimming
        self._happening = False
        self._indexes: set[RemoteSegmentId] = set()
        """Segments whose transaction index was checked."""
        self.draw(Random(f"fetched {self.seed}"))

    def draw(self, rnd: Random) -> None:
        """Draw what does not change during the history, and what was there before it."""
        self.agents = rnd.choice((1, 2, 2, 3))
        self.roll = RollPolicy(
            rnd.choice((1, 200, 500, 4000)), rnd.choice((600.0, 30_000.0)), rnd.choice((1 << 20, 1 << 20, 2000))
        )
        self.cluster.sockets_die = rnd.random() < 0.6
        self.archive = rnd.choice((-1, -1, 2 * DAY)) if rnd.random() < 0.3 else None
        if self.archive is not None:
            self.cluster.retention_ms = FOR_EVER if self.archive < 0 else self.archive
            self.seen["archive"] += 1
        self.busy_between = rnd.random() < 0.7
        if rnd.random() < 0.4:
            self._begin_late(rnd)

    def _begin_late(self, rnd: Random) -> None:
        """Start the first agent at a log start inside a batch, and inside transactions."""
        for _ in range(rnd.randint(2, 5)):
            self.cluster.produce()
        if rnd.random() < 0.3:
            self.cluster.elect(unclean=False)
            self.cluster.produce()
        log = self.cluster.leader.log
        if log and log[-1].base > 0:
            before = rnd.randint(1, log[-1].base)
            self.cluster.order(before)
            self.cluster.trim(self.cluster.leader.number, self.cluster.epoch, before)
            self.seen["begun late"] += 1

    def close(self) -> None:
        self._state.cleanup()

    def folder_of(self, number: int) -> Path:
        return Path(self._state.name) / str(number)

    def new_process(self, number: int, age: int, store: ViewStore | None) -> Process:
        rnd = Random(f"restart of {number} {age} of {self.seed}")
        if age:
            dead = self.processes[number]
            if isinstance(dead, FetchedProcess) and rnd.random() < 0.3:
                dead.ownership.close()  # it was stopped, not killed: it leaves the group
            if rnd.random() < 0.3:
                shutil.rmtree(self.folder_of(number), ignore_errors=True)
                store = None
        return FetchedProcess(self, number, age, store)

    @property
    def copiers(self) -> list[FetchedProcess]:
        return cast(list[FetchedProcess], self.processes)

    def responsible(self) -> int:
        owner = self.group.owner
        return next((each.broker for each in self.copiers if each.member is owner), 0)

    def tell(self, event: object) -> None:
        super().tell(event)
        if isinstance(event, CopyFailed):
            assert not any(word in event.error for word in DAMAGE), f"ALARM: {event.error}"

    def writing(self, who: int, key: str) -> None:
        self.promises.writing(who, key)
        if self.cluster.exists and who < self.agents and self.copiers[who].next_step == "append leader-elected":
            assert self.copiers[who].member.owns, f"{who} begins a term, and does not own the partition"

    def trimming(self, before: int) -> None:
        ordered = self.cluster.is_ordered(before)
        assert self.archive is None or ordered, f"an archive is cut below {before}"
        self.promises.trimming(before)

    # Events in addition to those of all histories.

    def step(self) -> None:
        rnd = Random(f"fetched {self.seed} at {self.now}")
        self.listen(rnd)
        chance = rnd.random()
        if chance < 0.015:
            self.group.rebalance(rnd)
        elif chance < (0.06 if self.archive is not None else 0.025):
            self.retention_takes(rnd)
        elif not self.cluster.exists and self.cluster.successor is None and chance < 0.2:
            self.create_again()
        super().step()
        self.check_topics()
        if self.now % 10 == 0:
            self.check_indexes()

    def listen(self, rnd: Random) -> None:
        """Let the group and the processes that are not frozen hear from each other."""
        awake = [each for each in self.copiers if self.frozen.get(each.broker, -1) < self.now]
        self.group.listen([each.member for each in awake])
        for each in awake:
            if rnd.random() < 0.9:
                each.ownership.look()

    def between(self) -> None:
        """Now and then something happens between two requests of an agent's look."""
        rnd = self.rnd
        if self._happening or not self.busy_between or rnd.random() >= 0.02:
            return
        self._happening = True
        happen = rnd.choice(
            (
                self.produce,
                self.elect,
                self.elect,
                self.restart_broker,
                self.take_all,
                self.toggle,
                self.cut,
                self.pause,
                self.revoke,
            )
        )
        happen()
        self.seen["between two requests"] += 1
        self._happening = False

    def cut(self) -> None:
        """Delete records with Kafka's own tools, or by its retention."""
        if self.by_hand:
            self.delete_by_hand()
        else:
            self.retention_takes(self.rnd)

    def pause(self) -> None:
        """Freeze the agent that waits for an answer beyond its session: another one becomes the owner."""
        self.clock.advance(60)
        asleep = self.copiers[self.acting].member if self.acting < len(self.processes) else None
        self.group.listen([each.member for each in self.copiers if each.member is not asleep])

    def revoke(self) -> None:
        """Take the partition from the agent that waits for an answer; its other threads hear of it at once."""
        if self.acting < len(self.processes):
            waiting = self.copiers[self.acting]
            self.group.rebalance(self.rnd)
            waiting.ownership.look()
            noticing = Thread(target=waiting.log.partitions)
            noticing.start()
            noticing.join()

    def retention_takes(self, rnd: Random) -> None:
        """Kafka's retention deletes rolled segments, whether or not they are copied."""
        leader = self.cluster.leader
        borders = [base for base in leader.bases if leader.start < base]
        if not self.cluster.exists or not borders:
            return
        before = rnd.choice(borders[: 1 + len(borders) // 2])
        self.promises.records.cut(before)
        self.cluster.trim(leader.number, self.cluster.epoch, before)
        leader.doomed.clear()  # these files are renamed at once
        self.seen["retention took"] += 1

    def create_again(self) -> None:
        """Create the topic again under its name. Its leader and its epoch are those that the old topic had."""
        old = self.cluster
        new = FetchedCluster(self.rnd, self.clock, TopicId.of((2).to_bytes(16, "big")), 10**9)
        new.leader, new.epoch = new.brokers[old.leader.number], old.epoch
        new.leader.epochs = [(new.epoch, 0)]
        while new.leader.end <= old.leader.end:
            new.produce()
        old.successor = new
        self.seen["topic re-created"] += 1

    def order_below(self, before: int, force: bool = False) -> None:
        if self.cluster.exists:
            super().order_below(before, force)

    def check_indexes(self) -> None:
        """Check the transaction indexes of new segments whose batches are all in the leader's log."""
        if not self.cluster.exists or self.promises.is_lost or self.bit_rot.flipped:
            return
        leader, truth = self.cluster.leader, {batch.base: batch.data for batch in self.cluster.truth}
        for segment in self.promises.live.view().readable:
            stored = self.promises.records.stored_in(segment)
            if segment.segment_id in self._indexes or any(truth.get(base) != data for base, data in stored.items()):
                continue
            try:
                reader = SegmentReader.open(self.store, segment.object_key)
                found = reader.indexes(IndexKind.TRANSACTION) or b""
            except TierstateError:
                continue
            self._indexes.add(segment.segment_id)
            base, end = segment.offsets.start, segment.offsets.end
            there = parse_transaction_index(found, segment.object_key)
            expected = parse_transaction_index(leader.transaction_index(base, end + 1), "the leader")
            told = f"{there} in {segment.offsets} instead of {expected}"
            assert [each.range for each in there] == [each.range for each in expected], f"INDEX: {told}"
            for mine, its in zip(there, expected, strict=True):
                assert mine.last_stable_offset <= its.last_stable_offset, f"INDEX: {told}"
            self.seen["index with entries"] += bool(expected)

    def check_topics(self) -> None:
        new = self.cluster.successor
        assert new is None or new.leader.start == 0, f"ANOTHER TOPIC was cut below {new.leader.start}"

    def attend(self) -> FetchedProcess:
        self.listen(self.rnd)
        return self.copiers[self.responsible()]

    def run(self, steps: Iterable[int] = range(STEPS)) -> None:
        super().run(steps)
        self.check_indexes()
