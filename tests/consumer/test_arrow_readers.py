"""pyarrow, pandas, Polars and DuckDB read a topic of both tiers as an Arrow stream, without code of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.consumer.tiered_cluster import TieredCluster
from tierstate import connect
from tierstate.consumer.connect import Topic
from tierstate.consumer.reads import Read
from tierstate.log.decode import record_schema

pytestmark = pytest.mark.kafka
RECORDS = 400
CITIES = ("Bern", "Genève", "Zürich")
AMOUNTS = {city: sum(range(first, RECORDS, 3)) for first, city in enumerate(CITIES)}
KNOWN = record_schema().names


def in_pyarrow(read: Read) -> pa.Table:
    return pa.table(read)


def in_pandas(read: Read) -> pa.Table:
    """Read by pyarrow: the first pandas that takes a stream by itself is 3.0."""
    return pa.Table.from_pandas(pa.table(read).to_pandas(), read.schema, preserve_index=False)


def in_polars(read: Read) -> pa.Table:
    return pl.DataFrame(read).to_arrow().cast(read.schema)


def in_duckdb(read: Read) -> pa.Table:
    relation = duckdb.sql("FROM read")
    assert relation is not None
    return relation.to_arrow_table().cast(read.schema)


READERS = {name: reader for name, reader in list(globals().items()) if name.startswith("in_")}
Take = Callable[[Read], pa.Table]


@pytest.fixture(scope="module")
def orders(cluster: TieredCluster) -> Iterator[Topic]:
    """Yield a topic of JSON values in two tiers."""
    name = cluster.topic("orders", 0)
    producer = Producer({**cluster.kafka.client_config, "batch.num.messages": 20, "enable.idempotence": True})
    for number in range(RECORDS):
        order = {"city": CITIES[number % 3], "amount": number, "note": "." * 150}
        producer.produce(name, json.dumps(order), str(number), 0, timestamp=1_000_000 + number)
    assert producer.flush(30) == 0
    (start,) = cluster.copy_and_trim(name)
    assert 60 < start < RECORDS
    settings = {"tier_state.topic": cluster.facts}
    with connect(cluster.kafka.bootstrap, cluster.store["url"], settings=settings) as log:  # type: ignore[arg-type]
        topic = log.topic(name)
        assert topic.bounds(0).local_start == start
        yield topic


@pytest.mark.parametrize("take", READERS.values(), ids=READERS)
def test_every_reader_has_every_column_of_both_tiers(orders: Topic, take: Take) -> None:
    read = orders.read()
    assert take(read).to_pylist() == read.to_table().to_pylist()
    assert take(read)["offset"].to_pylist() == list(range(RECORDS))


@pytest.mark.parametrize("columns", [None, ["value", "offset"]])
@pytest.mark.parametrize("take", READERS.values(), ids=READERS)
def test_an_empty_range_has_its_columns_in_every_reader(orders: Topic, take: Take, columns: list[str] | None) -> None:
    table = take(orders.read(start=7, end=7, columns=columns))
    assert (table.num_rows, table.column_names) == (0, columns or KNOWN)


def totals(read: Read) -> dict[str, int]:
    """Return the sum of each city. DuckDB finds the table of a query among the variables around it."""
    orders = "SELECT decode(value)::JSON AS json FROM read"
    query = f"SELECT json ->> '$.city', sum((json ->> '$.amount')::INT) FROM ({orders}) GROUP BY 1"
    relation = duckdb.sql(query)
    assert relation is not None
    return dict(relation.fetchall())


def test_duckdb_adds_up_one_field_of_json(orders: Topic) -> None:
    assert totals(orders.read(columns=["value"])) == AMOUNTS
    assert totals(orders.read(start=9, end=9, columns=["value"])) == {}


def test_polars_adds_up_one_field_of_json(orders: Topic) -> None:
    order = pl.Struct({"city": pl.String, "amount": pl.Int64})
    values = pl.DataFrame(orders.read(columns=["value"])).select(pl.col("value").cast(pl.String).str.json_decode(order))
    sums: Any = values.unnest("value").group_by("city").agg(pl.col("amount").sum())
    assert dict(sums.iter_rows()) == AMOUNTS
