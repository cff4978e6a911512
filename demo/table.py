"""The year as an Iceberg table with a column of each field: made from the object store, proven, and read by DuckDB."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
from pyiceberg.catalog import load_catalog

from .flights import TEXTS, Answer, rows
from .house import TOPIC, DemoFailed, House

NAME = f"lake.{TOPIC}"
QUESTION = """
    SELECT month, carrier, count(*), avg(dep_delay), count(*) FILTER (dep_time IS NULL)
    FROM read_parquet($files) GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class YearTable:
    """``bytes`` counts its data files."""

    rows: int
    files: int
    bytes: int
    answer: list[Answer]


def make_table(house: House) -> None:
    """Create and fill the table. Raises DemoFailed with what a command printed."""
    typed = ("--key-format", "string", "--value-format", "json", "--value-schema", schema(), "--flatten")
    house.run("table", "create", TOPIC, "--name", NAME, *typed)
    house.run("table", "follow", NAME, "--once", "--local")


def schema() -> str:
    """Return the schema of a flight's JSON, as DDL."""
    types = dict.fromkeys(TEXTS, "string") | {"time_hour": "timestamp"}
    return ", ".join(f"{name} {types.get(name, 'int')}" for name in next(rows()) if name)


def check_table(house: House) -> int:
    """Compare every row with the log, decoded again; return how many. Raises DemoFailed where one differs."""
    report = house.json("table", "check", NAME, "--local", accept=(0, 1))
    if report["findings"]:
        raise DemoFailed(f"the table is not the log: {report['findings'][0]}")
    return sum(each["rows"] for each in report["partitions"])


def ask_table(house: House) -> YearTable:
    """Ask the table as any reader would: a catalog in a file, Parquet files, DuckDB."""
    lake = house.lake
    catalog = load_catalog("tierstate", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=lake.as_uri())
    files = [task.file for task in catalog.load_table(NAME).scan().plan_files()]
    catalog.close()
    names = [each.file_path.removeprefix("file://") for each in files]
    answer = [Answer(*line) for line in duckdb.execute(QUESTION, {"files": names}).fetchall()]
    return YearTable(
        sum(each.record_count for each in files),
        len(files),
        sum(each.file_size_in_bytes for each in files),
        sorted(answer),
    )
