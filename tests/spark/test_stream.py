"""The micro-batches of a stream: the reader as Spark drives it, on a real broker and a real store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.spark.conftest import Orders, record
from tests.spark.tiers import Tiers
from tierstate.spark.options import parse_stream_options
from tierstate.spark.stream import StreamReader
from tierstate.spark.stream_offsets import Json, shares
from tierstate.state.errors import InvalidRequest, OffsetOutOfRange, UnknownTopic

pytestmark = pytest.mark.kafka
Open = Callable[..., StreamReader]
Places = list[tuple[str, int, int]]


@pytest.fixture
def opened(tiers: Tiers) -> Iterator[Open]:
    """Return a reader with these options; calls that Spark may omit are made here, to leave nothing behind."""
    readers = []

    def open_(**options: str) -> StreamReader:
        readers.append(StreamReader(parse_stream_options(tiers.options(**options))))
        return readers[-1]

    yield open_
    for reader in readers:
        reader.stop()


def next_batch(reader: StreamReader, start: Json) -> Json:
    """Return the end of the batch, as Spark asks for it: by the options."""
    return through_json(reader.latestOffset(start, reader.getDefaultReadLimit()))


def through_json(offsets: Json) -> Json:
    decoded: Json = json.loads(json.dumps(offsets))
    return decoded


def read(reader: StreamReader, start: Json, end: Json) -> Places:
    """Return topic, partition and offset of every record."""
    places: Places = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            rows = zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
            places += [(str(topic), int(number), int(offset)) for topic, number, offset in rows]
    return sorted(places)


def offsets(found: Json, topic: str) -> dict[str, int]:
    return found[topic]


def new_topic(tiers: Tiers, what: str, counts: list[int]) -> str:
    name = tiers.create(f"stream-{what}-{os.getpid()}", len(counts))
    for partition, count in enumerate(counts):
        tiers.produce(name, partition, [record(number) for number in range(count)])
    return name


def test_a_stream_without_a_checkpoint_begins_where_its_options_say(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "start", [30, 0])
    for option_value, expected in (
        ("earliest", {"0": 0, "1": 0}),
        ("latest", {"0": 30, "1": 0}),
        (json.dumps({name: {"0": 7, "1": -1}}), {"0": 7, "1": 0}),
    ):
        assert offsets(opened(subscribe=name, startingOffsets=option_value).initialOffset(), name) == expected
    assert offsets(opened(subscribe=name).initialOffset(), name) == {"0": 30, "1": 0}  # as Spark's Kafka source


def test_a_stream_that_begins_at_the_end_loses_nothing_when_its_first_batch_is_repeated(
    opened: Open, tiers: Tiers
) -> None:
    """Spark then asks for the start again: the end has moved on, and the records since are still to be read."""
    name = new_topic(tiers, "from-the-end", [10])
    first = opened(subscribe=name)
    begun = first.initialOffset()
    tiers.produce(name, 0, [record(number) for number in range(5)])
    end = next_batch(first, begun)
    assert read(first, begun, end) == []
    tiers.produce(name, 0, [record(number) for number in range(5)])
    again = opened(subscribe=name)
    assert read(again, again.initialOffset(), end) == []
    assert read(again, end, next_batch(again, end)) == [(name, 0, offset) for offset in range(10, 20)]


def test_offsets_of_a_batch_are_shared_by_what_is_left_and_none_starves(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "shared", [90, 10, 0, 900])
    reader = opened(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    start, batches = reader.initialOffset(), []
    assert offsets(next_batch(reader, start), name) == {"0": 9, "1": 1, "2": 0, "3": 90}
    while (end := next_batch(reader, start)) != start:
        batches.append(read(reader, start, end))
        start = end
    assert all(len(batch) <= 103 for batch in batches)  # rounded up to 1, as Kafka's
    assert sorted(place for batch in batches for place in batch) == [
        (name, partition, offset) for partition, count in enumerate([90, 10, 0, 900]) for offset in range(count)
    ]


def test_a_share_that_rounds_to_nothing_is_one() -> None:
    """The shares are proportional, as in `KafkaMicroBatchStream.rateLimit`."""
    left = {("t", 0): 1000, ("t", 1): 1, ("t", 2): 0}
    assert shares(left, 10) == {("t", 0): 9, ("t", 1): 1, ("t", 2): 0}


def test_spark_may_ask_for_everything_whatever_the_limits(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "everything", [50])
    reader = opened(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="1", maxBytesPerTrigger="1")
    assert offsets(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()), name) == {"0": 50}


def test_a_batch_waits_for_enough_offsets_or_for_its_delay(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "waits", [5])
    options = {"subscribe": name, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    reader = opened(**options)
    first = next_batch(reader, reader.initialOffset())
    assert offsets(first, name) == {"0": 5}  # the first waits for nothing, as Kafka's
    tiers.produce(name, 0, [record(number) for number in range(9)])
    assert next_batch(reader, first) == first
    impatient = opened(**options, maxTriggerDelay="0")
    impatient.initialOffset()
    assert [offsets(next_batch(impatient, first), name) for _ in range(2)] == [{"0": 14}] * 2
    ending = opened(**options, maxOffsetsPerTrigger="10")
    ending.prepareForTriggerAvailableNow()
    assert offsets(ten := next_batch(ending, ending.initialOffset()), name) == {"0": 10}
    assert offsets(next_batch(ending, ten), name) == {"0": 14}  # the last four of a query that is to end
    tiers.produce(name, 0, [record(0)])
    assert offsets(next_batch(reader, first), name) == {"0": 15}


def test_bytes_of_a_batch_are_those_of_its_segments(opened: Open, tiers: Tiers, orders: Orders) -> None:
    """Sizes come from the tier-state topic; local offsets count as large as remote ones."""
    reader = opened(assign=json.dumps({orders.name: [0]}), startingOffsets="earliest", maxBytesPerTrigger="16KiB")
    start, sizes, places = reader.initialOffset(), [], []
    while (end := next_batch(reader, start)) != start:
        batch = read(reader, start, end)
        places += batch
        sizes.append(len(batch))
        start = end
    assert [(partition, offset) for _, partition, offset in places] == [each[3:5] for each in orders.of(0)]
    assert 3 <= len(sizes) <= 6
    assert max(sizes[:-1]) < 2 * min(sizes[:-1])


def test_a_stream_that_is_to_end_ends_at_what_was_there_when_it_began(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "available-now", [40, 20])
    reader = opened(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="25")
    reader.prepareForTriggerAvailableNow()
    tiers.produce(name, 0, [record(number) for number in range(40)])
    tiers.admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
    start = reader.initialOffset()
    while (end := next_batch(reader, start)) != start:
        start = end
    assert {number: offset for number, offset in offsets(start, name).items() if offset} == {"0": 40, "1": 20}


def test_a_small_batch_is_one_task_unless_more_are_asked_for(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "tasks", [40, 20, 30])
    for options, tasks in (({}, 1), ({"minPartitions": "1"}, 3)):
        reader = opened(subscribe=name, startingOffsets="earliest", **options)
        start = reader.initialOffset()
        assert len(reader.partitions(start, next_batch(reader, start))) == tasks


def test_a_new_partition_is_read_from_its_start(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "more-partitions", [10])
    reader = opened(subscribe=name, startingOffsets="earliest")
    start = next_batch(reader, reader.initialOffset())
    tiers.admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    tiers.produce(name, 1, [record(number) for number in range(10)])
    later = opened(subscribe=name)  # by default from the end; new partitions are exempt
    while "1" not in offsets(end := next_batch(later, start), name):
        pass  # another broker may know it later
    assert read(later, start, end) == [(name, 1, offset) for offset in range(10)]
    while "1" not in offsets(end := next_batch(reader, start), name):
        pass
    assert read(reader, start, end) == [(name, 1, offset) for offset in range(10)]


def test_a_repeated_batch_has_the_same_records_after_a_trim(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "repeated", [400])
    first = opened(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="250")
    start = first.initialOffset()
    end = next_batch(first, start)
    records = read(first, start, end)
    tiers.copy(name, 0)
    tiers.trim(name, 0, 200)
    tiers.produce(name, 0, [record(number) for number in range(100)])
    assert read(opened(subscribe=name), start, end) == records == [(name, 0, offset) for offset in range(250)]


def test_a_batch_that_was_planned_on_the_broker_is_read_although_it_is_trimmed_before_it_is_read(
    opened: Open, tiers: Tiers
) -> None:
    name = new_topic(tiers, "planned", [400])
    reader = opened(subscribe=name, startingOffsets="earliest")
    start = reader.initialOffset()
    end = next_batch(reader, start)
    planned = reader.partitions(start, end)
    tiers.copy(name, 0)
    tiers.trim(name, 0, 200)
    read_ = [offset for each in planned for batch in reader.read(each) for offset in batch.column("offset").to_pylist()]
    assert read_ == list(range(400))


def test_records_that_are_gone_fail_the_stream_unless_that_is_forgiven(opened: Open, tiers: Tiers) -> None:
    name = new_topic(tiers, "gone", [100])
    start: Json = {name: {"0": 20}}
    tiers.trim(name, 0, 50)  # never copied
    with pytest.raises(OffsetOutOfRange, match=r"failOnDataLoss=false.*offset=20 valid_start=50 "):
        next_batch(opened(subscribe=name), start)
    forgiving = opened(subscribe=name, failOnDataLoss="false", maxOffsetsPerTrigger="10")
    end = next_batch(forgiving, start)
    assert read(forgiving, start, end) == [(name, 0, offset) for offset in range(50, 60)]
    with pytest.raises(OffsetOutOfRange, match="from the checkpoint"):
        opened(subscribe=name).partitions(start, end)
    with pytest.raises(OffsetOutOfRange, match=r"offset=101 .*valid_end=100"):
        next_batch(opened(subscribe=name), {name: {"0": 101}})


def test_a_topic_that_was_deleted_is_named_with_its_id(opened: Open, tiers: Tiers) -> None:
    name, other = new_topic(tiers, "deleted", [10]), new_topic(tiers, "stays", [10])
    reader = opened(subscribe=f"{name},{other}", startingOffsets="earliest")
    start = reader.initialOffset()
    end = next_batch(reader, start)
    tiers.admin.delete_topics([name])[name].result(30)
    topic_id = next(key for key in start if key.startswith(name + "@")).partition("@")[2]
    with pytest.raises(UnknownTopic, match=f"gone.*topic={name} topic_id={topic_id}"):
        next_batch(opened(subscribe=f"{name},{other}"), start)
    with pytest.raises(UnknownTopic, match=f"topic_id={topic_id}"):
        opened(subscribe=f"{name},{other}").partitions(start, end)
    with pytest.raises(UnknownTopic, match=f"gone, or chosen no more.*topic_id={topic_id}"):
        next_batch(opened(subscribePattern="stream-stays-.*"), start)
    forgiving = opened(subscribe=f"{name},{other}", failOnDataLoss="false")
    assert read(forgiving, start, next_batch(forgiving, start)) == [(other, 0, offset) for offset in range(10)]


def test_a_partition_that_was_away_for_a_forgiven_batch_comes_back_from_its_beginning_as_in_kafkas_source(
    opened: Open, tiers: Tiers
) -> None:
    """Both sources record only the partitions at a batch's end, so the earlier offset is no longer known."""
    name, other = new_topic(tiers, "comes-back", [10]), new_topic(tiers, "was-there", [10])
    both = opened(subscribe=f"{name},{other}", startingOffsets="earliest", failOnDataLoss="false")
    whole = next_batch(both, both.initialOffset())
    tiers.produce(other, 0, [record(number) for number in range(5)])
    without = opened(subscribe=other, failOnDataLoss="false")
    away = next_batch(without, whole)
    assert read(without, whole, away) == [(other, 0, offset) for offset in range(10, 15)]
    assert name not in away
    again = opened(subscribe=f"{name},{other}", failOnDataLoss="false")
    assert read(again, away, next_batch(again, away)) == [(name, 0, offset) for offset in range(10)]
    with pytest.raises(UnknownTopic, match=r"gone, or chosen no more.*failOnDataLoss=false"):
        next_batch(opened(subscribe=other), whole)


def test_a_topic_that_was_created_again_is_not_gone_on_with_and_both_ids_are_named(opened: Open, tiers: Tiers) -> None:
    """Its new log has offsets enough: without the ids in the checkpoint, other records would silently be read."""
    name = new_topic(tiers, "again", [10])
    reader = opened(subscribe=name, startingOffsets="earliest")
    end = next_batch(reader, reader.initialOffset())
    old = next(key for key in end if "@" in key).partition("@")[2]
    tiers.admin.delete_topics([name])[name].result(30)
    tiers.create_again(name)
    tiers.produce(name, 0, [record(number) for number in range(50)])
    new = next(key for key in opened(subscribe=name).initialOffset() if "@" in key).partition("@")[2]
    for ask in (lambda each: next_batch(each, end), lambda each: each.partitions({name: {"0": 0}}, end)):
        with pytest.raises(UnknownTopic, match=f"created again.*topic_id={new} checkpoint_topic_id={old}"):
            ask(opened(subscribe=name))
    forgiving = opened(subscribe=name, failOnDataLoss="false")
    assert read(forgiving, end, next_batch(forgiving, end)) == [(name, 0, offset) for offset in range(50)]


def test_offsets_of_another_kind_of_source_are_refused(opened: Open, orders: Orders) -> None:
    for foreign in ({"index": 7}, {orders.name: {"0": -2}}, {orders.name: {"zero": 1}}):
        with pytest.raises(InvalidRequest, match="the checkpoint is of another source"):
            next_batch(opened(subscribe=orders.name), foreign)  # type: ignore[arg-type]
