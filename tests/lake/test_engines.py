"""The lines that are printed to be pasted into other programs, for each kind of catalog."""

from __future__ import annotations

import re

import pytest

from tierstate.lake.engines import engines

SQLITE = {"type": "sql", "uri": "sqlite:////lake/catalog.db", "warehouse": "file:///lake/warehouse"}
REST = {"type": "rest", "uri": "https://catalog.example", "warehouse": "s3://lake/kafka", "token": "(hidden)"}
GLUE = {"type": "glue", "glue.region": "eu-central-1", "warehouse": "s3://lake/kafka"}
HIVE = {"type": "hive", "uri": "thrift://metastore:9083"}


@pytest.mark.parametrize("properties", [SQLITE, REST, GLUE, HIVE], ids=lambda each: each["type"])
def test_python_gets_every_property_and_the_table(properties: dict[str, str]) -> None:
    text = engines(properties, "kafka.orders")["pyiceberg"]
    compile(text, "pasted", "exec")
    assert dict(re.findall(r'^        "(.+)": "(.+)",$', text, re.MULTILINE)) == properties
    assert 'load_table("kafka.orders")' in text


@pytest.mark.parametrize(
    ("properties", "lines"),
    [
        (SQLITE, ["type=jdbc", "uri=jdbc:sqlite:/lake/catalog.db", "warehouse=file:///lake/warehouse"]),
        (REST, ["type=rest", "uri=https://catalog.example", "token=(hidden)"]),
        (GLUE, ["type=glue", "warehouse=s3://lake/kafka", "client.region=eu-central-1"]),
        ({"uri": "https://catalog.example"}, ["type=rest"]),
    ],
)
def test_spark_gets_its_own_names(properties: dict[str, str], lines: list[str]) -> None:
    text = engines(properties, "kafka.orders")["spark"].splitlines()
    assert "spark.sql.catalog.tierstate=org.apache.iceberg.spark.SparkCatalog" in text
    for line in lines:
        assert f"spark.sql.catalog.tierstate.{line}" in text


def test_trino_gets_its_own_names_and_opens_no_sqlite() -> None:
    assert engines(REST, "kafka.orders")["trino"].splitlines() == [
        "connector.name=iceberg",
        "iceberg.catalog.type=rest",
        "iceberg.rest-catalog.uri=https://catalog.example",
        "iceberg.rest-catalog.warehouse=s3://lake/kafka",
    ]
    assert "hive.metastore.uri=thrift://metastore:9083" in engines(HIVE, "kafka.orders")["trino"]
    assert engines(SQLITE, "kafka.orders")["trino"].startswith("# no lines for Trino and a catalog of the type sql")


def test_unknown_settings_are_named() -> None:
    assert engines({"type": "dynamodb"}, "kafka.orders")["spark"].startswith(
        "# no lines for Spark and a catalog of the type dynamodb"
    )
