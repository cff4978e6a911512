"""A real leader's answers about its epochs: the twin gives the same ones, and a forgotten epoch proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.histories.epoch_cache import earliest_epoch, end_offset_for, said_of_epoch
from tests.leader.real import eventually
from tests.scenarios.story_kafka import ClusterAdmin
from tierstate.broker.bounds import BELOW_EVERY_EPOCH, walk_epochs
from tierstate.broker.local_reads import LocalReader
from tierstate.broker.open import Broker, open_broker
from tierstate.broker.raw import EARLIEST, RawClient
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import BrokerUnavailable, Fenced
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.kafka


@pytest.fixture
def three(kafka_three: KafkaSandbox) -> Iterator[Broker]:
    with open_broker(kafka_three.client_config) as opened:
        yield opened


class Partition:
    """One partition of a topic on three brokers, which lead it one after the other."""

    def __init__(self, sandbox: KafkaSandbox, broker: Broker, topics: Any, name: str) -> None:
        self.sandbox, self.broker, self.topics = sandbox, broker, topics
        self.name = topics.create(name)
        self.admin = ClusterAdmin(sandbox)

    @property
    def leader(self) -> BrokerId:
        leader = self.admin.leader(self.name, 0)
        assert leader is not None
        return BrokerId(leader + 1)

    @property
    def epoch(self) -> LeaderEpoch:
        epoch = self.broker.reads.bounds(self.name, 0).leader_epoch
        assert epoch is not None
        return epoch

    def moves(self) -> None:
        """Make another replica the leader by a clean election."""
        before = self.leader - 1
        replicas = self.admin.replicas(self.name, 0)
        self.admin.reassign(self.name, 0, [replica for replica in replicas if replica != before] + [before])
        eventually(lambda: self.admin.elect_preferred(self.name, 0) not in (before, None))
        eventually(self._settled)

    def _settled(self) -> bool:
        """Return whether the controller is done with the partition: a later epoch would fence the next request."""
        described = self.broker.control.topic(self.name).partitions[0]
        try:
            epoch = self.broker.control.bounds(self.name, 0).leader_epoch
        except (Fenced, BrokerUnavailable):
            return False
        every = {*range(len(self.sandbox.brokers))}
        return epoch == described.leader_epoch and self.admin.in_sync(self.name, 0) == every

    def restarts(self) -> None:
        """Restart the partition's only broker, which leads in another epoch afterwards."""
        before = self.epoch
        self.sandbox.stop(0)
        self.sandbox.start(0)
        eventually(lambda: self._settled() and self.epoch > before, 60)

    def dies(self) -> None:
        """Kill the partition's only broker before it has written the log start to its file, and start it again."""
        self.sandbox.kill(0)
        (self.sandbox.brokers[0].log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
        self.sandbox.start(0)
        eventually(self._settled, 60)

    def file(self) -> list[tuple[int, int]]:
        """Return the leader's file ``leader-epoch-checkpoint`` as (epoch, start offset)."""
        folder: Path = self.sandbox.brokers[self.leader - 1].log_dir / f"{self.name}-0"
        lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]

    def agrees_with_the_twin(self) -> list[tuple[int, int]]:
        """Compare the broker's answers on every epoch so far, and on the next one, with the twin's. Return the file."""
        raw = self.broker.raw
        eventually(lambda: self.file()[-1][0] == self.epoch, 60)
        now = self.epoch
        bounds, epochs, leader = self.broker.reads.bounds(self.name, 0), self.file(), self.leader
        end, start = bounds.high_watermark, bounds.local_start
        first = raw.list_offset(leader, self.name, 0, EARLIEST, leader_epoch=now)
        assert (first.offset, -1 if first.leader_epoch is None else first.leader_epoch) == (
            start,
            earliest_epoch(epochs, start),
        )
        for epoch in (BELOW_EVERY_EPOCH, *range(now + 2)):
            answer = raw.end_of_epoch(leader, self.name, 0, LeaderEpoch(epoch), now)
            pair = (min(epoch, -1) if answer.leader_epoch is None else answer.leader_epoch, answer.offset)
            assert pair == end_offset_for(epochs, end, epoch), (epoch, epochs)
            if epoch < 0:
                continue
            proven = self.broker.reads.end_of_epoch(self.name, 0, LeaderEpoch(epoch), now)
            assert proven == said_of_epoch(epochs, start, end, LeaderEpoch(epoch))
        walked = walk_epochs(raw, leader, self.name, 0, now)
        found = [(entry.epoch, entry.start_offset) for entry in walked.lineage.entries]
        assert (found, walked.log_start) == (epochs, start), "the walk finds the file"
        return epochs


class Interrupted(RawClient):
    """A client that first calls the oldest function of ``happens`` at each ListOffsets."""

    happens: ClassVar[list[Callable[[], None]]] = []

    def list_offsets(self, *arguments: Any, **named: Any) -> Any:
        if self.happens:
            self.happens.pop(0)()
        return super().list_offsets(*arguments, **named)


@pytest.fixture
def partition(
    kafka_three: KafkaSandbox, three: Broker, topic_name: str, make_topics: Callable[[KafkaSandbox], Any]
) -> Partition:
    return Partition(kafka_three, three, make_topics(kafka_three), topic_name)


def test_a_leader_answers_as_its_twin_does_also_of_epochs_that_it_forgot(partition: Partition) -> None:
    name, broker = partition.name, partition.broker
    for records in (10, 20, 0, 15):
        partition.topics.append(name, 0, records)
        partition.moves()
    partition.topics.append(name, 0, 5)
    epochs = partition.agrees_with_the_twin()
    assert [start for _, start in epochs] == [0, 10, 30, 45], "an epoch without a record leaves no entry"
    second, now = epochs[1][0], partition.epoch
    broker.control.delete_records_on(partition.leader, name, 0, Offset(12))
    epochs = partition.agrees_with_the_twin()
    assert epochs[0] == (second, 12)
    epoch = LeaderEpoch(0)
    answer = broker.raw.end_of_epoch(partition.leader, name, 0, epoch, now)
    assert (answer.leader_epoch, answer.offset) == (0, 12), "Kafka answers a forgotten epoch as if it were known"
    assert broker.reads.end_of_epoch(name, 0, epoch, now) is None
    broker.control.delete_records_on(partition.leader, name, 0, Offset(50))
    assert partition.agrees_with_the_twin() == [(now, 50)]
    assert broker.reads.end_of_epoch(name, 0, LeaderEpoch(second), now) is None
    partition.moves()
    assert partition.agrees_with_the_twin() == [(partition.epoch, 50)], "the empty epoch before it is forgotten, too"


def test_an_older_broker_answers_the_same(
    kafka_older: KafkaSandbox, topic_name: str, make_topics: Callable[[KafkaSandbox], Any]
) -> None:
    with open_broker(kafka_older.client_config) as broker:
        partition = Partition(kafka_older, broker, make_topics(kafka_older), topic_name)
        partition.topics.append(topic_name, 0, 10)
        partition.restarts()
        partition.topics.append(topic_name, 0, 10)
        assert [start for _, start in partition.agrees_with_the_twin()] == [0, 10]
        broker.control.delete_records_on(partition.leader, topic_name, 0, Offset(12))
        assert partition.agrees_with_the_twin() == [(partition.epoch, 12)]
        assert broker.reads.end_of_epoch(topic_name, 0, LeaderEpoch(0), partition.epoch) is None


@pytest.mark.parametrize("restarts", [0, 1])
def test_the_walk_finds_the_file_of_a_broker_that_died_after_its_records_were_deleted(
    kafka_older: KafkaSandbox, topic_name: str, make_topics: Callable[[KafkaSandbox], Any], restarts: int
) -> None:
    with open_broker(kafka_older.client_config) as broker:
        partition = Partition(kafka_older, broker, make_topics(kafka_older), topic_name)
        partition.topics.append(topic_name, 0, 10)
        for _ in range(restarts):
            partition.restarts()
            partition.topics.append(topic_name, 0, 10)
        oldest = partition.epoch
        broker.control.delete_records_on(partition.leader, topic_name, 0, Offset(10 * restarts + 2))
        eventually(lambda: partition.file()[0] == (oldest, 10 * restarts + 2))  # Kafka writes the file some time later
        partition.dies()
        partition.agrees_with_the_twin()
        partition.restarts()
        partition.topics.append(topic_name, 0, 10)
        epochs = partition.agrees_with_the_twin()
        assert epochs[0] == (oldest, 10 * restarts + 2)
        assert broker.reads.bounds(topic_name, 0).local_start < epochs[0][1], "the log begins below the file"


def test_bounds_are_of_one_leader_though_another_is_elected_while_it_is_asked(partition: Partition) -> None:
    partition.topics.append(partition.name, 0, 10)
    clock = SystemClock()
    raw = Interrupted(partition.sandbox.client_config, clock)
    reads, before = LocalReader(raw, clock), partition.epoch
    raw.happens[:] = [lambda: None, partition.moves]
    bounds = reads.bounds(partition.name, 0)
    assert bounds.leader_epoch == partition.epoch > before
    raw.happens[:] = [lambda: None, partition.moves]
    with pytest.raises(Fenced):
        reads.bounds(partition.name, 0, bounds.leader_epoch)
    raw.close()


def test_an_answer_belongs_to_the_leader_epoch_it_was_asked_in(partition: Partition) -> None:
    partition.topics.append(partition.name, 0, 10)
    before = partition.epoch
    assert partition.broker.reads.end_of_epoch(partition.name, 0, before, before) is not None
    partition.moves()
    assert partition.epoch > before
    with pytest.raises(Fenced):
        partition.broker.reads.end_of_epoch(partition.name, 0, before, before)
    raw = partition.broker.raw
    others = [broker for broker in partition.broker.control.cluster().brokers if broker != partition.leader]
    assert raw.end_of_epoch(others[0], partition.name, 0, before, partition.epoch).code != 0
    with pytest.raises(BrokerUnavailable):
        partition.broker.control.bounds(partition.name, 0, broker=others[0])
