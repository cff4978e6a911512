"""The digest that Spark computes in its executors is the one that proof.md defines."""

from __future__ import annotations

import hashlib
import struct

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Orders
from tests.spark.tiers import Record, Tiers
from tierstate.log.decode import record_schema
from tierstate.spark.digest import DigestRange, digest_ranges, digest_via_spark, runs
from tierstate.state.errors import InvalidRequest


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def digest_of(records: list[Record]) -> tuple[int, str]:
    """Compute the digest straight from its definition."""
    digest = hashlib.sha256()
    for key, value, _, _, offset, timestamp, kind, headers in records:
        digest.update(struct.pack(">qqb", offset, timestamp, kind) + sized(key) + sized(value))
        digest.update(struct.pack(">i", len(headers or ())))
        for name, header in headers or ():
            digest.update(sized(name.encode()) + sized(header))
    return len(records), digest.hexdigest()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
def test_spark_digests_what_a_consumer_saw_range_by_range(spark: SparkSession, tiers: Tiers, orders: Orders) -> None:
    ranges = [
        DigestRange(orders.name, 0, 0, 120),
        DigestRange(orders.name, 0, 120, 300),
        DigestRange(orders.name, 0, 0, 500),
        DigestRange(orders.name, 1, 240, 260),
        DigestRange(orders.name, 1, 7, 7),
    ]
    digests = digest_via_spark(tiers.options(isolation="read_uncommitted"), ranges, session=spark)
    assert digests == {each: digest_of(orders.of(each.partition, each.start, each.end)) for each in ranges}


def batch(*records: tuple[str, int, int]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*records, strict=True)
    return pa.record_batch(
        {"topic": list(topics), "partition": pa.array(partitions, pa.int32()), "offset": list(offsets)}
    )


def test_a_batch_of_several_partitions_is_split() -> None:
    mixed = batch(("a", 0, 5), ("a", 0, 6), ("a", 1, 0), ("b", 0, 0), ("b", 0, 9))
    assert [(topic, number, part.num_rows) for topic, number, part in runs(mixed)] == [
        ("a", 0, 2),
        ("a", 1, 1),
        ("b", 0, 2),
    ]


def test_an_offset_that_comes_twice_is_no_digest() -> None:
    schema = record_schema()
    row = {"topic": "a", "partition": 0, "offset": 5, "timestamp": 0, "timestampType": 0}
    once = pa.RecordBatch.from_pylist([row], schema=schema)
    with pytest.raises(InvalidRequest, match="not in offset order"):
        list(digest_ranges([DigestRange("a", 0, 0, 10)], [once, once]))


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a range begins at or before its end"):
        digest_via_spark({}, [DigestRange("a", 0, 5, 4)])
