"""Other clients: of Go, Node, Rust, Python and C, and the Kafka sources of Spark and Flink.

Rows are those of `by_librdkafka`, without the type of the time.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Place

from tests.proxy.java_programs import compiled_program
from tests.servers.java_clients import flink
from tests.servers.kafka_source import kafka_source_jars_for_tests
from tierstate.sandbox.artifacts import cache_folder, only_one
from tierstate.spark.sessions import local_session
from tierstate.state.routing import Isolation

GO, NODE, RUST = (Path(__file__).parent / language for language in ("go", "node", "rust"))
KAFKA_PYTHON = "kafka-python==2.0.2 --hash=sha256:2d92418c7cb1c298fa6c7f0fb3519b520d0d7526ac6cb7ae2a4fc65a51a94b6e"
Rows = list[tuple[Any, ...]]


def by_go(name: str, bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    return _rows([str(_built_go() / name), bootstrap, topic, str(isolation)])


def by_node(name: str, bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    return _rows(["node", str(_built_node() / f"{name}.js"), bootstrap, topic, str(isolation)])


def by_rskafka(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    """Read all records: this client has no isolation level, and filters no aborted ones."""
    assert isolation == Isolation.READ_UNCOMMITTED
    return _rows([str(_built_rust()), bootstrap, topic])


def by_older_kafka_python(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    """Read with a release that has no isolation level, in a process of its own: another release is in this one."""
    assert isolation == Isolation.READ_UNCOMMITTED
    path = os.pathsep.join((str(_kafka_python()), os.environ.get("PYTHONPATH", "")))
    return _rows(_this_file("kafka-python", bootstrap, topic), {"PYTHONPATH": path})


def by_aiokafka(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    return sorted(asyncio.run(_aiokafka(bootstrap, topic, isolation)))


async def _aiokafka(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    rows: Rows = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, isolation_level=str(isolation), auto_offset_reset="earliest"
    ) as consumer:
        places = [Place(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for each in records:
                    headers = tuple(each.headers)
                    rows.append((each.partition, each.offset, each.timestamp, each.key, each.value, headers))
    return rows


def by_kcat(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q"]
    command += ["-X", f"isolation.level={isolation}", "-f", r"%p %o %T %K %S %h\n%k%s\n"]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows, lines = Rows(), io.BytesIO(done.stdout)
    while line := lines.readline().decode():
        *numbers, headers = line.removesuffix("\n").split(" ", 5)
        partition, offset, at, *sizes = map(int, numbers)
        key, value = (None if size < 0 else lines.read(size) for size in sizes)
        assert lines.read(1) == b"\n"
        named = (each.split("=") for each in headers.split(",") if each)
        pairs = tuple((name, None if text == "NULL" else text.encode()) for name, text in named)
        rows.append((partition, offset, at, key, value, pairs))
    return sorted(rows)


def by_spark(bootstrap: str, topic: str, isolation: Isolation) -> Rows:
    """Read in a process of its own: a JVM has one session. Skips where the source's jars cannot be had."""
    if not kafka_source_jars_for_tests():
        pytest.skip("the jars of Spark's Kafka source cannot be had")
    return _rows(_this_file("spark", bootstrap, topic, str(isolation)), timeout_s=600)


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


@functools.cache
def _built_go() -> Path:
    """Return the folder of Go's programs."""
    folder = _temporary("go")
    _build("Go", ["go", "build", "-o", f"{folder}/", "./..."], GO)
    return folder


@functools.cache
def _built_node() -> Path:
    """Return the folder of Node's programs and their modules. npm keeps what it fetched in its own cache."""
    folder = _temporary("node")
    shutil.copytree(NODE, folder, dirs_exist_ok=True)
    _build("npm", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], folder)
    return folder


@functools.cache
def _built_rust() -> Path:
    """Return Rust's program. Its build takes minutes, so the cache keeps it, with the versions that Cargo chose."""
    target = cache_folder() / "rust-clients"
    source = target / "source"
    shutil.copytree(RUST, source, dirs_exist_ok=True)
    _build("Cargo", ["cargo", "build", "--quiet", "--target-dir", str(target)], source)
    return target / "debug" / "clients"


@functools.cache
def _kafka_python() -> Path:
    """Return the folder of the older kafka-python, for ``PYTHONPATH``. pip fetches it once a machine."""
    home = cache_folder() / KAFKA_PYTHON.split()[0].replace("==", "-")
    home.parent.mkdir(parents=True, exist_ok=True)
    with only_one(home.with_name(home.name + ".lock")):
        if not home.exists():
            fresh = _temporary("kafka-python", home.parent)
            (fresh / "wanted").write_text(KAFKA_PYTHON)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
            pip += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", "wanted"]
            _build("pip", [*pip, "--target", "made"], fresh)
            (fresh / "made").rename(home)
    return home


def _temporary(name: str, parent: Path | None = None) -> Path:
    """Return a new folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"tierstate-{name}-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _build(tool: str, command: Sequence[str], folder: Path) -> None:
    """Run a build. Skips where there is no such tool, or where it fails; with TIERSTATE_CI=1 the latter is an error."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        assert os.environ.get("TIERSTATE_CI") != "1", done.stderr
        lines = done.stderr.strip().splitlines() or ["it gives no reason"]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1])
        pytest.skip(f"{tool} cannot build it: {reason}")


def _rows(command: Sequence[str], environment: Mapping[str, str] | None = None, timeout_s: int = 120) -> Rows:
    """Run a program that writes a JSON array a line. Other lines are not read."""
    whole = {**os.environ, **(environment or {})}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(_row(*json.loads(line)) for line in done.stdout.splitlines() if line.startswith("["))


def _row(partition: int, offset: int, at: int, key: str | None, value: str | None, headers: Any) -> tuple[Any, ...]:
    named = tuple((name, _bytes(each)) for name, each in headers or ())
    return partition, offset, at, _bytes(key), _bytes(value), named


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _this_file(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.proxy.other_clients", program, *arguments]


def _spark(bootstrap: str, topic: str, isolation: str) -> None:
    jars = ",".join(map(str, kafka_source_jars_for_tests()))
    with local_session("through-the-proxy", 2, memory="512m", config={"spark.jars": jars}) as session:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
        options |= {"startingOffsets": "earliest", "kafka.isolation.level": isolation}
        for each in session.read.format("kafka").options(**options).load().collect():
            headers = [(header.key, _hex(header.value)) for header in each.headers or ()]
            at = round(each.timestamp.timestamp() * 1000)
            print(json.dumps([each.partition, each.offset, at, _hex(each.key), _hex(each.value), headers]))


def _older_kafka_python(bootstrap: str, topic: str) -> None:
    import kafka

    assert f"=={kafka.__version__} " in KAFKA_PYTHON, "another release is imported"
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", enable_auto_commit=False)
    for number in consumer.partitions_for_topic(topic):
        place = kafka.TopicPartition(topic, number)
        consumer.assign([place])
        consumer.seek(place, consumer.beginning_offsets([place])[place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for each in consumer.poll(1_000).get(place, []):
                headers = [(name, _hex(value)) for name, value in each.headers]
                print(json.dumps([number, each.offset, each.timestamp, _hex(each.key), _hex(each.value), headers]))


def _hex(data: bytes | bytearray | None) -> str | None:
    return None if data is None else data.hex()


if __name__ == "__main__":
    run = _spark if sys.argv[1] == "spark" else _older_kafka_python
    run(*sys.argv[2:])
