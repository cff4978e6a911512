"""Brokers and proxies restart one by one, as for an upgrade, while clients read both tiers and a group commits.

For every client at the proxies an equal one reads the same records of an untiered twin at the brokers. The behaviour
there is the promise: an assigned client gets every record once and in order, a group skips nothing and reads nothing
again that it has committed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.leader.real import eventually
from tests.proxy.java_programs import java_program
from tests.scenarios.house import TIERSTATE
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.story_kafka import StoryTopic, Writer
from tierstate.sandbox import tether
from tierstate.sandbox.artifacts import kafka_libs
from tierstate.sandbox.ports import PortLease, _is_free

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]
PARTITIONS, PER_SEGMENT, RECORDS = 3, 20, 110
PATIENCE_S = 300.0
NODES = (1, 2, 3)
ENDS = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._BAD_MSG, KafkaError.INVALID_MSG}
"""Errors of a consumer that no connection and no moved coordinator causes."""


class Clients:
    """A client that reads in rounds until it is stopped. ``rounds``: finished; ``wrong``: forbidden observations."""

    def __init__(self) -> None:
        self.rounds = 0
        self.wrong: list[str] = []
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self.stopping.is_set() and not self.wrong:
                self.round()
                self.rounds += not self.stopping.is_set()
        except Exception as error:
            self.wrong.append(repr(error))

    def round(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class Assigned(Clients):
    """librdkafka's consumer, assigned from the beginning to ``RECORDS`` of every partition."""

    def __init__(self, bootstrap: str, name: str, topic: StoryTopic) -> None:
        config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "nobody", "auto.offset.reset": "error"}
        config |= {"enable.auto.commit": False, "fetch.message.max.bytes": 500}
        self._consumer, self._name, self._topic = Consumer({**config, "log_level": 0}), name, topic
        super().__init__()

    def round(self) -> None:
        self._consumer.assign([TopicPartition(self._name, number, 0) for number in range(PARTITIONS)])
        following = dict.fromkeys(range(PARTITIONS), 0)
        while min(following.values()) < RECORDS and not self.stopping.is_set() and not self.wrong:
            for message in self._consumer.consume(100, 0.2):
                if message.error() is not None:
                    if message.error().code() in ENDS:
                        self.wrong.append(message.error().str())
                    continue
                number, offset = message.partition(), message.offset()
                # later records may not be known here yet
                same = offset >= RECORDS or message.value() == self._topic.written[number][offset].value
                if offset != following[number] or not same:
                    self.wrong.append(f"partition {number} offset {offset} in place of {following[number]}, {same}")
                following[number] = offset + 1

    def close(self) -> None:
        super().close()
        self._consumer.close()


class Grouped(Clients):
    """A group of one member that commits every few records; each round is another group."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap, self._name = bootstrap, name
        self.commits = 0
        super().__init__()

    def round(self) -> None:
        config: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        config |= {"group.id": f"{self._name}-{self.rounds}", "session.timeout.ms": 20_000}
        config |= {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.message.max.bytes": 500}
        with closing(Consumer(config)) as consumer:
            consumer.subscribe([self._name])
            self._read(consumer)

    def _read(self, consumer: Consumer) -> None:
        following, committed = (dict.fromkeys(range(PARTITIONS), 0) for _ in range(2))
        while min(following.values()) < RECORDS and not self.stopping.is_set() and not self.wrong:
            for message in consumer.consume(10, 0.2):
                if message.error() is not None:
                    if message.error().code() in ENDS:
                        self.wrong.append(message.error().str())
                    continue
                number, offset = message.partition(), message.offset()
                if not committed[number] <= offset <= following[number]:
                    self.wrong.append(f"partition {number} offset {offset}: {committed[number]}..{following[number]}")
                following[number] = max(following[number], offset + 1)
            with suppress(KafkaException):  # nothing new, or the coordinator is moving
                for each in consumer.commit(asynchronous=False) or ():
                    if each.error is None and each.offset >= 0:
                        committed[each.partition] = max(committed[each.partition], each.offset)
                        self.commits += 1


class Java(Clients):
    """Java's consumer with assigned partitions."""

    def __init__(self, bootstrap: str, name: str, topic: StoryTopic) -> None:
        values = [[topic.written[number][at].value for at in range(RECORDS)] for number in range(PARTITIONS)]
        self._truth = " ".join(hashlib.sha256(b"".join(each)).hexdigest() for each in values)
        command = [*java_program("Rounds", kafka_libs()), bootstrap, name, str(PARTITIONS), str(RECORDS)]
        self._java = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        super().__init__()

    def round(self) -> None:
        assert self._java.stdout is not None
        line = self._java.stdout.readline().strip()
        if line != self._truth and not self.stopping.is_set():
            self.wrong.append(line or "it ended")

    def close(self) -> None:
        self.stopping.set()
        self._java.kill()
        super().close()
        self._java.communicate()


class Proxy:
    """`tierstate proxy`, always on the same ports. ``settings``: all but its folder."""

    def __init__(self, settings: str, folder: Path, port: int) -> None:
        self.address, self._config, self._log = f"127.0.0.1:{port}", folder / f"{port}.toml", folder / f"{port}.err"
        self._config.write_text(f'state_dir = "{folder / str(port)}"\n{settings}')
        self.start()

    def start(self) -> None:
        command = [*TIERSTATE, "proxy", "--listen", self.address, "--json", "--config", str(self._config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, tether.__file__, str(os.getpid()), *command], stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self._log.read_text()

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(30) == 0


@contextmanager
def two_proxies(story: Story, folder: Path) -> Iterator[list[Proxy]]:
    cluster = story.cluster
    settings = (
        f'[kafka]\n"bootstrap.servers" = "{story.sandbox.bootstrap}"\n'
        f'[store]\nurl = "{cluster.store_folder.as_uri()}"\n'
        f'[tier_state]\ntopic = "{cluster.spec.name}"\npartitions = 2\nreplication_factor = 3\n'
        f'[tiering]\ninclude = ["{story.name}-.*"]\n[management]\nlisten = "127.0.0.1:0"\n'
    )
    lease, proxies = PortLease(), list[Proxy]()
    try:
        while len(proxies) < 2:
            port = lease.take()
            if all(_is_free(port + 1 + node) for node in NODES):
                proxies.append(Proxy(settings, folder, port))
        yield proxies
    finally:
        for each in proxies:
            each.stop()
        lease.release()


@observes(Effect.COPIED, Effect.TRIMMED, Effect.BROKER_DOWN)
def test_nothing_is_lost_or_repeated_while_brokers_and_proxies_restart_one_by_one(
    story_three: Story, tmp_path: Path
) -> None:
    given, when, _ = story_three
    given.topic("orders", partitions=PARTITIONS, per_segment=PER_SEGMENT, twin=True, min_insync_replicas="2")
    topic = story_three.topic("orders")
    assert topic.twin is not None
    writer = Writer(story_three.sandbox)
    for number in range(PARTITIONS):
        writer.writes(topic, RECORDS, partition=number)
    when.agent(0).works()
    assert all(story_three.then.local("orders", each).bounds.local_start > RECORDS // 2 for each in range(PARTITIONS))
    with two_proxies(story_three, tmp_path) as proxies, ExitStack() as opened:
        through, direct = ",".join(each.address for each in proxies), story_three.sandbox.bootstrap
        grouped = Grouped(through, topic.name), Grouped(direct, topic.twin)
        clients: list[Clients] = [
            Assigned(through, topic.name, topic),
            Assigned(direct, topic.twin, topic),
            Java(through, topic.name, topic),
            Java(direct, topic.twin, topic),
            *grouped,
        ]
        for each in clients:
            opened.callback(each.close)

        def go_on() -> None:
            """Wait until each of them has begun and finished a round from now on."""
            before = [each.rounds for each in clients]

            def finished() -> bool:
                assert not [each.wrong for each in clients if each.wrong]
                return all(each.rounds >= was + 2 for each, was in zip(clients, before, strict=True))

            eventually(finished, PATIENCE_S)

        go_on()
        to_proxies: dict[str, Any] = {"bootstrap.servers": through}
        written = Writer(story_three.sandbox, **to_proxies)
        for broker in range(3):
            when.broker_stops(broker)
            written.writes(topic, 3, partition=broker)
            go_on()
            when.broker_starts(broker)
            go_on()
        for proxy in proxies:
            proxy.stop()
            written.writes(topic, 3)
            go_on()
            proxy.start()
            go_on()
        assert all(each.commits > 0 for each in grouped)
