"""The promises of the tier-state topic: Kafka's own and the in-memory twin run the same suite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.beheading import alter, cut
from tests.servers.frozen_broker import freeze, thaw
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_reader import KafkaReader
from tierstate.broker.tier_topic import KafkaTierTopic, TierBatch, TierReader, TierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic, look_at_tier_topic, open_tier_topic
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import InvalidRequest, PositionLost, TierStateLost, UnknownOutcome, UnknownTopic
from tierstate.state.facts import TopicMeta
from tierstate.state.keys import TOPIC_META_KEY
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import Anchor, Entry

pytestmark = pytest.mark.kafka
NUMBER = count()


def spec_of(name: str, partitions: int = 2) -> TierTopicSpec:
    return TierTopicSpec(name, partitions, 1)


@pytest.fixture
def name() -> str:
    return f"tier-state-{next(NUMBER)}"


@pytest.fixture(params=["memory", "kafka"])
def topic(request: pytest.FixtureRequest, name: str) -> Iterator[TierTopic]:
    opened: TierTopic
    if request.param == "memory":
        opened = MemoryTierTopic(2)
    else:
        kafka: KafkaSandbox = request.getfixturevalue("kafka")
        properties = {"bootstrap.servers": kafka.bootstrap}
        create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
        opened = open_tier_topic(properties, spec_of(name))
    yield opened
    opened.close()


Beheaded = tuple[TierTopic, Position]
"""A topic whose partition 1 had five records, of which two are left, and its log start."""


@pytest.fixture
def beheaded(topic: TierTopic, name: str, request: pytest.FixtureRequest) -> Beheaded:
    for number in range(5):
        topic.append(1, f"a/0/{number}", b"v")
    if isinstance(topic, MemoryTierTopic):
        topic.cut_head(1, 3)
    else:
        cut(request.getfixturevalue("kafka"), name, 1, 3)
    return topic, Position(3)


Truncated = tuple[TierTopic, Position, int]
"""A topic with two records of a newer epoch in partition 0, the end of the epoch before, and that epoch."""


@pytest.fixture(params=["memory", "kafka"])
def truncated(request: pytest.FixtureRequest, name: str) -> Iterator[Truncated]:
    """Yield a log that was cut and has grown again, with a follower's position and epoch on the lost branch."""
    if request.param == "memory":
        memory = MemoryTierTopic(1)
        memory.append(0, "a/0/old", b"v"), memory.append(0, "a/0/lost", b"v")
        memory.truncate(0, 1)
        memory.append(0, "a/0/new-0", b"v"), memory.append(0, "a/0/new-1", b"v")
        yield memory, Position(1), 0
        return
    with KafkaSandbox() as sandbox:
        properties = {"bootstrap.servers": sandbox.bootstrap}
        create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
        topic = open_tier_topic(properties, spec_of(name))
        epoch = batches(topic.reader({0: Position(0)}), 1)[-1].epoch
        end = topic.end(0)
        sandbox.kill(0)
        sandbox.start(0)  # the same broker leads again, in a new epoch that begins at this end
        topic.append(0, "a/0/new-0", b"v"), topic.append(0, "a/0/new-1", b"v")
        yield topic, end, epoch
        topic.close()


def read(reader: TierReader, wanted: int) -> list[Entry]:
    """Return at least ``wanted`` entries, which must come within half a minute."""
    entries: list[Entry] = []
    for _ in range(300):
        for batch in reader.poll(0.1):
            entries += batch.entries
        if len(entries) >= wanted:
            return entries
    pytest.fail(f"{len(entries)} of {wanted} entries came")


def test_an_entry_is_read_at_the_position_that_its_append_returned(topic: TierTopic) -> None:
    position = topic.append(1, "a/0/x", b"\x00one")
    reader = topic.reader({1: Position(0)})
    entries = read(reader, 1)
    reader.close()
    assert entries == [Entry("a/0/x", position, b"\x00one")]


def test_a_tombstone_is_an_entry_without_a_value(topic: TierTopic) -> None:
    topic.append(1, "a/0/x", b"one")
    position = topic.append(1, "a/0/x", None)
    reader = topic.reader({1: Position(0)})
    assert read(reader, 2)[1] == Entry("a/0/x", position, None)
    reader.close()


def test_a_reader_begins_at_its_position_and_reports_the_one_after_each_batch(topic: TierTopic) -> None:
    positions = [topic.append(1, f"a/0/{n}", b"v") for n in range(5)]
    reader = topic.reader({1: positions[3]})
    following = Position(-1)
    entries: list[Entry] = []
    while following <= positions[4]:
        for batch in reader.poll(0.1):
            entries += batch.entries
            following = batch.following
    reader.close()
    assert [entry.position for entry in entries] == positions[3:]
    assert following == topic.end(1)


def test_the_end_counts_every_append_and_partitions_do_not_mix(topic: TierTopic) -> None:
    before = topic.end(0), topic.end(1)
    topic.append(1, "a/0/x", b"v")
    assert (topic.end(0), topic.end(1)) == (before[0], before[1] + 1)
    assert topic.ends([0, 1]) == {0: topic.end(0), 1: topic.end(1)}


def test_ends_leave_out_only_the_partitions_that_do_not_answer(topic: TierTopic) -> None:
    assert topic.ends([1]).keys() == {1}
    if isinstance(topic, KafkaTierTopic):  # the twin has no partition without a leader
        assert topic.ends([1, 7]).keys() == {1}


def test_a_position_past_the_end_is_lost_and_never_reset(topic: TierTopic) -> None:
    topic.append(1, "a/0/x", b"v")
    reader = topic.reader({1: Position(topic.end(1) + 100)})
    with pytest.raises(PositionLost):
        read(reader, 1)
    reader.close()


def batches(reader: TierReader, wanted: int) -> list[TierBatch]:
    """Return batches with at least ``wanted`` entries, which must come within half a minute."""
    received: list[TierBatch] = []
    for _ in range(300):
        received += [batch for batch in reader.poll(0.1) if batch.entries]
        if sum(len(batch.entries) for batch in received) >= wanted:
            reader.close()
            return received
    pytest.fail(f"{received} came, {wanted} entries were wanted")


def test_every_entry_comes_with_the_time_it_was_appended_and_every_batch_with_its_epoch(topic: TierTopic) -> None:
    before = SystemClock().now_ms()
    for number in range(3):
        topic.append(1, f"a/0/{number}", b"v")
    received = batches(topic.reader({1: Position(0)}), 3)
    times = [time for batch in received for time in batch.timestamps]
    assert len(times) == 3
    assert before <= times[0] <= times[1] <= times[2] <= SystemClock().now_ms()
    assert [batch.epoch for batch in received] == [0] * len(received)


def test_a_time_is_found_at_the_first_position_appended_then_or_later(topic: TierTopic) -> None:
    clock = SystemClock()
    topic.append(1, "a/0/x", b"v")
    clock.sleep(0.01)
    middle = clock.now_ms()
    second = topic.append(1, "a/0/y", b"v")
    topic.append(1, "a/0/z", b"v")
    assert topic.position_at(1, TimestampMs(0)) == 0
    assert topic.position_at(1, middle) == second
    assert topic.position_at(1, TimestampMs(clock.now_ms() + 60_000)) == topic.end(1)


def test_an_empty_partition_has_every_time_at_its_end(topic: TierTopic) -> None:
    assert topic.position_at(1, TimestampMs(0)) == topic.end(1) == 0


def test_a_position_of_an_epoch_that_ended_below_it_is_lost_though_the_log_has_grown_again(
    truncated: Truncated,
) -> None:
    topic, end, epoch = truncated
    with pytest.raises(PositionLost, match="truncated"):
        read(topic.reader({0: Position(end + 1)}, {0: epoch}), 1)


def test_a_position_at_the_end_of_its_epoch_goes_on(truncated: Truncated) -> None:
    topic, end, epoch = truncated
    received = batches(topic.reader({0: Position(end)}, {0: epoch}), 2)
    assert [entry.key for batch in received for entry in batch.entries] == ["a/0/new-0", "a/0/new-1"]
    assert received[-1].epoch > epoch


def test_a_partition_begins_at_0_until_its_head_is_cut(beheaded: Beheaded) -> None:
    topic, start = beheaded
    assert topic.starts([0, 1]) == {0: 0, 1: start}
    assert topic.position_at(1, TimestampMs(0)) == start
    (problem,) = topic.problems()
    assert re.match(r"partition 1 of .* begins at 3: its head is gone .*tierstate recover", problem)


def test_a_reader_from_the_beginning_is_refused_once_the_head_is_cut(beheaded: Beheaded) -> None:
    topic, _ = beheaded
    with pytest.raises(TierStateLost, match=r"partition 1 of .* begins at 3: its head is gone .*tierstate recover"):
        topic.reader({0: Position(0), 1: Position(0)})


def test_a_reader_that_lacks_deleted_entries_has_lost_its_position(beheaded: Beheaded) -> None:
    topic, start = beheaded
    with pytest.raises(PositionLost, match="begins above"):
        topic.reader({1: Position(start - 1)})


def test_a_reader_that_has_consumed_all_deleted_entries_reads_on(beheaded: Beheaded) -> None:
    topic, start = beheaded
    entries = read(topic.reader({0: Position(0), 1: start}), 2)
    assert [entry.position for entry in entries if entry.key.startswith("a/0/")] == [3, 4]


def test_a_head_that_is_cut_right_after_it_was_looked_at_is_not_passed_over(kafka: KafkaSandbox, name: str) -> None:
    """Kafka's "beginning" would be the start of what is left (seen in a test)."""
    properties = {"bootstrap.servers": kafka.bootstrap}
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    topic = open_tier_topic(properties, spec_of(name))
    for number in range(5):
        topic.append(1, f"a/0/{number}", b"v")
    cut(kafka, name, 1, 3)
    reader = KafkaReader(properties, name, {1: Position(0)}, {}, lambda partition, epoch: Position(9))
    with pytest.raises(PositionLost):
        read(reader, 1)
    reader.close()
    topic.close()


def test_a_running_reader_of_the_twin_hears_that_its_head_was_cut() -> None:
    topic = MemoryTierTopic(1)
    reader = topic.reader({0: Position(0)})
    for number in range(5):
        topic.append(0, f"a/0/{number}", b"v")
    topic.cut_head(0, 3)
    with pytest.raises(PositionLost, match="below the start"):
        reader.poll(0)


def test_a_running_reader_hears_of_a_truncation_below_it() -> None:
    topic = MemoryTierTopic(1)
    for number in range(4):
        topic.append(0, f"a/0/{number}", b"v")
    reader = topic.reader({0: Position(0)})
    assert len(reader.poll(0)[0].entries) == 4
    topic.truncate(0, 2)
    for number in range(5):
        topic.append(0, f"a/0/new-{number}", b"v")
    with pytest.raises(PositionLost, match="truncated"):
        reader.poll(0)


def test_a_topic_knows_the_number_that_maps_its_keys_and_its_own_identity(topic: TierTopic) -> None:
    assert topic.mapped_partitions == 2
    assert topic.current_topic_id() == topic.topic_id


def test_init_creates_a_safe_topic_and_is_harmless_twice(kafka: KafkaSandbox, name: str) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap}
    assert create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    assert look_at_tier_topic(properties, spec_of(name)).problems == []
    assert not create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    assert open_tier_topic(properties, spec_of(name)).end(0) == 1


def test_a_topic_that_does_not_exist_is_named_with_the_command_that_makes_it(kafka: KafkaSandbox, name: str) -> None:
    with pytest.raises(UnknownTopic, match="tierstate init"):
        open_tier_topic({"bootstrap.servers": kafka.bootstrap}, spec_of(name))


def test_a_topic_whose_configuration_drifted_is_refused_with_what_is_wrong(kafka: KafkaSandbox, name: str) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap}
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    alter(AdminClient(properties), name, "cleanup.policy", "delete")
    with pytest.raises(InvalidRequest, match=r"cleanup\.policy is delete, compact is wanted"):
        open_tier_topic(properties, spec_of(name))


def test_a_topic_whose_cleaners_may_lag_for_ever_is_refused(kafka: KafkaSandbox, name: str) -> None:
    """A replica cleaned long after another one shows values whose tombstones are gone there (decision 0013)."""
    properties = {"bootstrap.servers": kafka.bootstrap}
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    alter(AdminClient(properties), name, "max.compaction.lag.ms", "9" * 15)
    problem = "max.compaction.lag.ms is 999999999999999, at most 604800000 is wanted"
    assert look_at_tier_topic(properties, spec_of(name)).problems == [problem]


def test_a_topic_that_takes_no_fact_of_the_largest_size_is_refused(kafka: KafkaSandbox, name: str) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap}
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    alter(AdminClient(properties), name, "max.message.bytes", "60000")
    assert look_at_tier_topic(properties, spec_of(name)).problems == [
        "max.message.bytes is 60000, at least 131072 is wanted"
    ]
    alter(AdminClient(properties), name, "max.message.bytes", "131072")
    assert look_at_tier_topic(properties, spec_of(name)).problems == []


def test_a_foreign_transaction_that_stays_open_is_a_problem_and_freezes_no_reader(
    kafka: KafkaSandbox, name: str
) -> None:
    properties: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap}
    create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
    topic = open_tier_topic(properties, spec_of(name))
    assert topic.problems() == []
    foreign = Producer({**properties, "transactional.id": name, "log_level": 0})
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(name, b"value", key=b"foreign", partition=1)
    assert foreign.flush(30) == 0
    position = topic.append(1, "some/key", b"x")
    assert topic.problems() == ["a foreign transaction is open in partition 1 from position 0 on"]
    reader = topic.reader({1: Position(0)})
    assert [entry.position for entry in read(reader, 2)] == [0, position]
    reader.close()
    foreign.abort_transaction()
    topic.close()


def test_fewer_partitions_than_map_its_keys_are_refused(kafka: KafkaSandbox, name: str) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap}
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(name, 1, 1, config=spec_of(name).config)])[name].result(30)
    topic = KafkaTierTopic(properties, name, "", 0)
    topic.append(0, TOPIC_META_KEY, encode_fact(TopicMeta(7, "cluster", TimestampMs(1))))
    topic.close()
    with pytest.raises(InvalidRequest, match="7 partitions map its keys, but the topic has only 1"):
        open_tier_topic(properties, spec_of(name, partitions=1))


def test_a_replication_factor_the_cluster_cannot_give_is_refused_by_name(kafka: KafkaSandbox, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Kafka refuses.*set tier_state\.replication_factor"):
        create_tier_topic({"bootstrap.servers": kafka.bootstrap}, TierTopicSpec(name, 1, 3), SystemClock().now_ms())


def test_an_append_without_an_acknowledgement_has_an_unknown_outcome(name: str) -> None:
    with KafkaSandbox() as sandbox:
        properties = {"bootstrap.servers": sandbox.bootstrap}
        create_tier_topic(properties, spec_of(name), SystemClock().now_ms())
        topic = KafkaTierTopic(properties, name, "", 2, append_timeout_s=3.0)
        freeze(sandbox, 0)
        with pytest.raises(UnknownOutcome, match="may or may not have landed"):
            topic.append(0, "a/0/x", b"v")
        thaw(sandbox, 0)
        topic.close()


def test_a_record_is_known_again_by_its_anchor_and_no_other_record_is(topic: TierTopic) -> None:
    first = topic.append(1, "a/0/x", b"one")
    for value in (b"two", b"", None):
        topic.append(1, "a/0/x", value)
    reader, following = topic.reader({1: Position(0)}), topic.end(1)
    marks: dict[Position, Anchor | None] = {}
    while Position(following - 1) not in marks:
        for batch in reader.poll(0.1):
            marks |= {entry.position: batch.anchor(Position(entry.position + 1)) for entry in batch.entries}
    reader.close()
    assert [topic.anchor_at(1, Position(at)) for at in range(first, following)] == [marks[at] for at in sorted(marks)]
    assert len({mark.sha256 for mark in marks.values() if mark}) == 4


def test_where_no_record_is_there_is_no_anchor(topic: TierTopic) -> None:
    topic.append(1, "a/0/x", b"one")
    assert topic.anchor_at(1, topic.end(1)) is None
    assert topic.anchor_at(1, Position(topic.end(1) + 100)) is None
