"""Spark through a gateway: the same rows, and neither driver nor executor has a key to the bucket or a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Orders, rows_of
from tests.spark.gateways import PlanningGateway, planning_gateway
from tests.spark.tiers import Tiers
from tierstate.state.ids import TopicIdPartition

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def gateway(tiers: Tiers) -> Iterator[PlanningGateway]:
    with planning_gateway(tiers) as opened:
        yield opened


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("tier", ["prefer-remote", "auto"])
def test_rows_are_those_of_both_tiers(
    spark: SparkSession, orders: Orders, gateway: PlanningGateway, isolation: str, tier: str
) -> None:
    options = {"tierstate.gateway": gateway.url, "subscribe": orders.name, "includeHeaders": "true"}
    frame = spark.read.format("tierstate").options(**options, isolation=isolation).option("tierstate.tier", tier).load()
    assert rows_of(frame) == (orders.committed if isolation == "read_committed" else orders.uncommitted)


def test_a_query_keeps_what_it_reads_by_a_lease_of_its_own(
    spark: SparkSession, orders: Orders, gateway: PlanningGateway
) -> None:
    options = {"tierstate.gateway": gateway.url, "subscribe": orders.name, "tierstate.lease": "77s"}
    assert spark.read.format("tierstate").options(**options).load().count() == len(orders.uncommitted)
    topic = next(each.topic_id for each in gateway.view.partitions())
    holders = {
        lease.holder
        for each in gateway.view.partitions()
        for lease in gateway.view.partition(TopicIdPartition(each.topic_id, each.partition)).leases
    }
    assert topic is not None
    assert any(holder.startswith("gateway plan ") and "-77 of anybody" in holder for holder in holders), holders


def test_times_and_offsets_mean_the_same(spark: SparkSession, orders: Orders, gateway: PlanningGateway) -> None:
    where = {"tierstate.gateway": gateway.url, "subscribe": orders.name, "includeHeaders": "true"}
    ranges = f'{{"{orders.name}":{{"0":7,"1":-2}}}}', f'{{"{orders.name}":{{"0":255,"1":3}}}}'
    frame = spark.read.format("tierstate").options(**where, startingOffsets=ranges[0], endingOffsets=ranges[1]).load()
    assert rows_of(frame) == [*orders.of(0, 7, 255), *orders.of(1, 0, 3)]
