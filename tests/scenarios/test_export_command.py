"""`tierstate export` as people run it: a real broker, both tiers, and processes that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from tests.scenarios.exported import RECORDS, Lake, objects, remote_ends
from tests.scenarios.house import TIERSTATE, environment, eventually, run
from tierstate.app.opening.connection import Connection
from tierstate.app.opening.partitions import find_partition
from tierstate.lake.log import leased
from tierstate.runtime.settings_load import load_settings
from tierstate.state.offsets import Extent, Offset

pytestmark = pytest.mark.kafka


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
