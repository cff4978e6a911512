"""`tierstate export` as somebody runs it: a real broker, both tiers, and processes that are killed."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.scenarios.house import House, eventually, run
from tierstate.log.record_block import record_schema
from tierstate.log.record_digest import RecordDigest
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 3_000


@dataclass
class Lake:
    """A topic of two partitions in both tiers, and folders for its exports."""

    house: House
    topic: str
    folder: Path

    def place(self, name: str) -> tuple[Path, str]:
        return self.folder / name, (self.folder / name).as_uri()

    def export(self, into: str, *flags: str, code: int = 0, topic: str = "") -> Any:
        done = self.house.run("export", topic or self.topic, "--into", into, *flags, "--json", code=code)
        return json.loads(done.stdout) if code == 0 else json.loads(done.stderr.splitlines()[-1])

    def rows(self, folder: Path) -> pa.Table:
        return pq.read_table(sorted((folder / self.topic).rglob("*.parquet")), partitioning=None)

    def digests(self, folder: Path) -> list[tuple[int, int, str]]:
        """As `House.digests`, of the files."""
        found = []
        rows = self.rows(folder).sort_by([("partition", "ascending"), ("offset", "ascending")])
        for number in sorted(set(rows["partition"].to_pylist())):
            digest = RecordDigest()
            digest.update(rows.filter(pa.compute.equal(rows["partition"], number)).cast(record_schema()))
            found.append((number, digest.count, digest.hexdigest()))
        return found


def remote_ends(house: House, topic: str, *flags: str) -> list[int]:
    """Of each partition; none while the bucket knows nothing of it."""
    done = run("describe", topic, *flags, "--json", "--config", str(house.config))
    return [] if done.returncode else [each["highest_remote_offset"] for each in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def lake(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    house = House(kafka_own, tmp_path_factory.mktemp("lake"), "lake")
    topic = house.create("orders", 2)
    house.run("init")
    try:
        for partition in (0, 1):
            house.append(topic, RECORDS, partition)
        with house.agent():
            eventually(lambda: all(each["local_log_start_offset"] > 0 for each in house.json("describe", topic)))
            eventually(lambda: remote_ends(house, topic) == remote_ends(house, topic, "--source", "bucket"))
        yield Lake(house, topic, tmp_path_factory.mktemp("exports"))
    finally:
        house.close()


@pytest.fixture
def own(lake: Lake, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A folder of this test's own, not made yet."""
    return lake.place("".join(each if each.isalnum() else "-" for each in request.node.name))


def test_the_files_are_the_log_and_any_reader_of_parquet_reads_them(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    said = lake.export(into, "--file-bytes", "100KiB", "--row-group-bytes", "20KiB", "--processes", "2")
    assert said["records"] == 2 * RECORDS
    assert lake.digests(folder) == lake.house.digests(lake.topic)
    assert lake.export(into, "--check")["findings"] == []
    every = f"{folder}/{lake.topic}/*/*.parquet"
    asked = f"SELECT count(*), max(\"offset\") FROM read_parquet('{every}', hive_partitioning = true)"
    assert duckdb.execute(asked).fetchall() == [(2 * RECORDS, RECORDS - 1)]
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

    def objects(place: Path) -> dict[str, bytes]:
        files = (each for each in place.rglob("*") if each.is_file() and ".tierstate-tmp" not in each.parts)
        return {str(each.relative_to(place)): each.read_bytes() for each in files}

    assert objects(folder) == objects(clean)


def test_interrupted_it_ends_soon_and_keeps_what_is_committed(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    running = lake.house.start("export", lake.topic, "--into", into, "--file-bytes", "10KiB", "--processes", "2")
    eventually(lambda: list(folder.rglob("task-*.json")))
    assert running.stop(signal.SIGINT) == 130
    assert lake.export(into)["tasks_found"] >= 1
    assert lake.digests(folder) == lake.house.digests(lake.topic)


def test_what_was_begun_is_given_up_by_order_alone_and_the_next_export_has_the_rest(
    lake: Lake, own: tuple[Path, str]
) -> None:
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
    [said] = [json.loads(each.read_bytes()) for each in folder.rglob("given-up.json")]
    assert said["missing"] == [[each["partition"], each["start"], each["end"]] for each in done["missing"]]
    assert lake.export(into, "--give-up", "--execute") == done
    assert lake.export(into)["exports"] == [1]
    assert lake.digests(folder) == lake.house.digests(lake.topic)
    assert lake.export(into, "--check")["findings"] == []


def test_a_dry_run_quotes_and_makes_nothing(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    said = lake.export(into, "--dry-run", "--processes", "3")
    assert said["executed"] is False
    assert (said["assumed_processes"], said["assumed_log_bytes_a_second"] > 0) == (3, True)
    assert said["offsets"] == 2 * RECORDS
    assert 0 < said["local_offsets"] < said["offsets"]
    assert said["remote_bytes"] > 0
    assert said["gets"] > said["segments"] > 1
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


def test_a_changed_file_is_found_by_name_and_the_exit_code_says_so(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    lake.export(into)
    [file, *_] = sorted((folder / lake.topic).rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = lake.house.run("export", lake.topic, "--into", into, "--check", code=1)
    assert file.name in done.stdout
    assert "SHA-256" in done.stdout


def test_what_no_reader_would_find_or_nobody_has_is_refused_before_anything_is_made(lake: Lake) -> None:
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


@pytest.mark.slow
@pytest.mark.spark
def test_the_tasks_of_a_spark_job_make_the_same_files(lake: Lake, own: tuple[Path, str]) -> None:
    folder, into = own
    flags = ["--file-bytes", "100KiB"]
    lake.house.run("export", lake.topic, "--into", into, "--spark", *flags)
    other, there = lake.place("processes")
    lake.house.run("export", lake.topic, "--into", there, *flags)
    made = [{each.name: each.read_bytes() for each in place.rglob("*.parquet")} for place in (folder, other)]
    assert made[0] == made[1]
