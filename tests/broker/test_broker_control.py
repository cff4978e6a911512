"""The contract of `BrokerControl`, which a real cluster and its in-memory twin must both keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, Producer

from tests.commits import commit
from tests.leader.real import eventually
from tests.twins.memory_broker import MemoryBroker
from tierstate.broker.answers import FetchSpec
from tierstate.broker.control import BrokerControl
from tierstate.broker.groups import GroupPosition
from tierstate.broker.open import open_broker
from tierstate.log.batch import iter_batches
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import (
    AccessDenied,
    BrokerUnavailable,
    Fenced,
    InvalidRequest,
    NotTiered,
    OffsetOutOfRange,
    TimedOut,
    UnknownTopic,
)
from tierstate.state.ids import BrokerId, TopicId
from tierstate.state.offsets import Offset
from tierstate.state.retention import SAME_AS_TOTAL
from tierstate.state.routing import Isolation, LocalBounds

ME = BrokerId(1)


class World(Protocol):
    """A cluster of one broker that a test can prepare."""

    @property
    def control(self) -> BrokerControl: ...

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None: ...
    def delete(self, name: str) -> None: ...
    def append(self, name: str, partition: int, records: int) -> None: ...
    def write(self, transaction: str, name: str, partition: int, records: int) -> int:
        """Write in the open transaction of this name, or in a new one. Return the producer id once acknowledged."""
        ...

    def end(self, transaction: str) -> None: ...
    def commit(self, group: str, name: str, partition: int, offset: int) -> None: ...
    def join(self, group: str, name: str) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.control = self.twin = MemoryBroker()
        self._open: dict[str, tuple[str, int, int]] = {}

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        self.twin.create_topic(name, partitions, config)

    def delete(self, name: str) -> None:
        self.twin.delete_topic(name)

    def append(self, name: str, partition: int, records: int) -> None:
        self.twin.append(name, partition, records)

    def write(self, transaction: str, name: str, partition: int, records: int) -> int:
        if transaction not in self._open:
            self._open[transaction] = name, partition, 4000 + len(self._open)
            first = self.twin.bounds(name, partition).high_watermark
            self.twin.open_transaction(name, partition, first, self._open[transaction][2])
        self.twin.append(name, partition, records)
        return self._open[transaction][2]

    def end(self, transaction: str) -> None:
        name, partition, producer_id = self._open.pop(transaction)
        self.twin.append(name, partition, 1)
        self.twin.open_transaction(name, partition, None, producer_id)

    def commit(self, group: str, name: str, partition: int, offset: int) -> None:
        self.twin.commit(group, name, partition, offset)

    def join(self, group: str, name: str) -> None:
        for part in self.twin.topic(name).partitions:
            self.twin.join(group, name, part.partition)


class KafkaWorld:
    def __init__(self, real: Any, stack: ExitStack) -> None:
        self._real = real
        self._stack = stack
        self._config = {"bootstrap.servers": real.sandbox.bootstrap, "log_level": 0}
        self._broker = stack.enter_context(open_broker(self._config))
        self.control = self._broker.control
        self._open: dict[str, Any] = {}

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        self._real.create(name, partitions, config)

    def delete(self, name: str) -> None:
        self._real.delete(name)

    def append(self, name: str, partition: int, records: int) -> None:
        self._real.append(name, partition, records)

    def write(self, transaction: str, name: str, partition: int, records: int) -> int:
        if transaction not in self._open:
            self._open[transaction] = Producer(self._config | {"transactional.id": f"{name}-{transaction}"})
            self._open[transaction].init_transactions(30)
            self._open[transaction].begin_transaction()
        for number in range(records):
            self._open[transaction].produce(name, f"{number}".encode(), partition=partition)
        assert self._open[transaction].flush(30) == 0
        end = self.control.bounds(name, partition).high_watermark
        isolation = Isolation.READ_UNCOMMITTED
        piece = self._broker.reads.fetch(FetchSpec(name, partition, Offset(end - 1), 1 << 20, isolation))
        (last,) = iter_batches(piece.batches, source="broker")
        return last.producer_id

    def end(self, transaction: str) -> None:
        self._open.pop(transaction).abort_transaction(30)

    def commit(self, group: str, name: str, partition: int, offset: int) -> None:
        commit(self._config, group, name, partition, offset)

    def join(self, group: str, name: str) -> None:
        consumer = Consumer(self._config | {"group.id": group, "enable.auto.commit": False})
        self._stack.callback(consumer.close)
        consumer.subscribe([name])
        while not consumer.assignment():
            consumer.poll(0.1)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with ExitStack() as stack:
        yield MemoryWorld() if request.param == "memory" else KafkaWorld(request.getfixturevalue("topics"), stack)


@pytest.fixture
def name(world: World, topic_name: str) -> str:
    """Create a topic of two partitions, and return its name."""
    world.create(topic_name, 2, {})
    return topic_name


def test_a_topic_is_described_with_id_partitions_and_leaders(world: World, name: str) -> None:
    described = world.control.topic(name)
    assert described.name == name
    assert not described.internal
    assert [(part.partition, part.leader, part.leader_epoch) for part in described.partitions] == [(0, 1, 0), (1, 1, 0)]
    assert described in world.control.topics()
    assert ME in world.control.cluster().brokers


def test_a_recreated_topic_has_another_id(world: World, name: str) -> None:
    before = world.control.topic(name).topic_id
    world.delete(name)
    world.create(name, 2, {})
    assert world.control.topic(name).topic_id != before


def test_what_does_not_exist_is_unknown(world: World, name: str) -> None:
    for ask in (world.control.topic, world.control.config, lambda topic: world.control.bounds(topic, 0)):
        with pytest.raises(UnknownTopic):
            ask("no-such-topic")
    with pytest.raises(UnknownTopic):
        world.control.bounds(name, 2)
    with pytest.raises(UnknownTopic):
        world.control.bounds(name, 2, broker=ME)
    with pytest.raises(UnknownTopic):
        world.control.open_transactions(name, 2, broker=ME)
    with pytest.raises(BrokerUnavailable):
        world.control.bounds(name, 0, broker=BrokerId(77))
    assert world.control.groups("no-such-topic").positions == ()


def test_settings_are_the_topics_own_or_the_default(world: World, topic_name: str) -> None:
    own = {"local.retention.ms": "1000", "retention.ms": "2000", "message.timestamp.type": "LogAppendTime"}
    world.create(topic_name, 1, own | {"cleanup.policy": "compact,delete", "unclean.leader.election.enable": "true"})
    config = world.control.config(topic_name)
    assert (config.retention_ms, config.retention_bytes) == (2000, -1)
    assert (config.local_retention_ms, config.local_retention_bytes) == (1000, SAME_AS_TOTAL)
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.timestamp_type == "LogAppendTime"
    assert config.unclean_leader_election_enable
    assert not config.remote_storage_enable


def test_settings_of_many_are_those_of_each_and_one_that_fails_fails_alone(
    world: World, topic_name: str, name: str
) -> None:
    own = {"local.retention.bytes": "5", "retention.bytes": "6", "message.timestamp.type": "LogAppendTime"}
    world.create(f"{topic_name}-2", 1, own | {"cleanup.policy": "compact", "unclean.leader.election.enable": "true"})
    topics = [name, f"{topic_name}-2", "no-such-topic"]
    for _ in range(2):
        configs = world.control.configs(topics, broker=ME)
        assert configs.keys() == set(topics)
        assert [configs[topic] for topic in topics[:2]] == [world.control.config(topic) for topic in topics[:2]]
        assert isinstance(configs["no-such-topic"], UnknownTopic)
    with pytest.raises(BrokerUnavailable):
        world.control.configs(topics, broker=BrokerId(77))


def test_a_deleted_topic_is_unknown_by_id_and_its_namesake_is_another(world: World, name: str) -> None:
    old = world.control.topic(name).topic_id
    assert world.control.topic_exists(old, broker=ME)
    world.delete(name)
    assert not world.control.topic_exists(old, broker=ME)
    world.create(name, 1, {})
    new = world.control.topic(name).topic_id
    assert (world.control.topic_exists(old, broker=ME), world.control.topic_exists(new, broker=ME)) == (False, True)


def test_an_id_that_never_was_is_unknown(world: World) -> None:
    assert not world.control.topic_exists(TopicId.of(bytes(range(16))), broker=ME)


def test_without_an_authorizer_everything_may_be_described(world: World, name: str) -> None:
    assert world.control.may_describe([], broker=ME)
    assert world.control.may_describe([name, "no-such-topic"], broker=ME)


def test_only_the_named_broker_says_whether_a_topic_exists(world: World, name: str) -> None:
    topic_id = world.control.topic(name).topic_id
    with pytest.raises(BrokerUnavailable):
        world.control.topic_exists(topic_id, broker=BrokerId(77))
    with pytest.raises(BrokerUnavailable):
        world.control.may_describe([name], broker=BrokerId(77))


def test_bounds_follow_appends_and_deletes(world: World, name: str) -> None:
    assert world.control.bounds(name, 0) == LocalBounds(Offset(0), Offset(0), Offset(0), LeaderEpoch(0))
    world.append(name, 0, 30)
    assert world.control.delete_records_on(ME, name, 0, Offset(10)) == 10
    expected = LocalBounds(Offset(10), Offset(30), Offset(30), LeaderEpoch(0))
    assert world.control.bounds(name, 0) == expected
    assert world.control.bounds(name, 0, broker=ME, epoch=LeaderEpoch(0)) == expected
    assert world.control.bounds(name, 1).high_watermark == 0


def test_bounds_of_many_are_those_of_each_and_one_that_fails_fails_alone(world: World, name: str) -> None:
    world.append(name, 0, 30)
    world.append(name, 1, 7)
    world.control.delete_records_on(ME, name, 0, Offset(10))
    places = [(name, 0), (name, 1), (name, 2), ("no-such-topic", 0)]
    bounds = world.control.bounds_of(places, broker=ME)
    assert bounds.keys() == set(places)
    assert [bounds[name, number] for number in (0, 1)] == [world.control.bounds(name, number) for number in (0, 1)]
    assert isinstance(bounds[name, 2], UnknownTopic)
    assert isinstance(bounds["no-such-topic", 0], UnknownTopic)
    assert world.control.bounds_of([], broker=ME) == {}
    with pytest.raises(BrokerUnavailable):
        world.control.bounds_of(places, broker=BrokerId(77))


def test_open_transactions_are_listed_with_their_producers_in_the_order_of_their_starts(
    world: World, name: str
) -> None:
    def transactions(partition: int = 0) -> list[tuple[int, int, int]]:
        answer = world.control.open_transactions(name, partition, broker=ME)
        return [(one.producer_id, one.producer_epoch, one.start) for one in answer]

    for partition, records in ((0, 5), (1, 1)):
        world.append(name, partition, records)
    assert transactions() == [], "a producer without a transaction has none open"
    one = world.write("one", name, 0, 3)
    two = world.write("two", name, 0, 2)
    assert world.write("one", name, 0, 2) == one
    assert one != two
    assert transactions() == [(one, 0, 5), (two, 0, 8)]
    assert transactions(1) == []
    assert world.control.bounds(name, 0).last_stable_offset == 5
    world.end("one")
    eventually(lambda: transactions() == [(two, 0, 8)])
    eventually(lambda: world.control.bounds(name, 0).last_stable_offset == 8)
    world.end("two")
    eventually(lambda: transactions() == [])


def test_an_epoch_the_broker_has_not_heard_of_is_not_answered(world: World, name: str) -> None:
    with pytest.raises(BrokerUnavailable):
        world.control.bounds(name, 0, broker=ME, epoch=LeaderEpoch(1))


def test_deleting_never_goes_back(world: World, name: str) -> None:
    world.append(name, 0, 30)
    world.control.delete_records_on(ME, name, 0, Offset(20))
    assert world.control.delete_records_on(ME, name, 0, Offset(10)) == 20
    assert world.control.bounds(name, 0).local_start == 20


def test_deleting_past_the_end_deletes_nothing_and_names_the_range(world: World, name: str) -> None:
    world.append(name, 0, 30)
    with pytest.raises(OffsetOutOfRange) as raised:
        world.control.delete_records_on(ME, name, 0, Offset(31))
    assert (raised.value.valid_start, raised.value.valid_end) == (0, 30)
    assert world.control.bounds(name, 0).local_start == 0


@pytest.mark.parametrize(("before", "timeout"), [(-1, 5.0), (10, 0.0), (10, 5.1)])
def test_deleting_without_an_offset_or_with_a_long_deadline_is_refused(
    world: World, name: str, before: int, timeout: float
) -> None:
    world.append(name, 0, 30)
    with pytest.raises(InvalidRequest):
        world.control.delete_records_on(ME, name, 0, Offset(before), timeout)
    assert world.control.bounds(name, 0).local_start == 0


def test_deleting_on_a_broker_that_is_not_there_is_not_sent_to_another(world: World, name: str) -> None:
    world.append(name, 0, 30)
    with pytest.raises(BrokerUnavailable):
        world.control.delete_records_on(BrokerId(2), name, 0, Offset(10))
    assert world.control.bounds(name, 0).local_start == 0


def test_records_of_a_compacted_topic_are_not_deleted(world: World, topic_name: str) -> None:
    world.create(topic_name, 1, {"cleanup.policy": "compact"})
    with pytest.raises(NotTiered):
        world.control.delete_records_on(ME, topic_name, 0, Offset(0))


def test_the_positions_of_all_groups_are_read(world: World, name: str) -> None:
    world.commit(f"{name}-fast", name, 0, 20)
    world.commit(f"{name}-slow", name, 0, 5)
    world.commit(f"{name}-elsewhere", name, 1, 1)
    groups = world.control.groups(name)
    assert groups.why_incomplete() is None
    assert groups.positions == (
        GroupPosition(f"{name}-elsewhere", 1, Offset(1)),
        GroupPosition(f"{name}-fast", 0, Offset(20)),
        GroupPosition(f"{name}-slow", 0, Offset(5)),
    )


def test_groups_of_many_topics_are_those_of_each(world: World, topic_name: str, name: str) -> None:
    world.create(f"{topic_name}-2", 1, {})
    world.commit(f"{name}-both", name, 0, 20)
    world.commit(f"{name}-both", f"{topic_name}-2", 0, 7)
    world.commit(f"{name}-one", name, 1, 5)
    topics = [name, f"{topic_name}-2", "no-such-topic"]
    groups = world.control.groups_of(topics)
    assert groups == {topic: world.control.groups(topic) for topic in topics}
    assert [(place.group, place.committed) for place in groups[f"{topic_name}-2"].positions] == [(f"{name}-both", 7)]


def test_a_member_without_a_commit_has_a_position_without_an_offset(world: World, name: str) -> None:
    world.commit(f"{name}-slow", name, 0, 0)
    world.join(f"{name}-new", name)
    world.commit(f"{name}-other", name, 1, 3)
    groups = world.control.groups(name)
    for partition in (0, 1):
        assert GroupPosition(f"{name}-new", partition, None) in groups.positions


def test_the_twin_moves_leaders_fences_old_epochs_and_loses_answers() -> None:
    twin = MemoryBroker(brokers=(1, 2))
    twin.create_topic("t")
    twin.append("t", 0, 10)
    twin.lose_answers()
    with pytest.raises(TimedOut):
        twin.delete_records_on(ME, "t", 0, Offset(4))
    assert twin.bounds("t", 0).local_start == 4
    twin.elect("t", 0, 2)
    with pytest.raises(Fenced):
        twin.delete_records_on(ME, "t", 0, Offset(5))
    with pytest.raises(Fenced):
        twin.bounds("t", 0, epoch=LeaderEpoch(0))
    with pytest.raises(BrokerUnavailable):
        twin.bounds("t", 0, broker=ME)
    twin.open_transaction("t", 0, Offset(7))
    twin.hide_groups("a broker was down")
    assert twin.bounds("t", 0, broker=BrokerId(2)).last_stable_offset == 7
    assert twin.groups("t").why_incomplete() == "a broker was down"


def test_the_twin_hides_topics_and_has_brokers_that_are_behind() -> None:
    twin = MemoryBroker(brokers=(1, 2))
    topic_id = twin.create_topic("t")
    twin.hide_topics("t")
    with pytest.raises(AccessDenied):
        twin.topic_exists(topic_id, broker=ME)
    assert (twin.may_describe(["t"], broker=ME), twin.may_describe(["u"], broker=ME)) == (False, True)
    twin.hide_topics(others=True)
    assert not twin.may_describe(["u"], broker=ME)
    twin.remember_topic(2, topic_id)
    twin.delete_topic("t")
    assert not twin.topic_exists(topic_id, broker=ME)
    assert twin.topic_exists(topic_id, broker=BrokerId(2))
    twin.catch_up_metadata()
    assert not twin.topic_exists(topic_id, broker=BrokerId(2))
