"""`tierstate table follow --once` by processes, and by a Spark cluster whose executors are killed during it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.house import TIERSTATE, House, eventually
from tests.spark.spark_cluster import SparkCluster
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 5_000


@pytest.fixture(scope="module")
def house(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    new_house = House(kafka_own, tmp_path_factory.mktemp("house"), "backfill")
    with new_house.config.open("a") as settings:
        settings.write(f'[table]\nfolder = "{new_house.folder / "tables"}"\nfile_bytes = "64KiB"\n')
    new_house.run("init")
    try:
        yield new_house
    finally:
        new_house.close()


@pytest.fixture
def table(house: House, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yield a topic in two tiers with an agent, and its empty table."""
    topic = house.create(request.node.name.replace("_", "-")[:60], 2)
    for partition in (0, 1):
        house.append(topic, RECORDS, partition)
    [made] = house.json("table", "create", topic)
    with house.agent():
        eventually(lambda: all(each["local_log_start_offset"] > 0 for each in house.json("describe", topic)))
        yield topic, str(made["table"])


def follow(house: House, name: str, *flags: str) -> dict[str, Any]:
    [done] = house.json("table", "follow", name, "--once", "--local", *flags)
    report: dict[str, Any] = done
    return report


def require_its_log(house: House, topic: str, name: str) -> None:
    report = house.json("table", "check", name, "--local")
    assert not report["findings"]
    assert [(each["partition"], each["rows"], each["digest"]) for each in report["partitions"]] == house.digests(topic)


def files(house: House, name: str) -> list[Path]:
    namespace, _, table = name.partition(".")
    return list((house.folder / "tables" / "warehouse" / namespace).glob(f"{table}-*/**/*.parquet"))


def test_processes_make_the_table_that_one_process_makes(house: House, table: tuple[str, str]) -> None:
    topic, name = table
    assert follow(house, name, "--processes", "2")["rows"] == 2 * RECORDS
    require_its_log(house, topic, name)
    assert follow(house, name, "--processes", "2")["commits"] == 0


def test_a_driver_that_is_killed_is_followed_by_the_same_again(house: House, table: tuple[str, str]) -> None:
    topic, name = table
    running = house.start("table", "follow", name, "--once", "--local", "--processes", "2")
    eventually(lambda: len(files(house, name)) >= 2)
    running.stop(signal.SIGKILL)
    follow(house, name, "--processes", "2")
    require_its_log(house, topic, name)


def test_processes_and_spark_are_for_one_call_to_the_end(house: House) -> None:
    assert "go with --once" in house.run("table", "follow", "--spark", code=2).stderr
    assert "not both" in house.run("table", "follow", "--once", "--spark", "--processes", "2", code=2).stderr


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_is_not_missed(house: House, table: tuple[str, str], tmp_path: Path) -> None:
    topic, name = table
    with SparkCluster(tmp_path / "nodes") as spark:
        confs = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
        submitted = " ".join(f"--conf {key}={value}" for key, value in confs.items())
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"--master {spark.url} {submitted} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [*TIERSTATE, "table", "follow", name, "--once", "--local", "--spark", "--json"]
        with subprocess.Popen(
            [*command, "--config", str(house.config)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            eventually(lambda: len(files(house, name)) >= 3 or running.poll() is not None, 240.0)
            assert running.poll() is None, running.communicate()
            os.kill(next(iter(spark.executors())), signal.SIGKILL)
            output, errors = running.communicate(timeout=300)
        assert running.returncode == 0, errors.decode()
        assert json.loads(output)[0]["rows"] == 2 * RECORDS
    require_its_log(house, topic, name)
