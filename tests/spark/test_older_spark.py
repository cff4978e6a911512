"""The tests of today's PySpark on earlier releases, word for word: batches from 4.1 on, streams too from 4.2 on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.kafka_source import kafka_source_jars_for_tests
from tests.servers.older_spark import older_pyspark
from tests.wheels import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1200)]
BATCHES = ("test_source.py", "test_gateway.py")
STREAMS = ("test_stream_takeover.py", "test_stream_queries.py", "test_stream.py")
REFUSED = """
from tierstate.spark.source import DefaultSource
source = DefaultSource({"kafka.bootstrap.servers": "127.0.0.1:9", "tierstate.store": "file:///s", "subscribe": "t"})
source.streamReader(source.schema())
"""


def on(older: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(older)}
    return subprocess.run([sys.executable, *command], env=environ, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(("release", "files"), [("4.2.1", BATCHES + STREAMS), ("4.1.4", BATCHES)], ids=str)
def test_what_holds_today_holds_on_a_release_of_before(release: str, files: tuple[str, ...]) -> None:
    if not kafka_source_jars_for_tests():
        pytest.skip("Spark's Kafka source is not on this machine, and cannot be fetched")
    older = older_pyspark(release)
    assert on(older, "-c", "import pyspark; print(pyspark.__version__)").stdout.strip() == release
    done = on(older, "-m", "pytest", "-q", "-m", "slow or not slow", *(f"tests/spark/{each}" for each in files))
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_a_stream_on_a_release_that_has_none_of_ours_is_refused_in_a_sentence() -> None:
    done = on(older_pyspark("4.1.4"), "-c", REFUSED)
    assert done.stderr.splitlines()[-1].endswith("InvalidRequest: a stream needs PySpark 4.2 or newer; batches do not")
