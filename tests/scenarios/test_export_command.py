"""`tierstate export` as people run it: a real broker, both tiers, and processes that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.lake.typed_logs import AVRO, DDL, POISON, an_order, avro_order, json_order, poisoned
from tests.scenarios.house import TIERSTATE, House, environment, eventually, run
from tests.servers.schema_registry import registry
from tierstate.app.opening.connection import Connection
from tierstate.app.opening.partitions import find_partition
from tierstate.lake.log import leased
from tierstate.log.record_columns import record_schema
from tierstate.log.record_digest import RecordDigest
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Extent, Offset

pytestmark = pytest.mark.kafka
RECORDS = 3_000
TYPED = 1_500
"""The number of records of the topics whose values mean something."""
ORDERS = poisoned([json_order(number) for number in range(TYPED)])


@dataclass
class Lake:
    """A topic of two partitions in both tiers, and folders for its exports."""

    house: House
    topic: str
    folder: Path
    orders: str
    """A topic of JSON, some of it broken (`typed_logs.poisoned`)."""
    avro: str
    """A topic of Avro, by schema 1 of a registry."""

    def place(self, name: str) -> tuple[Path, str]:
        return self.folder / name, (self.folder / name).as_uri()

    def export(self, into: str, *flags: str, code: int = 0, topic: str = "") -> Any:
        done = self.house.run("export", topic or self.topic, "--into", into, *flags, "--json", code=code)
        return json.loads(done.stdout) if code == 0 else json.loads(done.stderr.splitlines()[-1])

    def rows(self, folder: Path, topic: str = "") -> pa.Table:
        return pq.read_table(sorted((folder / (topic or self.topic)).rglob("*.parquet")), partitioning=None)

    def digests(self, folder: Path) -> list[tuple[int, int, str]]:
        """Return the digests of the files, in the form of `House.digests`."""
        digests_read = []
        rows = self.rows(folder).sort_by([("partition", "ascending"), ("offset", "ascending")])
        for number in sorted(set(rows["partition"].to_pylist())):
            digest = RecordDigest()
            digest.update(rows.filter(pa.compute.equal(rows["partition"], number)).cast(record_schema()))
            digests_read.append((number, digest.count, digest.hexdigest()))
        return digests_read


def remote_ends(house: House, topic: str, *flags: str) -> list[int]:
    """Return the remote end of each partition; none while the bucket knows nothing of it."""
    done = run("describe", topic, *flags, "--json", "--config", str(house.config))
    return [] if done.returncode else [each["highest_remote_offset"] for each in json.loads(done.stdout)]


def produce(house: House, topic: str, values: Sequence[bytes | None]) -> None:
    producer: Any = Producer({**house.kafka.client_config, "log_level": 0, "batch.size": 10_000})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, key=b"k%d" % (number % 7), headers=[("at", b"%d" % number)])
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def lake(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    house = House(kafka_own, tmp_path_factory.mktemp("lake"), "lake")
    topic, orders, avro = house.create("orders", 2), house.create("json"), house.create("avro")
    house.run("init")
    try:
        for partition in (0, 1):
            house.append(topic, RECORDS, partition)
        produce(house, orders, ORDERS)
        produce(house, avro, [avro_order(number, AVRO, 1) for number in range(TYPED)])
        with house.agent():
            eventually(lambda: all(each["local_log_start_offset"] > 0 for each in house.json("describe", topic)))
            eventually(lambda: remote_ends(house, topic) == remote_ends(house, topic, "--source", "bucket"))
            eventually(lambda: remote_ends(house, orders) not in ([], [None]))
        yield Lake(house, topic, tmp_path_factory.mktemp("exports"), orders, avro)
    finally:
        house.close()


def objects(place: Path) -> dict[str, bytes]:
    files = (each for each in place.rglob("*") if each.is_file() and ".tierstate-tmp" not in each.parts)
    return {str(each.relative_to(place)): each.read_bytes() for each in files}


@pytest.fixture
def own(lake: Lake, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """Return a folder of this test's own, not made yet."""
    return lake.place("".join(each if each.isalnum() else "-" for each in request.node.name))


def test_the_files_are_the_log_and_any_reader_of_parquet_reads_them(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    report = lake.export(into, "--file-bytes", "100KiB", "--row-group-bytes", "20KiB", "--processes", "2")
    assert report["records"] == 2 * RECORDS
    assert lake.digests(folder) == lake.house.digests(lake.topic)
    assert lake.export(into, "--check")["findings"] == []
    every = f"{folder}/{lake.topic}/*/*.parquet"
    query = f"SELECT count(*), max(\"offset\") FROM read_parquet('{every}', hive_partitioning = true)"
    assert duckdb.execute(query).fetchall() == [(2 * RECORDS, RECORDS - 1)]
    frame = pl.scan_parquet(every, hive_partitioning=True).filter(pl.col("partition") == 1).collect()
    assert frame.height == RECORDS


def test_run_again_it_adds_what_came_since(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    assert lake.export(into, "--to", "1000")["records"] == 2_000
    assert lake.export(into, topic=f"{lake.topic}:1")["records"] == RECORDS - 1_000
    assert lake.export(into, "--dry-run")["offsets"] == RECORDS - 1_000
    assert lake.export(into)["exports"] == [2]
    assert lake.export(into)["exports"] == []
    assert lake.digests(folder) == lake.house.digests(lake.topic)


def test_killed_in_the_middle_it_goes_on_to_the_same_files(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--file-bytes", "20KiB", "--processes", "1"]
    running = lake.house.start("export", lake.topic, "--into", into, *flags)
    eventually(lambda: len(list(folder.rglob("task-*.json"))) >= 3)
    running.stop(signal.SIGKILL)
    assert not list(folder.rglob("manifest.json"))
    again = lake.export(into, *flags)
    assert again["tasks_found"] >= 3
    clean, other = lake.place("clean")
    lake.export(other, *flags)
    assert objects(folder) == objects(clean)


def test_interrupted_it_ends_soon_and_keeps_what_is_committed(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    running = lake.house.start("export", lake.topic, "--into", into, "--file-bytes", "10KiB", "--processes", "2")
    eventually(lambda: list(folder.rglob("task-*.json")))
    assert running.stop(signal.SIGINT) == 130
    assert lake.export(into)["tasks_found"] >= 1
    assert lake.digests(folder) == lake.house.digests(lake.topic)


def test_an_open_export_is_given_up_by_order_and_the_next_has_the_rest(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--file-bytes", "20KiB", "--processes", "1"]
    running = lake.house.start("export", lake.topic, "--into", into, *flags)
    eventually(lambda: len(list(folder.rglob("task-*.json"))) >= 3)
    running.stop(signal.SIGKILL)
    shown = lake.export(into, "--give-up")
    assert shown["executed"] is False
    assert not list(folder.rglob("given-up.json"))
    done = lake.export(into, "--give-up", "--execute")
    assert done == {**shown, "executed": True}
    [document] = [json.loads(each.read_bytes()) for each in folder.rglob("given-up.json")]
    assert document["missing"] == [[each["partition"], each["start"], each["end"]] for each in done["missing"]]
    assert lake.export(into, "--give-up", "--execute") == done
    assert lake.export(into)["exports"] == [1]
    assert lake.digests(folder) == lake.house.digests(lake.topic)
    assert lake.export(into, "--check")["findings"] == []


def test_a_dry_run_quotes_and_makes_nothing(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    report = lake.export(into, "--dry-run", "--processes", "3")
    assert report["executed"] is False
    assert (report["assumed_processes"], report["assumed_log_bytes_a_second"] > 0) == (3, True)
    assert report["offsets"] == 2 * RECORDS
    assert 0 < report["local_offsets"] < report["offsets"]
    assert report["remote_bytes"] > 0
    assert report["gets"] > report["segments"] > 1
    assert not folder.exists()


def test_it_leases_what_it_reads_and_ends_the_lease(lake: Lake, own: tuple[Path, str]) -> None:
    _, into = own

    def leases() -> list[dict[str, Any]]:
        return [each for each in lake.house.json("leases", lake.topic) if into in each["holder"]]

    running = lake.house.start("export", lake.topic, "--into", into, "--file-bytes", "5KiB", "--processes", "1")
    held = eventually(leases)
    assert {each["partition"] for each in held} <= {0, 1}
    assert {each["executed"] for each in held} == {False}
    assert running.process.wait(120) == 0
    assert leases() == []


def test_a_lease_is_taken_again_by_itself_while_what_is_read_says_nothing(lake: Lake) -> None:
    settings = load_settings(lake.house.config, ("lease.max=3s",), os.environ, None, None)

    def leases() -> list[dict[str, Any]]:
        return [each for each in lake.house.json("leases", lake.topic) if "a silent job" in each["holder"]]

    with Connection(settings) as connection:
        place = find_partition(connection.broker.control, lake.topic, 0)
        with leased(connection, connection.view([place]), place.topic_id, "a silent job", pytest.fail) as keep:
            keep({0: Extent(Offset(0), Offset(100))})
            first = {each["id"] for each in leases()}
            assert len(first) == 1
            eventually(lambda: {each["id"] for each in leases()} - first)
    assert leases() == []


def test_a_changed_file_is_found_by_name_with_an_exit_code(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    lake.export(into)
    [file, *_] = sorted((folder / lake.topic).rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = lake.house.run("export", lake.topic, "--into", into, "--check", code=1)
    assert file.name in done.stdout
    assert "SHA-256" in done.stdout


def test_impossible_exports_are_refused_before_anything_is_made(lake: Lake) -> None:
    folder, into = lake.place("refused")
    assert lake.export(into, "--columns", "offset,valu", code=2)["error"] == "InvalidRequest"
    assert lake.export(into, topic=f"{lake.topic}:9", code=2)["error"] == "UnknownTopic"
    assert lake.export("s4://x", code=2)["error"] == "InvalidRequest"
    assert not (folder / lake.topic).exists()


def test_the_bucket_alone_is_exported_and_checked(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    lake.house.run("export", lake.topic, "--into", into)
    alone, other = lake.place("alone")
    bucket = ["--store", lake.house.store.as_uri(), "--source", "bucket"]
    done = run("export", lake.topic, "--into", other, *bucket, "--json")
    assert done.returncode == 0, done.stderr
    ends = remote_ends(lake.house, lake.topic)
    rows = lake.rows(alone)
    assert rows.num_rows == sum(ends) + len(ends) == json.loads(done.stdout)["records"]
    checked = run("export", lake.topic, "--into", other, *bucket, "--check", "--json")
    assert json.loads(checked.stdout)["findings"] == []
    shutil.rmtree(folder)


def test_an_export_through_a_gateway_makes_the_same_files(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    direct, other = lake.place("direct")
    flags = ["--file-bytes", "20KiB", "--json"]
    lake.export(other, *flags[:2])
    gateway, url = lake.house.gateway()
    command = ["export", lake.topic, "--into", into, "--gateway", url, *flags]

    def leases(*by: str) -> list[dict[str, Any]]:
        return [{**each, "expires_in_s": 0} for each in lake.house.json("leases", lake.topic, *by)]

    quoted = json.loads(run(*command, "--dry-run").stdout)
    assert (quoted["offsets"], folder.exists()) == (2 * RECORDS, False)
    begun = subprocess.Popen([*TIERSTATE, *command, "--processes", "1"], env=environment(), stderr=subprocess.DEVNULL)
    eventually(lambda: len(list(folder.rglob("task-*.json"))) >= 3)
    assert {each["partition"] for each in leases("--gateway", url)} == {0, 1}
    assert leases("--gateway", url) == leases()
    of_one = json.loads(run("leases", f"{lake.topic}:1", "--gateway", url, "--json").stdout)
    assert {each["partition"] for each in of_one} == {1}
    assert any(each["holder"].startswith("gateway plan") for each in of_one)
    begun.kill()
    begun.wait()
    left = leases()
    done = run(*command)
    assert (done.returncode, leases()) == (0, left), done.stderr
    assert json.loads(done.stdout)["tasks_found"] >= 3
    assert objects(folder) == objects(direct)
    checked = run(*command, "--check")
    assert json.loads(checked.stdout)["findings"] == []
    assert json.loads(run(*command).stdout)["exports"] == []
    gateway.stop()


def test_json_is_exported_as_columns_of_its_schema_and_broken_records_are_counted(
    lake: Lake, own: tuple[Path, str], tmp_path: Path
) -> None:
    folder, into = own
    schema = tmp_path / "orders.ddl"
    schema.write_text(DDL)
    flags = ["--value-format", "json", "--value-schema", str(schema), "--key-format", "string", "--headers", "map"]
    done = lake.house.run("export", lake.orders, "--into", into, *flags, "--processes", "2")
    broken = sum(value in POISON for value in ORDERS)
    assert f"{broken} of them do not parse" in done.stderr
    rows = lake.rows(folder, lake.orders).sort_by("offset").to_pylist()
    assert len(rows) == TYPED
    for number, (value, row) in enumerate(zip(ORDERS, rows, strict=True)):
        assert row["key"] == f"k{number % 7}"
        assert row["headers"] == [("at", [b"%d" % number])]
        assert row["_corrupt"] == ({"key": None, "value": value} if value in POISON else None)
        good = value is not None and value not in POISON
        assert (row["value"] and row["value"]["name"], row["value"] is not None) == (
            an_order(number)["name"] if good else None,
            good,
        )
    assert lake.export(into, "--check", topic=lake.orders)["findings"] == []
    every = f"{folder}/{lake.orders}/*/*.parquet"
    [(total,)] = duckdb.execute(f"SELECT sum(value.id) FROM read_parquet('{every}')").fetchall()
    assert total == sum(at for at, value in enumerate(ORDERS) if value is not None and value not in POISON)


def test_a_typed_export_that_is_killed_goes_on_to_the_same_files(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--value-format", "json", "--value-schema", DDL, "--file-bytes", "20KiB", "--processes", "1"]
    running = lake.house.start("export", lake.orders, "--into", into, *flags)
    eventually(lambda: len(list(folder.rglob("task-*.json"))) >= 2)
    running.stop(signal.SIGKILL)
    assert lake.export(into, *flags, topic=lake.orders)["tasks_found"] >= 2
    clean, other = lake.place("clean-typed")
    lake.export(other, *flags, topic=lake.orders)
    assert objects(folder) == objects(clean)


def test_avro_without_a_schema_is_read_by_the_subjects_latest_which_the_place_then_keeps(
    lake: Lake, own: tuple[Path, str]
) -> None:
    folder, into = own
    latest = f"/subjects/{lake.avro}-value/versions/latest"
    flags = ["--value-format", "avro"]
    subject_version = {"subject": f"{lake.avro}-value", "version": 1, "id": 1, "schema": AVRO}
    with registry({1: (200, {"schema": AVRO}), latest: (200, subject_version)}) as server:
        flags += ["--set", f"registry.url={server.url}"]
        assert lake.export(into, *flags, "--to", "700", topic=lake.avro)["records"] == 700
        server.answers[latest] = 200, {**subject_version, "version": 2, "id": 2, "schema": '"string"'}
        done = lake.export(into, *flags, topic=lake.avro)
        assert (done["records"], done["corrupt"]) == (TYPED - 700, 0)
        assert lake.export(into, *flags, "--check", topic=lake.avro)["findings"] == []
    rows = lake.rows(folder, lake.avro).sort_by("offset").to_pylist()
    orders = [{name: an_order(number)[name] for name in ("id", "name", "tags")} for number in range(TYPED)]
    assert [row["value"] for row in rows] == orders
    assert not any(b"registry" in data or b"http" in data for key, data in objects(folder).items() if "plan" in key)


def test_a_registry_that_is_away_is_an_error_by_name_and_nothing_is_half_committed(
    lake: Lake, own: tuple[Path, str]
) -> None:
    folder, into = own
    flags = ["--value-format", "avro", "--value-schema", AVRO, "--registered", "--set", "registry.url=http://[::1]:9"]
    error = lake.export(into, *flags, topic=lake.avro, code=3)
    assert "schema registry" in error["message"]
    assert [each.name for each in folder.rglob("*.*") if each.is_file()] == ["plan.json"]


def test_a_schema_that_is_none_is_refused_before_anything_is_made(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--value-format", "json", "--value-schema", "id bigint oops"]
    assert lake.export(into, *flags, topic=lake.orders, code=2)["error"] == "InvalidRequest"
    assert not list(folder.rglob("*.json"))


@pytest.mark.slow
@pytest.mark.spark
def test_the_tasks_of_a_spark_job_make_the_same_typed_files_and_spark_reads_them(
    lake: Lake, own: tuple[Path, str]
) -> None:
    folder, into = own
    flags = ["--value-format", "json", "--value-schema", DDL, "--headers", "map"]
    lake.house.run("export", lake.orders, "--into", into, "--spark", *flags)
    other, there = lake.place("typed-processes")
    lake.house.run("export", lake.orders, "--into", there, *flags)
    assert objects(folder) == objects(other)
    from tierstate.spark.sessions import session

    spark = session()
    try:
        spark.read.parquet(f"{folder}/{lake.orders}").createOrReplaceTempView("orders")
        query = "SELECT count(*), sum(value.id), count(_corrupt.value), sum(size(value.tags)) FROM orders"
        [row] = spark.sql(query).collect()
    finally:
        spark.stop()
    good = [at for at, value in enumerate(ORDERS) if value is not None and value not in POISON]
    broken = sum(value in POISON for value in ORDERS)
    assert tuple(row) == (TYPED, sum(good), broken, sum(len(an_order(at)["tags"]) for at in good))


@pytest.mark.slow
@pytest.mark.spark
def test_the_tasks_of_a_spark_job_make_the_same_files_by_a_gateway_too(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--file-bytes", "100KiB"]
    lake.house.run("export", lake.topic, "--into", into, "--spark", *flags)
    other, there = lake.place("processes")
    lake.house.run("export", lake.topic, "--into", there, *flags)
    third, into = lake.place("spark-gateway")
    gateway, url = lake.house.gateway()
    done = run("export", lake.topic, "--into", into, "--spark", "--gateway", url, *flags, seconds=120.0)
    gateway.stop()
    assert done.returncode == 0, done.stderr
    made = [{each.name: each.read_bytes() for each in place.rglob("*.parquet")} for place in (folder, other, third)]
    assert made[0] == made[1] == made[2]
