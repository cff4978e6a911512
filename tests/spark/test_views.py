"""A DataFrame and a view show records that come, and no records that go, after they were made."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.docs.blocks import executed
from tests.docs.page_shell import replaced
from tests.spark.conftest import record
from tests.spark.tiers import NOW, Tiers
from tierstate.state.facts import LogStartAdvanced
from tierstate.state.offsets import Offset

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
(VIEW,) = executed("docs/spark.md", __file__)


@pytest.fixture(autouse=True)
def _dropped(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql("DROP VIEW IF EXISTS orders")
    spark.sql("DROP TABLE IF EXISTS records")


def produced(tiers: Tiers, what: str, count: int) -> str:
    name = tiers.create(f"spark-{what}-{os.getpid()}")
    tiers.produce(name, 0, [record(number) for number in range(count)])
    return name


def test_a_frame_is_a_snapshot_and_the_view_of_the_page_is_read_again_in_each_query(
    spark: SparkSession, tiers: Tiers
) -> None:
    name = produced(tiers, "view", 30)
    texts = {
        "127.0.0.1:9092": tiers.kafka.bootstrap,
        "s3://bucket/prefix": tiers.folder.as_uri(),
        "subscribe = 'orders'": f"subscribe = '{name}', `tierstate.tier_state_topic` = '{tiers.tier_state_topic}'",
    }
    exec(replaced(VIEW.code, texts), {"spark": spark})
    frame = spark.read.format("tierstate").options(**tiers.options(subscribe=name)).load()
    frame.createOrReplaceTempView("pinned")
    counts = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM pinned)"
    assert spark.sql(counts).first() == (30, 30)
    tiers.produce(name, 0, [record(number) for number in range(10)])
    assert spark.sql(counts).first() == (40, 30)
    assert (spark.table("orders").count(), frame.count()) == (40, 30)


def test_a_frame_still_returns_remote_records_that_were_deleted_after_it_was_planned(
    spark: SparkSession, tiers: Tiers
) -> None:
    name = produced(tiers, "deleted", 300)
    term, place = (segment := tiers.copy(name, 0)[0]).term, segment.partition

    frame = spark.read.format("tierstate").options(**tiers.options(subscribe=name)).load()
    assert frame.count() == 300
    tiers.say(LogStartAdvanced(place, Offset(200), term, 0, "deleted", NOW))
    tiers.trim(name, 0, 200)
    assert frame.count() == 300
    again = spark.read.format("tierstate").options(**tiers.options(subscribe=name)).load()
    assert again.count() == 100


@pytest.mark.parametrize(
    "table",
    [
        "records USING tierstate OPTIONS (subscribe 'orders')",
        "records (value binary) USING tierstate OPTIONS (subscribe 'orders')",
        "records USING tierstate TBLPROPERTIES ('subscribe'='orders')",
    ],
)
def test_a_table_whose_options_spark_keeps_to_itself_is_refused_with_the_way_out(
    spark: SparkSession, table: str
) -> None:
    def create_and_read() -> None:
        spark.sql(f"CREATE TABLE {table}")
        spark.sql("SELECT * FROM records").collect()

    with pytest.raises(PySparkException, match=r"write them into the query or a view, as SELECT \* FROM"):
        create_and_read()
