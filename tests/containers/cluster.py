"""The cluster of compose.yaml, under a name and on ports of its own, and readers of it that are not ours."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.containers.engine import Engine
from tests.wheels import ROOT
from tierstate.sandbox.ports import PortLease, _is_free

TOPIC = "orders"
SEGMENT_BYTES = 1 << 20
RECORDS = 20_000
WAIT_S = 300.0
QUICK = {"services": {"agent": {"environment": {"TIERSTATE_TRIM__DELAY": "0s"}}}}
"""A copied segment does not wait for the time that compose.yaml keeps it on the broker."""


@dataclass(frozen=True)
class Read:
    """``digest``: over offset, key and value of each record."""

    records: int
    digest: str


def read_of(records: Iterator[tuple[int, str, str]]) -> Read:
    digest, count = hashlib.sha256(), 0
    for offset, key, value in records:
        digest.update(f"{offset} {key} {value}\n".encode())
        count += 1
    return Read(count, digest.hexdigest())


def orders() -> Iterator[tuple[int, str, str]]:
    """Yield the records of the topic: offset, key, value."""
    for number in range(RECORDS):
        value = json.dumps({"order": number, "item": hashlib.sha256(str(number).encode()).hexdigest() * 3})
        yield number, f"customer-{number % 503}", value


@dataclass
class Cluster:
    engine: Engine
    compose: list[str]
    environment: dict[str, str]

    def run(self, *arguments: str) -> str:
        quiet = Engine(self.engine.environment | self.environment, self.engine.folder)
        return quiet.run(*self.compose, *arguments)

    def container(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of the container of a service."""
        return cast(
            "dict[str, Any]", json.loads(self.engine.docker("inspect", self.run("ps", "-q", service).strip()))[0]
        )

    def is_well(self, service: str) -> bool:
        state = self.container(service)["State"]
        return bool(state["Running"] and state.get("Health", {}).get("Status", "healthy") == "healthy")

    def kill(self, service: str) -> None:
        """Kill the first process of a container, as a crash does: the engine restarts nothing after ``docker kill``."""
        before = self.container(service)
        if self.engine.folder:
            os.kill(before["State"]["Pid"], signal.SIGKILL)
        else:
            self.engine.docker("restart", "--time", "0", before["Id"])
        started = before["State"]["StartedAt"]
        until(lambda: self.container(service)["State"]["StartedAt"] != started, f"{service} starts again")

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.environment['KAFKA_PORT']}"

    @property
    def proxy(self) -> str:
        return f"127.0.0.1:{self.environment['PROXY_PORT']}"

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.environment['GATEWAY_PORT']}"

    def produce(self) -> None:
        config = {
            "segment.bytes": str(SEGMENT_BYTES),
            "retention.ms": "-1",
            "local.retention.bytes": str(SEGMENT_BYTES),
        }
        new = NewTopic(TOPIC, 1, 1, config=config)
        admin = AdminClient({"bootstrap.servers": self.kafka})
        admin.create_topics([new])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 20})
        for _, key, value in orders():
            producer.produce(TOPIC, key=key, value=value, partition=0)
        assert producer.flush(120) == 0

    def local_start(self) -> int:
        """Return the first offset that the broker itself still has."""
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": "looks-only"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[0])
        finally:
            consumer.close()

    def by_proxy(self) -> Read:
        """Read with Kafka's C client, from the beginning."""
        consumer = Consumer({"bootstrap.servers": self.proxy, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])

        def records() -> Iterator[tuple[int, str, str]]:
            while (message := consumer.poll(60)) is not None:
                assert message.error() is None, message.error()
                offset, key, value = message.offset(), message.key(), message.value()
                assert isinstance(offset, int)
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                yield offset, key.decode(), value.decode()
                if offset == RECORDS - 1:
                    return

        try:
            return read_of(records())
        finally:
            consumer.close()

    def by_gateway(self) -> tuple[Read, set[str]]:
        """Read over HTTP; also return the tiers that answered."""
        tiers: set[str] = set()

        def records() -> Iterator[tuple[int, str, str]]:
            offset = 0
            while offset < RECORDS:
                url = f"{self.gateway}/v1/topics/{TOPIC}/partitions/0/records?offset={offset}&max_records=1000"
                with urllib.request.urlopen(url, timeout=60) as answer:
                    lines = answer.read().splitlines()
                assert lines, f"the gateway has nothing at offset {offset}"
                for line in lines:
                    record = json.loads(line)
                    tiers.add(record["tier"])
                    yield record["offset"], record["key"], record["value"]
                    offset = record["offset"] + 1

        return read_of(records()), tiers

    def by_command(self) -> Read:
        """Read with the command line in the gateway's container."""
        printed = self.run("exec", "-T", "gateway", "tierstate", "consume", f"{TOPIC}:0", "--format", "%o %k %s\\n")
        lines = (line.split(" ", 2) for line in printed.splitlines())
        return read_of((int(offset), key, value) for offset, key, value in lines)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Errors of the way there (a connection is refused) mean: not yet."""
    deadline, last = time.monotonic() + WAIT_S, ""
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except Exception as error:
            last = str(error)
        time.sleep(1)
    raise AssertionError(f"not within {WAIT_S:.0f} s: {what}. {last}")


@contextmanager
def running(engine: Engine, image: str) -> Iterator[Cluster]:
    """Start the cluster; at the end stop it and remove its volumes and its network."""
    ports = PortLease()
    proxy = ports.take()
    while not _is_free(proxy + 2):
        proxy = ports.take()
    environment = {
        "TIERSTATE_IMAGE": image,
        "KAFKA_PORT": str(ports.take()),
        "GATEWAY_PORT": str(ports.take()),
        "PROXY_PORT": str(proxy),
        "PROXY_BROKER_PORT": str(proxy + 2),
    }
    with tempfile.TemporaryDirectory(prefix="tierstate-compose-", dir=engine.folder) as folder:
        # docker-compose 1.29 rejects the name at the top level, which a second copy overrides anyway
        text = re.sub(r"^name: .*$", "", (ROOT / "compose.yaml").read_text(), flags=re.MULTILINE)
        files = {"compose.yaml": text, "quick.yaml": json.dumps(QUICK)}
        for name, content in files.items():
            (Path(folder) / name).write_text(content)
        compose = ["docker-compose", "--project-name", f"tierstate{uuid.uuid4().hex[:8]}"]
        compose += ["--project-directory", str(ROOT), *(f"--file={folder}/{name}" for name in files)]
        cluster = Cluster(engine, compose, environment)
        try:
            cluster.run("up", "--detach", "--no-build")
            yield cluster
        except BaseException:
            print(cluster.run("ps"), cluster.run("logs", "--no-color", "--tail", "30"))
            raise
        finally:
            cluster.run("down", "--volumes", "--timeout", "15")
            ports.release()
