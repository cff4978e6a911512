"""Programs of `docs/spark.md` and `docs/spark-streams.md` that no other test of this folder runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import executed
from tests.docs.page_shell import replaced
from tests.spark.conftest import Orders
from tests.spark.gateways import planning_gateway
from tests.spark.test_sessions import SUBMIT
from tests.spark.tiers import Tiers
from tierstate.spark.sessions import SHORT_ERRORS, without_blanks

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

START, SUBMITTED, GATEWAY = executed("docs/spark.md", __file__)
(STREAM,) = executed("docs/spark-streams.md", __file__)


@pytest.fixture(autouse=True)
def the_setting_of_before(spark: SparkSession) -> Iterator[None]:
    """Take back what a page's `session()` sets in the running session: the other tests of this folder share it."""
    yield
    spark.conf.unset(SHORT_ERRORS)


def test_the_first_program(spark: SparkSession, tiers: Tiers, orders: Orders) -> None:
    """The session is the running one."""
    names: dict[str, Any] = {}
    exec(replaced(START.code, tiers.page_texts(orders.name)), names)
    assert names["orders"].count() == len(orders.uncommitted)


def test_the_program_that_reads_through_a_gateway(
    spark: SparkSession, tiers: Tiers, orders: Orders, tmp_path: Path
) -> None:
    """An open gateway does not check the token that the page gives."""
    (tmp_path / "token").write_text("secret\n")
    with planning_gateway(tiers) as gateway:
        here = {"https://gateway:8080": gateway.url, "/etc/tierstate/token": str(tmp_path / "token")}
        names: dict[str, Any] = {"spark": spark}
        exec(replaced(GATEWAY.code, here | {'"subscribe", "orders"': f'"subscribe", "{orders.name}"'}), names)
        assert names["frame"].count() == len(orders.uncommitted)


def test_the_stream(spark: SparkSession, tiers: Tiers, orders: Orders, tmp_path: Path) -> None:
    texts = tiers.page_texts(orders.name)
    texts |= {".load()": '.option("startingOffsets", "earliest")' + texts[".load()"]}
    here = {"/out/orders": str(tmp_path / "out"), "/checkpoints/orders": str(tmp_path / "checkpoint")}
    names: dict[str, Any] = {}
    exec(replaced(STREAM.code, texts | here), names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(orders.uncommitted)


@pytest.mark.slow
@pytest.mark.parametrize("line", SUBMITTED.commands())
def test_spark_submit_runs_the_first_program(line: str, tiers: Tiers, orders: Orders, tmp_path: Path) -> None:
    code = replaced(START.code, tiers.page_texts(orders.name)) + 'print(f"{orders.count()} records")\nspark.stop()\n'
    (tmp_path / "job.py").write_text(code)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environ |= {"PATH": f"{SUBMIT.parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    command = replaced(line, {"/opt/tierstate/bin/python": without_blanks(sys.executable)})
    done = subprocess.run(
        ["bash", "-c", command], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert f"{len(orders.uncommitted)} records" in done.stdout, done.stderr
