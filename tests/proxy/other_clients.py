"""Clients that are programs of their own: of Go, Node, Rust, C and Java, and the Kafka sources of Spark and Flink.

A program takes BOOTSTRAP LEVEL (TOPIC START)..., and writes the rows of `python_clients`, a JSON array a line. An empty
array follows the rows of each topic.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.proxy.java_programs import compiled_program
from tests.proxy.python_clients import Rows, kafka_python_rows
from tests.proxy.starts import At, Earliest, Group, Read, Start, Time, read_of
from tests.servers.java_clients import flink
from tests.servers.kafka_source import kafka_source_jars_for_tests
from tierstate.sandbox.artifacts import cache_folder, only_one
from tierstate.spark.sessions import local_session
from tierstate.state.routing import Isolation

C, GO, NODE, RUST = (Path(__file__).parent / language for language in ("c", "go", "node", "rust"))
NPM = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
KAFKA_PYTHON = "kafka-python==2.0.2 --hash=sha256:2d92418c7cb1c298fa6c7f0fb3519b520d0d7526ac6cb7ae2a4fc65a51a94b6e"
PROGRAM_S = 600
"""Seconds in which a program has to end: a JVM needs minutes on a busy machine."""


def by_go(name: str, bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return _rows([str(_built_go() / name), *_arguments(bootstrap, isolation, reads)])


def by_node(name: str, bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return _rows(["node", str(_built_node() / f"{name}.js"), *_arguments(bootstrap, isolation, reads)])


def by_rskafka(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    """Read all records: this client has no isolation level, and filters no aborted ones."""
    assert isolation == Isolation.READ_UNCOMMITTED
    return _rows([str(_built_rust()), *_arguments(bootstrap, isolation, reads)])


def by_c(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return _rows([str(_built_c()), *_arguments(bootstrap, isolation, reads)])


def by_java(libs: Callable[[], Path], bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return _rows([*compiled_program("Consume", libs()), *_arguments(bootstrap, isolation, reads)])


def by_older_kafka_python(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    """Read with a release that has no isolation level, in a process of its own: another release is in this one."""
    assert isolation == Isolation.READ_UNCOMMITTED
    path = os.pathsep.join((str(_kafka_python()), os.environ.get("PYTHONPATH", "")))
    return _rows(_this_file("kafka-python", *_arguments(bootstrap, isolation, reads)), {"PYTHONPATH": path})


def by_kcat(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    common = ["-b", bootstrap, "-X", f"isolation.level={isolation}", "-e", "-q", "-f", r"%p %o %T %K %S %h\n%k%s\n"]
    results: list[Rows] = []
    for topic, start in reads:
        consumer = ["-C", "-t", topic]
        match start:
            case Earliest():
                commands = [[*consumer, "-o", "beginning"]]
            case At(offsets):
                commands = [[*consumer, "-p", str(number), "-o", str(at)] for number, at in enumerate(offsets)]
            case Time(ms):
                commands = [[*consumer, "-o", f"s@{ms}"]]
            case Group():
                raise AssertionError("kcat commits more than it wrote")
        results.append(sorted(row for each in commands for row in _kcat([*common, *each])))
    return results


def _kcat(arguments: Sequence[str]) -> Rows:
    done = subprocess.run(["kcat", *arguments], capture_output=True, timeout=PROGRAM_S)
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
    return rows


def by_spark(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    """Read in a process of its own: a JVM has one session. Skips where the source's jars cannot be had."""
    if not kafka_source_jars_for_tests():
        pytest.skip("the jars of Spark's Kafka source cannot be had")
    return _rows(_this_file("spark", *_arguments(bootstrap, isolation, reads)))


def by_flink(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[Rows]:
    return flink_jobs(bootstrap, isolation, reads)[0]


def flink_jobs(
    bootstrap: str, isolation: Isolation, reads: Sequence[Read], fails_after: str = "-"
) -> tuple[list[Rows], Rows]:
    """Run jobs in a process of their own; return the rows that they read, and the first rows after their failure."""
    arguments = [bootstrap, str(isolation), fails_after, *(word for read in reads for word in read.words())]
    output, went_on = _output([*compiled_program("Flink", flink()), *arguments]), "went on with "
    later = [line.removeprefix(went_on) for line in output.splitlines() if line.startswith(went_on)]
    return _rows_of(output), [_row(*json.loads(line)) for line in later]


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
    _build("npm", NPM, folder)
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
def _built_c() -> Path:
    """Return C's program: npm has the header, and confluent_kafka has the library."""
    libraries = [*(Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*.so*")]
    if not libraries:
        pytest.skip("confluent_kafka brings no shared library of librdkafka")
    folder = _temporary("c")
    shutil.copytree(C, folder, dirs_exist_ok=True)
    _build("gcc", ["gcc", "--version"], folder)
    _build("npm", NPM, folder)
    gcc = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "consume", "consume.c"]
    gcc += ["-isystem", "node_modules/node-rdkafka/deps/librdkafka/src"]
    _build("gcc", [*gcc, str(libraries[0]), f"-Wl,-rpath,{libraries[0].parent}"], folder)
    return folder / "consume"


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


def _arguments(bootstrap: str, isolation: Isolation, reads: Sequence[Read]) -> list[str]:
    return [bootstrap, str(isolation), *(word for read in reads for word in read.words())]


def _rows(command: Sequence[str], environment: Mapping[str, str] | None = None) -> list[Rows]:
    """Run a program, and return the rows of each of its reads."""
    return _rows_of(_output(command, environment))


def _output(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    whole = {**os.environ, **(environment or {})}
    done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _rows_of(output: str) -> list[Rows]:
    """Return the rows of each read of a program. Other lines are not read."""
    results: list[Rows] = []
    rows = Rows()
    for line in output.splitlines():
        if line == "[]":
            results.append(sorted(rows, key=lambda row: row[:2]))
            rows = []
        elif line.startswith("["):
            rows.append(_row(*json.loads(line)))
    assert not rows, "rows of a read that did not end"
    return results


def _row(partition: int, offset: int, at: int, key: str | None, value: str | None, headers: Any) -> tuple[Any, ...]:
    named = tuple((name, _bytes(each)) for name, each in headers or ())
    return partition, offset, at, _bytes(key), _bytes(value), named


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _this_file(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.proxy.other_clients", program, *arguments]


def _spark(bootstrap: str, isolation: str, reads: Sequence[Read]) -> None:
    jars = ",".join(map(str, kafka_source_jars_for_tests()))
    with local_session("through-the-proxy", 2, memory="768m", config={"spark.jars": jars}) as session:
        for topic, start in reads:
            options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
            options |= {"kafka.isolation.level": isolation, **_spark_start(topic, start)}
            for each in session.read.format("kafka").options(**options).load().toLocalIterator():
                headers = [(header.key, header.value) for header in each.headers or ()]
                at = round(each.timestamp.timestamp() * 1000)
                _print(each.partition, each.offset, at, each.key, each.value, headers)
            print("[]")


def _spark_start(topic: str, start: Start) -> dict[str, str]:
    match start:
        case At(offsets):
            return {"startingOffsets": json.dumps({topic: dict(enumerate(offsets))})}
        case Time(ms):
            return {"startingTimestamp": str(ms)}
    assert isinstance(start, Earliest), "Spark has no groups"
    return {"startingOffsets": "earliest"}


def _older_kafka_python(bootstrap: str, isolation: str, reads: Sequence[Read]) -> None:
    import kafka

    assert f"=={kafka.__version__} " in KAFKA_PYTHON, "another release is imported"
    for read in reads:
        for row in kafka_python_rows(bootstrap, {}, *read):
            _print(*row)
        print("[]")


def _print(
    partition: int, offset: int, at: int, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, Any]]
) -> None:
    named = [(name, _hex(data)) for name, data in headers]
    print(json.dumps([partition, offset, at, _hex(key), _hex(value), named]))


def _hex(data: bytes | bytearray | None) -> str | None:
    return None if data is None else data.hex()


if __name__ == "__main__":
    program, server, level, *words = sys.argv[1:]
    run = {"spark": _spark, "kafka-python": _older_kafka_python}[program]
    run(server, level, [read_of(*pair) for pair in zip(words[::2], words[1::2], strict=True)])
