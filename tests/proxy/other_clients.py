"""Other clients: two of Go, and the Kafka sources of Spark and Flink. Rows are those of `by_librdkafka`."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.java_programs import compiled_program
from tests.servers.java_clients import flink
from tests.servers.kafka_source import kafka_source_jars_for_tests
from tierstate.spark.sessions import local_session
from tierstate.state.routing import Isolation

GO = Path(__file__).parent / "go"
Rows = list[tuple[Any, ...]]


@functools.cache
def _built() -> Path:
    """Return the folder of Go's programs. Skips where there is no Go, or its modules cannot be had."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    folder = Path(tempfile.mkdtemp(prefix="tierstate-go-"))
    done = subprocess.run(["go", "build", "-o", f"{folder}/", "./..."], cwd=GO, capture_output=True, text=True)
    if done.returncode:
        assert os.environ.get("TIERSTATE_CI") != "1", done.stderr
        pytest.skip(f"Go cannot build them: {done.stderr.splitlines()[-1]}")
    return folder


def by_go(name: str, bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    done = subprocess.run(
        [str(_built() / name), bootstrap, topic, str(isolation)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return sorted(_row(*json.loads(line)) for line in done.stdout.splitlines())


def by_spark(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    """Read in a process of its own: a JVM has one session. Skips where the source's jars cannot be had."""
    if not kafka_source_jars_for_tests():
        pytest.skip("the jars of Spark's Kafka source cannot be had")
    command = [sys.executable, "-m", "tests.proxy.other_clients", bootstrap, topic, str(isolation)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(_row(*json.loads(line)) for line in done.stdout.splitlines() if line.startswith("["))


def by_flink(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    return flink_job(bootstrap, topic, isolation)[0]


def flink_job(bootstrap: str, topic: str, isolation: Isolation, *fails_after: str) -> tuple[Rows, Rows]:
    """Run a job in a process of its own; return the rows that it read, and the first rows after its failure."""
    command = [*compiled_program("Flink", flink()), bootstrap, topic, str(isolation), *fails_after]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    lines, went_on = done.stdout.splitlines(), "went on with "
    rows = sorted(_row(*json.loads(line)) for line in lines if line.startswith("["))
    return rows, [_row(*json.loads(line.removeprefix(went_on))) for line in lines if line.startswith(went_on)]


def _row(partition: int, offset: int, at: int, key: str | None, value: str | None, headers: Any) -> tuple[Any, ...]:
    named = tuple((name, _bytes(each)) for name, each in headers or ())
    return partition, offset, at, _bytes(key), _bytes(value), named


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _spark(bootstrap: str, topic: str, isolation: str) -> None:
    jars = ",".join(map(str, kafka_source_jars_for_tests()))
    with local_session("through-the-proxy", 2, memory="512m", config={"spark.jars": jars}) as session:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
        options |= {"startingOffsets": "earliest", "kafka.isolation.level": isolation}
        for each in session.read.format("kafka").options(**options).load().collect():
            headers = [(header.key, _hex(header.value)) for header in each.headers or ()]
            at = round(each.timestamp.timestamp() * 1000)
            print(json.dumps([each.partition, each.offset, at, _hex(each.key), _hex(each.value), headers]))


def _hex(data: bytearray | None) -> str | None:
    return None if data is None else data.hex()


if __name__ == "__main__":
    _spark(*sys.argv[1:])
