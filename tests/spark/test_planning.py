"""Few Spark partitions of even size; and a plan is read as planned, or not at all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from tests.spark.conftest import Orders
from tests.spark.tiers import Tiers
from tierstate.fetch.plan import Groups, PlannedPart, PlannedRange, PlannedSplit
from tierstate.fetch.planned_split import SplitWriter
from tierstate.log.decode import record_schema
from tierstate.spark.batch import BATCH_BYTES, BatchReader, SplitGroup, sliced
from tierstate.spark.columns import chosen_columns, spark_schema
from tierstate.spark.options import parse_options
from tierstate.spark.planning import group_counts, grouped, groups_for
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import PlannedRangeLost
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation

MIB = 1024 * 1024


OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "127.0.0.1:9", "tierstate.store": "file:///store", "subscribe": "orders"}
)


def of_bytes(size: int, partition: int = 0) -> PlannedRange:
    """Return a range of ``size`` offsets of one byte each."""
    part = PlannedPart(OffsetRange(Offset(0), Offset(size - 1)), None)
    return PlannedRange(replace(split(0), partition=partition, end=Offset(size), parts=(part,)), 1.0)


@pytest.mark.parametrize(
    ("total", "slots", "count"),
    [(10_000 * MIB, 2, 80), (544 * MIB, 2, 6), (100 * MIB, 2, 2), (1 * MIB, 8, 1), (0, 2, 0)],
)
def test_partitions_are_few_and_keep_all_slots_busy(total: int, slots: int, count: int) -> None:
    assert groups_for(total, 128 * MIB, slots) == count


@given(st.lists(st.integers(1, 300), max_size=30), st.integers(1, 20), st.integers(50, 500))
def test_groups_have_one_partition_of_kafka_each_and_none_is_too_large(
    sizes: list[int], least: int, largest: int
) -> None:
    options = replace(OPTIONS, min_partitions=least, split_bytes=largest)
    groups = list(grouped(options, [of_bytes(size, number) for number, size in enumerate(sizes)]))
    assert all(len({each.partition for each in group}) == 1 for group in groups)
    assert all(sum(each.end - each.start for each in group) <= largest for group in groups)
    for number, size in enumerate(sizes):
        offsets = [
            offset
            for group in groups
            for each in group
            if each.partition == number
            for offset in range(each.start, each.end)
        ]
        assert offsets == list(range(size))


def test_small_ranges_of_a_stream_share_a_task() -> None:
    ranges = [of_bytes(size, number) for number, size in enumerate([30, 40, 50, 200, 5, 6])]
    groups = grouped(OPTIONS, ranges, together=100)
    assert [[each.partition for each in group] for group in groups] == [[0, 1], [2], [3], [4, 5]]


@pytest.mark.parametrize(
    ("sizes", "least", "counts"),
    [
        ([300] * 5, 1, [1] * 5),
        ([300] * 5, 7, [1] * 5),
        ([300] * 5, 10, [2] * 5),
        ([300, 10, 1], 6, [4, 1, 1]),
        ([], 3, []),
    ],
)
def test_large_ranges_are_divided_as_by_kafkas_source(sizes: list[int], least: int, counts: list[int]) -> None:
    """`tests/spark/test_beside_kafkas_source.py` compares the numbers of tasks with those of Spark's source."""
    assert group_counts(sizes, least) == counts


def split(start: int) -> PlannedSplit:
    end = Offset(start + 10)
    part = PlannedPart(OffsetRange(Offset(start), Offset(end - 1)), None)
    return PlannedSplit(
        "orders", TopicId("A" * 22), 0, Offset(start), end, Isolation.READ_UNCOMMITTED, LeaderEpoch(0), (part,)
    )


def test_a_range_is_cut_where_groups_end_and_nothing_is_lost() -> None:
    parts = tuple(PlannedPart(OffsetRange(Offset(at), Offset(at + 9)), None) for at in range(0, 70, 10))
    ranges = [PlannedRange(replace(split(0), end=Offset(70), parts=parts), 1.0) for _ in range(2)]
    cuts = Groups(target=46, largest=60)
    cut_ranges = [(each.start, each.end, begins) for whole in ranges for each, begins in whole.cut(cuts)]
    assert cut_ranges == [(0, 50, True), (50, 70, True), (0, 20, False), (20, 70, True)]


def test_large_batches_are_cut_to_what_spark_likes() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 1000] * 10_000)})
    pieces = list(sliced(batch))
    assert all(piece.nbytes <= BATCH_BYTES * 1.1 for piece in pieces)
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([batch]))


def test_a_partition_of_nothing_reads_nothing() -> None:
    assert list(BatchReader(OPTIONS).read(InputPartition(None))) == []


Rows = list[tuple[int, bytes]]


@pytest.fixture
def planned_locally(tiers: Tiers, topic_name: str) -> Callable[..., tuple[str, BatchReader, list[Any], Rows]]:
    """Return a plan of a topic whose offsets are all still local, pickled and back as on its way to an executor."""

    def make(copied: bool) -> tuple[str, BatchReader, list[Any], Rows]:
        name = tiers.create(f"{topic_name[-60:]}-{os.getpid()}")
        tiers.produce(name, 0, [{"value": os.urandom(100)} for _ in range(300)])
        if copied:
            tiers.copy(name, 0)
        option_values = tiers.options(
            subscribe=name,
            tierstate__tier="local",
            columns="offset,value",
            endingOffsets=f'{{"{name}":{{"0":200}}}}',
        )
        reader = BatchReader(parse_options(option_values))
        planned = reader.partitions()
        expected = [(record[4], record[1]) for record in tiers.consumed(name)][:200]
        return name, *pickle.loads(pickle.dumps((reader, planned))), expected

    return make


def read(reader: BatchReader, planned: list[InputPartition]) -> Rows:
    records = []
    for partition in planned:
        for batch in reader.read(partition):
            assert batch.schema.equals(record_schema(columns=("offset", "value")))
            records += list(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return records


Planned = Callable[..., tuple[str, BatchReader, list[Any], Rows]]


@pytest.mark.kafka
def test_many_small_partitions_have_every_record_once(tiers: Tiers, orders: Orders) -> None:
    options = tiers.options(subscribe=orders.name, minPartitions="9", columns="offset,value")
    reader = BatchReader(parse_options(options))
    planned = reader.partitions()
    assert len(planned) >= 9
    assert read(reader, planned) == [(record[4], record[1]) for record in orders.uncommitted]


@pytest.mark.kafka
def test_a_repeated_task_reads_the_same_again(planned_locally: Planned) -> None:
    _, reader, planned, expected = planned_locally(copied=False)
    assert read(reader, planned) == expected
    assert read(reader, planned) == expected


@pytest.mark.kafka
def test_records_trimmed_after_planning_are_read_from_the_remote_tier(tiers: Tiers, planned_locally: Planned) -> None:
    name, reader, planned, expected = planned_locally(copied=True)
    assert all(part.segment is None for group in planned for each in group.splits for part in each.parts)
    tiers.trim(name, 0, 250)
    assert read(reader, planned) == expected


@pytest.mark.kafka
def test_records_deleted_after_planning_are_an_error_that_names_the_range(
    tiers: Tiers, planned_locally: Planned
) -> None:
    name, reader, planned, _ = planned_locally(copied=False)
    tiers.trim(name, 0, 250)
    with pytest.raises(PlannedRangeLost, match=rf"partition={name}-0 start=0 end=200"):
        read(reader, planned)


@pytest.mark.kafka
def test_records_of_a_later_epoch_are_not_the_planned_ones(tiers: Tiers, planned_locally: Planned) -> None:
    name, reader, planned, _ = planned_locally(copied=True)
    tiers.trim(name, 0, 250)
    earlier = replace(planned[0].splits[0], leader_epoch=LeaderEpoch(-1))
    with pytest.raises(PlannedRangeLost, match="written again under leader epoch 0"):
        read(reader, [SplitGroup(SplitWriter().packed([earlier]))])


@pytest.mark.kafka
def test_a_topic_created_again_is_not_the_one_that_was_planned(tiers: Tiers, planned_locally: Planned) -> None:
    name, reader, planned, _ = planned_locally(copied=False)
    tiers.admin.delete_topics([name])[name].result(30)
    tiers.create_again(name)
    tiers.produce(name, 0, [{"value": b"another"} for _ in range(300)])
    with pytest.raises(PlannedRangeLost, match="start=0 end=200"):
        read(reader, planned)


def test_split_groups_travel() -> None:
    group = pickle.loads(pickle.dumps(SplitGroup(SplitWriter().packed([split(0), split(10)]))))
    assert group.splits == (split(0), split(10))


def test_decoded_columns_are_the_declared_ones() -> None:
    columns = chosen_columns(None, include_headers=True)
    assert to_arrow_schema(spark_schema(columns), timezone="UTC").equals(record_schema(columns=columns))
