"""Tables of one topic, made by `table follow --once`, and by Spark's structured streaming into Iceberg.

4,000,000 orders in four partitions: typed Avro (40 B), JSON (120 B) whose fields are columns, and JSON of 50,000 keys
whose newest record is the row, in two commits each. Ours is a command with its start (2.5 s). Theirs is a stream of a
warm session of Spark 4.1, `local[2]`. CPU is that of all processes but the broker.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer

from tests.servers.kafka_source import OF_SPARK_41, kafka_source_jars
from tests.servers.spark_iceberg import _environment, _jar
from tierstate.sandbox.artifacts import find_java
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.storage.object_store import MIB

from .agent_site import TIERSTATE, Site, Spent, spent_by
from .rows import Row
from .spark_scan import cpu_of_tree
from .typed_values import AVRO, SCHEMA, orders

RECORDS, KEYS, RUNS, PARTITIONS = 4_000_000, 50_000, 2, 4
PEER = "Spark's structured streaming"
COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType"
RECORD = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in AVRO.items()]}
)


@dataclass(frozen=True, slots=True)
class Kind:
    """``flags``: those of `table create`. ``commits``: the number of commits for all records."""

    name: str
    peers: str
    format: str
    schema: str
    flags: tuple[str, ...] = ()
    commits: int = 1


KINDS = (
    Kind("typed Avro", "avro", "avro", RECORD),
    Kind("flattened JSON", "flat", "json", SCHEMA, ("--flatten",)),
    Kind("upsert by key, JSON", "upsert", "json", SCHEMA, ("--upsert", "key"), commits=2),
)


def measure(quick: bool = False) -> list[Row]:
    """About 10 minutes, 5 GB of disk."""
    records, runs = (RECORDS // 400, 1) if quick else (RECORDS, RUNS)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name, _peer(Path(name) / "peer") as peer:
        folder = Path(name)
        with KafkaSandbox(folder=folder / "kafka") as kafka:
            site = Site(kafka, folder / "site")
            for kind in KINDS:
                topic = kind.peers
                _fill(site, topic, kind, records)
                tables = folder / f"{topic}-tables"
                config = site.begin(topic, table=f'folder = "{tables}"')
                site.once(config)
                ours, theirs = list[Spent](), list[Spent]()
                for turn in range(runs + 1):
                    ours.append(_ours(config, tables, site.log_dir, kind))
                    theirs.append(_theirs(peer, kafka.bootstrap, folder / f"{topic}-{turn}", kind, records))
                rows += _rows(kind, records, ours[1:], theirs[1:])
    return rows


def _fill(site: Site, topic: str, kind: Kind, records: int) -> None:
    """Fill the topic with the same number of records in each Kafka partition."""
    site.create(topic, PARTITIONS, MIB)
    producer: Any = Producer({"bootstrap.servers": site.kafka.bootstrap, "log_level": 0, "compression.type": "lz4"})
    for at, value in enumerate(_values(kind, records)):
        producer.produce(topic, value, b"%08d" % (at * 7919 % KEYS), partition=at * 7919 % KEYS % PARTITIONS)
        if at % 50_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def _values(kind: Kind, records: int) -> Sequence[bytes]:
    texts = orders(records)
    if kind.format == "json":
        return texts
    schema, made = parse_schema(json.loads(RECORD)), []
    for number, text in enumerate(texts):
        value = BytesIO()
        schemaless_writer(value, schema, json.loads(text) | {"at": number, "note": None, "count": number % 100})
        made.append(value.getvalue())
    return made


def _ours(config: Path, tables: Path, log_dir: Path, kind: Kind) -> Spent:
    shutil.rmtree(tables, ignore_errors=True)
    typed = ["--value-format", kind.format, "--value-schema", kind.schema, "--columns", COLUMNS, *kind.flags]
    spent_by([*TIERSTATE, "table", "create", kind.peers, *typed, "--config", str(config)])
    size = sum(path.stat().st_size for path in log_dir.glob(f"{kind.peers}-[0-9]*/*.log"))
    pace = ["--processes", "2", "--commit-bytes", str(max(MIB, size // kind.commits + 1))]
    command, cpu_s, began = ["table", "follow", "--once", "--local", *pace], 0.0, time.perf_counter()
    with (config.parent / "follow.err").open("wb") as err:
        process = subprocess.Popen([*TIERSTATE, *command, "--config", str(config)], stdout=err, stderr=err)
    while process.poll() is None:  # its two processes are not among those that it waits for
        cpu_s = max(cpu_s, cpu_of_tree(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0, (config.parent / "follow.err").read_text()
    return Spent(time.perf_counter() - began, cpu_s)


def _theirs(peer: subprocess.Popen[str], bootstrap: str, folder: Path, kind: Kind, records: int) -> Spent:
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": kind.peers, "startingOffsets": "earliest"}
    source["maxOffsetsPerTrigger"] = str(-(-records // kind.commits))
    schema = {"schema": kind.schema, "state": str(folder), "table": f"lake.t.{folder.name.replace('-', '_')}"}
    assert peer.stdin is not None
    assert peer.stdout is not None
    began, before = time.perf_counter(), cpu_of_tree(peer.pid)
    print(json.dumps({"kind": kind.peers, "source": source, **schema}), file=peer.stdin, flush=True)
    answer = peer.stdout.readline()
    assert answer.strip() == str(records), answer
    return Spent(time.perf_counter() - began, cpu_of_tree(peer.pid) - before)


@contextmanager
def _peer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    config = {
        "spark.jars": ",".join(map(str, [_jar(), *kafka_source_jars(OF_SPARK_41)])),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
    }
    environment = {
        "PATH": f"{Path(find_java()).parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }
    script = Path(__file__).with_name("spark_to_iceberg.py")
    with (folder / "peer.err").open("wb") as err:
        process = subprocess.Popen(
            [str(_environment()), "-P", str(script)],
            env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
        )  # fmt: skip
    try:
        assert process.stdin is not None
        print(json.dumps(config), file=process.stdin, flush=True)
        yield process
    except BaseException:
        print((folder / "peer.err").read_text()[-4000:])
        raise
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(60)


def _rows(kind: Kind, records: int, ours: Sequence[Spent], theirs: Sequence[Spent]) -> list[Row]:
    seconds, peers = (statistics.median(each.seconds for each in side) for side in (ours, theirs))
    cpu, peers_cpu = (statistics.median(each.cpu_s for each in side) * 1e6 / records for side in (ours, theirs))
    return [
        Row(kind.name, records / seconds, "records/s", records / peers, PEER, ">= 3x"),
        Row(f"{kind.name}, CPU", cpu, "µs a record, less is better", peers_cpu, PEER, "<= 0.5x"),
    ]
