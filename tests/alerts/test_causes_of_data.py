"""Faults of data fire alerts: one broker, one agent, readers and a table; a topic for each cause.

A cause has two parts. Up to its `yield` all is well, and no alert may fire. After the `yield` the cause itself happens.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.alerts.prometheus import prometheus
from tests.alerts.rules import RULES
from tests.alerts.watched import Watched
from tests.broker.beheading import alter
from tests.commits import commit
from tests.scenarios.house import House, Running, eventually, get, run
from tests.scenarios.test_damaged_transaction_index import PRODUCER_ID_AT, write_transactions
from tests.scenarios.test_outages import flip
from tierstate.log.transaction_index import ENTRY
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.facts import LogStartAdvanced

pytestmark = [pytest.mark.alerts, pytest.mark.kafka]
RECORDS = 2_500
AGENT = ("--set", "sweep.grace=15s", "--set", "expire.grace=0s")
FILE_BYTES = 400_000
"""The size limit of a file on the gateway's disk: less than a chunk of the topic ``wide``."""


@dataclass
class World:
    watched: Watched
    agent: Running
    gateway: Running
    url: str
    proxy: Running
    at: str
    tables: Running

    @property
    def house(self) -> House:
        return self.watched.house

    @cached_property
    def admin(self) -> Any:
        return AdminClient({**self.house.kafka.client_config, "log_level": 0})

    def topic(self, name: str, **config: str) -> str:
        """Create a topic with records, and wait until the agent has copied two segments. Return its name."""
        topic = self.house.create(name, 1, **config)
        self.house.append(topic, RECORDS)
        eventually(lambda: len(self.house.manifests(topic)) >= 2)
        return topic

    def paused(self, name: str, records: int = RECORDS, **config: str) -> str:
        """Create a topic with records, of which nothing is copied before `resume`. Return its name."""
        topic = self.house.create(name, 1, **config)
        self.house.run("pause", topic)
        eventually(lambda: self.watched.value(f'tierstate_remote_copy_lag_segments{{topic="{topic}"}}') == 0)
        self.house.append(topic, records)
        return topic

    def facts(self, topic: str, kind: str) -> list[dict[str, Any]]:
        """Return the facts of this kind about a topic, oldest first."""
        return [fact for fact in self.house.lines("facts", topic) if f"/{kind}" in fact["key"]]

    def write(self, value: bytes | None, *facts: dict[str, Any]) -> None:
        """Write another value under the keys of these facts, as any client with write access to the topic could."""
        producer: Any = Producer({"bootstrap.servers": self.house.kafka.bootstrap, "log_level": 0})
        for fact in facts:
            producer.produce(self.house.tier_topic, value, fact["key"], fact["tier_partition"])
        assert producer.flush(30) == 0

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
        eventually(lambda: topic not in self.admin.list_topics(timeout=60).topics)

    def objects(self, topic: str) -> list[Path]:
        """Return the log objects of the topic's remote segments, oldest first."""
        return sorted(path for path in self.house.store.rglob("*.log") if topic in str(path))


Cause = Callable[[World], Iterator[None]]
CAUSES: list[Cause] = []
ALERTS: dict[str, Mapping[str, str]] = {}
"""Alert to the parts of its expression that are too long for a test."""


def makes(*alerts: str, instead: Mapping[str, str] | None = None) -> Callable[[Cause], Cause]:
    """Declare which alerts a cause makes fire."""

    def declare(cause: Cause) -> Cause:
        CAUSES.append(cause)
        ALERTS.update(dict.fromkeys(alerts, instead or {}))
        return cause

    return declare


@makes("TierstateUncopiedDataExpires", "TierstateUncopiedDataIsLostSoon")
def retention_is_shortened_while_nothing_is_copied(world: World) -> Iterator[None]:
    topic = world.paused("late", retention_ms="7200000")
    waits = f'tierstate_uncopied_expires_in_seconds{{topic="{topic}"}}'
    eventually(lambda: (world.watched.value(waits) or 0) > 3600)
    yield
    alter(world.admin, topic, "retention.ms", "200000")


@makes("TierstateGap", "TierstateCutElsewhere")
def a_person_deletes_records_on_the_broker_that_were_not_copied(world: World) -> Iterator[None]:
    topic = world.topic("deleted")
    yield
    world.house.run("pause", topic)
    world.house.append(topic, RECORDS, first=RECORDS)
    place = TopicPartition(topic, 0, RECORDS + 1_500)
    world.admin.delete_records([place])[place].result(30)


@makes("TierstatePartitionStuck")
def a_segment_of_the_broker_is_damaged(world: World) -> Iterator[None]:
    topic = world.paused("rotten")
    yield
    flip(world.house.logs(topic)[0], 300)
    world.house.run("resume", topic)


@makes("TierstateTransactionIndexDamaged")
def a_transaction_index_of_the_broker_is_damaged(world: World) -> Iterator[None]:
    topic = world.paused("transactions", 0, local_retention_bytes="-2")
    write_transactions(world.house, topic)
    yield
    indexes = sorted((world.house.log_dir / f"{topic}-0").glob("*.txnindex"))
    flip(next(file for file in indexes[:-1] if file.stat().st_size >= 2 * ENTRY.size), PRODUCER_ID_AT)
    world.house.run("resume", topic)


@makes("TierstateLocalBytesStay", instead={"1d": "10s"})
def a_group_that_stands_still_keeps_local_data(world: World) -> Iterator[None]:
    topic = world.house.create("held")
    commit(world.house.kafka.client_config, "stands-still", topic, 0, 0)
    world.house.append(topic, RECORDS)
    eventually(lambda: (world.watched.value(f'tierstate_local_excess_bytes{{topic="{topic}"}}') or 0) > 0)
    yield
    world.house.append(topic, RECORDS, first=RECORDS)


@makes("TierstateCopyLagGrows", instead={"6h": "10s"})
def more_is_written_than_is_copied(world: World) -> Iterator[None]:
    topic = world.paused("behind", 1_000)
    waits = f'tierstate_remote_copy_lag_segments{{topic="{topic}"}}'
    eventually(lambda: world.watched.value(waits))
    yield
    world.house.append(topic, 3 * RECORDS, first=1_000)


@makes("TierstateDeletesFail")
def the_store_does_not_delete(world: World) -> Iterator[None]:
    topic = world.topic("locked")
    yield
    unopenable = world.house.folder / "socket"
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(unopenable))
    unopenable.rename(world.objects(topic)[0])
    world.house.run("delete-records", f"{topic}:0", "--before", str(RECORDS - 100), "--execute", "--no-wait")


@makes("TierstateTopicMissing")
def a_topic_is_deleted(world: World) -> Iterator[None]:
    topic = world.topic("gone")
    yield
    world.delete(topic)


@makes("TierstateOrphanObjects")
def another_writer_writes_below_the_prefix(world: World) -> Iterator[None]:
    topic = world.topic("visited")
    yield
    log = world.objects(topic)[0]
    (log.parent / f"{log.name.split('-')[0]}-b3JwaGFuIHNlZ21lbnQgMQ.log").write_bytes(b"whose?")


@makes("TierstateObjectsMissing")
def a_person_deletes_an_object(world: World) -> Iterator[None]:
    topic = world.topic("robbed")
    yield
    world.objects(topic)[0].unlink()


@makes("TierstateFactsLost")
def the_facts_of_a_segment_are_deleted(world: World) -> Iterator[None]:
    topic = world.topic("forgotten")
    yield
    # both at once: an agent that looks in between would find the segment named by the other fact
    world.write(None, *(world.facts(topic, kind)[0] for kind in ("copy-started", "copy-finished")))
    world.house.append(topic, RECORDS, first=RECORDS)  # the agent has a reason to look


@makes("TierstateIntegrityHold")
def a_stranger_writes_a_second_value(world: World) -> Iterator[None]:
    topic = world.topic("contested")
    yield
    fact = world.facts(topic, "log-start/")[0]
    reader: Any = Consumer({"bootstrap.servers": world.house.kafka.bootstrap, "group.id": "stranger", "log_level": 0})
    reader.assign([TopicPartition(world.house.tier_topic, fact["tier_partition"], fact["position"])])
    (message,) = reader.consume(1, 30)
    reader.close()
    decoded_fact = decode_fact(fact["key"], message.value())
    assert isinstance(decoded_fact, LogStartAdvanced)
    world.write(encode_fact(replace(decoded_fact, reason="another")), fact)


@makes("TierstatePartitionInDoubt")
def a_fact_is_erased_from_under_another(world: World) -> Iterator[None]:
    topic = world.topic("contradicted")
    yield
    world.write(None, world.facts(topic, "copy-started")[0])


@makes("TierstateReadersMeetDamage")
def readers_meet_a_damaged_object(world: World) -> Iterator[None]:
    topic = world.topic("read")
    eventually(lambda: len(world.house.logs(topic)) == 1)
    yield
    flip(world.objects(topic)[0], 5_000)
    assert get(f"{world.url}/v1/topics/{topic}/partitions/0/records?offset=0")[0] == 500
    consumer: Any = Consumer({"bootstrap.servers": world.at, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    eventually(lambda: any(message.error() for message in consumer.consume(1, 1)))
    consumer.close()


@makes("TierstateDrillFails")
def a_drill_meets_a_damaged_object(world: World) -> Iterator[None]:
    topic = world.topic("drilled")
    drill = ["drill", "--bootstrap-server", world.house.kafka.bootstrap, "--topic", topic]
    eventually(lambda: run(*drill, "--config", str(world.house.config)).returncode == 0)  # once it is archived
    eventually(lambda: world.watched.value("tierstate_drill_last_success_timestamp_seconds"))
    yield
    flip(world.objects(topic)[0], 5_000)
    world.house.run(*drill, code=1)


@makes("TierstateReadersTurnedAway")
def more_clients_come_than_a_proxy_lets_in(world: World) -> Iterator[None]:
    yield
    host, _, port = world.at.partition(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(30)]
    eventually(lambda: (world.watched.value("tierstate_proxy_turned_away_total") or 0) > 20)
    for client in clients:
        client.close()


@makes("TierstateDiskCacheOff")
def the_disk_of_a_gateways_cache_is_full(world: World) -> Iterator[None]:
    topic = world.house.create("wide", internal_segment_bytes="1000000")
    world.house.append(topic, 4 * RECORDS)
    eventually(lambda: len(world.house.logs(topic)) == 1)
    yield
    assert get(f"{world.url}/v1/topics/{topic}/partitions/0/records?offset=0")[0] == 200


@makes("TierstateTableStopped")
def the_topic_of_a_table_is_re_created(world: World) -> Iterator[None]:
    yield
    world.delete(f"{world.house.name}-tabled")
    world.topic("tabled")


@makes("TierstateTableBehind", instead={"3600": "5"})
def a_table_does_not_keep_up(world: World) -> Iterator[None]:
    """The table waits an hour between commits."""
    yield
    world.house.append(f"{world.house.name}-slow", 2 * RECORDS, first=RECORDS)


# --- the world -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a world in which all is well until every cause has begun; then all causes happen."""
    folder = tmp_path_factory.mktemp("alerts")
    with KafkaSandbox() as kafka, prometheus(folder) as scrapes:
        house = House(kafka, folder / "house", "data")
        with house.config.open("a") as settings:
            settings.write(
                f'[format]\ncompression = "none"\n[proxy]\nconnections = 8\n'
                f'[table]\nfolder = "{house.folder / "tables"}"\ncommit_interval = "1h"\n'
            )
        try:
            house.run("init")
            watched = Watched(scrapes, house)
            agent = watched.agent(*AGENT)
            gateway, url = watched.gateway("--set", "cache.disk=16MiB", file_bytes=FILE_BYTES)
            proxy, at = watched.proxy()
            for name in ("tabled", "slow"):
                topic = house.create(name)
                house.append(topic, RECORDS)
                house.run("table", "create", topic)
            new_world = World(watched, agent, gateway, url, proxy, at, watched.tables())
            causes = [cause(new_world) for cause in CAUSES]
            for cause in causes:
                next(cause)
            watched.quiet(*RULES)
            for cause in causes:
                next(cause, None)
            yield new_world
        finally:
            house.close()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_made_to_fire_by_its_cause(alert: str, world: World) -> None:
    eventually(partial(world.watched.fires, alert, ALERTS[alert]), 150)


def test_a_reader_of_each_kind_that_met_damage_is_named(world: World) -> None:
    addresses = {world.watched.addresses[running.process.pid] for running in (world.gateway, world.proxy)}
    alert = "TierstateReadersMeetDamage"
    eventually(lambda: {labels["instance"] for labels in world.watched.fires(alert)} == addresses)


def test_the_topic_that_is_missing_is_named(world: World) -> None:
    missing = f"{world.house.name}-gone"
    eventually(lambda: missing in {labels["topic"] for labels in world.watched.fires("TierstateTopicMissing")})


@pytest.mark.parametrize(
    ("alert", "process"),
    [
        ("TierstateAgentSilent", "agent"),
        ("TierstateGatewaySilent", "gateway"),
        ("TierstateProxySilent", "proxy"),
        ("TierstateTableSilent", "tables"),
    ],
)
def test_a_process_that_is_killed_is_missed(alert: str, process: str, world: World) -> None:
    """These are the last tests of this file: nothing runs after them."""
    assert alert not in world.watched.firing()
    running: Running = getattr(world, process)
    running.stop(signal.SIGKILL)
    eventually(lambda: alert in world.watched.firing())
