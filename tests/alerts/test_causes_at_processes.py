"""Faults of processes, disks, clocks and the store fire alerts: one broker with two disks, one agent after another.

The tests run in the order in which they stand: each leaves the cluster as the next one needs it.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.alerts.prometheus import Labels, prometheus
from tests.alerts.rules import expression
from tests.alerts.watched import Watched
from tests.broker.beheading import alter, cut
from tests.scenarios.house import House, eventually
from tests.scenarios.test_lost_disks import TwoDisks
from tests.scenarios.test_wrong_clock import TWO_DAYS_AHEAD
from tierstate.runtime.management import Health, ManagementServer
from tierstate.runtime.metrics import Metrics
from tierstate.runtime.setting_types import Address
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.alerts, pytest.mark.kafka]
RECORDS = 2_500
IMPATIENT = """
import sys
from tierstate.app.looking import watching
watching.SLACK_S, watching.BROKER_S = 5.0, 5.0
from tierstate.cli.main import main
sys.exit(main())
"""
"""The command line of an agent that considers a thread hanging after 10 s, not after 40 minutes."""


@dataclass
class World:
    """``other``: a second `House`, for a gateway, with a tier-state topic of its own."""

    disks: TwoDisks
    watched: Watched
    other: Watched

    @property
    def house(self) -> House:
        return self.watched.house

    @cached_property
    def admin(self) -> Any:
        return AdminClient({**self.house.kafka.client_config, "log_level": 0})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("processes")
    both = f"{folder / 'kafka' / 'broker-1' / 'data'},{folder / 'kafka' / 'broker-1' / 'more'}"
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    with KafkaSandbox(folder=folder / "kafka", properties={"log.dirs": both, **quick}) as kafka:
        with prometheus(folder) as scrapes:
            disks = TwoDisks(kafka, folder / "house")
            other = House(kafka, folder / "other", "other")
            try:
                other.run("init")
                yield World(disks, Watched(scrapes, disks.house), Watched(scrapes, other))
            finally:
                disks.house.close()
                other.close()


def fires(watched: Watched, alert: str, instead: Mapping[str, str] | None = None) -> list[Labels]:
    """Return the labels with which the alert fires. Fail the test if it does not fire."""
    labels: list[Labels] = eventually(partial(watched.fires, alert, instead), 120)
    return labels


def test_an_agent_that_is_not_scraped_is_reported(world: World) -> None:
    assert world.watched.prometheus.ask(expression("TierstateNoAgent"))
    agent = world.watched.agent()
    assert not world.watched.prometheus.ask(expression("TierstateNoAgent"))
    world.disks.append(0)
    world.disks.append(1)
    eventually(lambda: world.disks.copied(0) and world.disks.copied(1))
    eventually(lambda: not world.watched.firing())
    world.watched.retire(agent)


def test_two_agents_at_one_broker_flap(world: World) -> None:
    """The second agent cannot see the lock of the first, as on a file system without locks."""
    one = world.watched.agent()
    world.watched.quiet("TierstateTermsFlap")
    for folder in (world.disks.first, world.disks.second):
        (folder / ".tierstate.lock").unlink()
    other = world.watched.agent("--set", f"state_dir={world.house.folder / 'another'}")
    fires(world.watched, "TierstateTermsFlap")
    for agent in (one, other):
        world.watched.retire(agent)


def test_an_agent_that_is_killed_while_it_copies_leaves_an_abandoned_segment(world: World) -> None:
    topic = world.house.create("cut")
    world.house.append(topic, RECORDS)
    world.watched.quiet("TierstateAbandonedSegments")
    slow = world.house.start("agent", "--set", "copy.quota=5000", "--set", "format.compression=none")
    eventually(lambda: any("copy-started" in fact["key"] for fact in world.house.lines("facts", topic)))
    slow.stop(signal.SIGKILL)
    agent = world.watched.agent()
    fires(world.watched, "TierstateAbandonedSegments")
    world.watched.retire(agent)


def test_a_damaged_archive_cannot_be_kept_up(world: World) -> None:
    world.watched.quiet("TierstateUpkeepFails")
    pieces = {path: path.read_bytes() for path in world.house.store.rglob("archive/*")}
    for path, whole in pieces.items():
        path.write_bytes(bytes(len(whole)))
    agent = world.watched.agent()
    chores = {labels["chore"] for labels in fires(world.watched, "TierstateUpkeepFails")}
    assert chores <= {"archive", "archive cut", "checkpoint"}
    world.watched.retire(agent)
    for path, whole in pieces.items():
        path.write_bytes(whole)


def test_a_store_that_is_taken_away_keeps_an_agent_from_its_proof_and_its_readiness(world: World) -> None:
    agent = world.watched.agent()
    world.watched.quiet("TierstateNotReady", "TierstatePrefixUnproven")
    away = world.house.store.rename(world.house.folder / "away")
    fires(world.watched, "TierstatePrefixUnproven")
    fires(world.watched, "TierstateNotReady")
    assert world.watched.value("tierstate_object_store_away") == 1
    away.rename(world.house.store)
    world.watched.retire(agent)


def test_a_key_ring_that_cannot_be_used_is_refused(world: World) -> None:
    keys = world.house.folder / "keys"
    world.house.run("keys", "new", "key1", "--bits", "2048", "--dir", str(keys))
    agent = world.watched.agent("--set", f"encryption.keyring={keys / 'keyring.toml'}")
    world.watched.quiet("TierstateKeyRingRefused")
    (keys / "keyring.toml").write_text("half of a file")
    world.disks.append(0)
    fires(world.watched, "TierstateKeyRingRefused")
    world.watched.retire(agent)


def test_a_clock_that_is_two_days_ahead_is_noticed(world: World) -> None:
    world.watched.quiet("TierstateClockWrong")
    agent = world.watched.agent(program=TWO_DAYS_AHEAD)
    world.house.append(world.disks.topic, RECORDS, first=2 * RECORDS)
    fires(world.watched, "TierstateClockWrong")
    world.watched.retire(agent)


def test_a_disk_that_never_answers_makes_a_thread_hang(world: World) -> None:
    topic = world.house.create("hangs")
    world.house.run("pause", topic)
    world.house.append(topic, RECORDS)
    patience = ("--set", "store.request_timeout=1s", "--set", "store.throttle_timeout=1s")
    agent = world.watched.agent(*patience, program=IMPATIENT)
    world.watched.quiet("TierstateLoopHangs")
    index = world.house.logs(topic)[0].with_suffix(".timeindex")
    kept = index.rename(index.with_suffix(".kept"))
    os.mkfifo(index)
    world.house.run("resume", topic)
    fires(world.watched, "TierstateLoopHangs")
    world.watched.prometheus.forget(world.watched.addresses[agent.process.pid])
    agent.stop(signal.SIGKILL)
    kept.rename(index)


def test_a_gauge_that_fails_is_counted(world: World) -> None:
    """Only a bug makes a gauge fail. So the exposition and its port are ours, and the gauge is the test's."""
    world.watched.quiet("TierstateGaugesUnreadable")
    metrics = Metrics()

    def broken() -> list[tuple[tuple[str, ...], float]]:
        raise RuntimeError("a bug")

    metrics.gauge("tierstate_integrity_holds", broken)
    health = Health(list, list, metrics.exposition, lambda topic, partition: None)
    server = ManagementServer(Address("127.0.0.1", 0), health)
    serving = server.service()
    serving.start()
    world.watched.prometheus.scrape("tierstate-agent", str(server.address), world.watched.cluster)
    fires(world.watched, "TierstateGaugesUnreadable")
    world.watched.prometheus.forget(str(server.address))
    serving.stop()
    assert serving.join(10)


def test_a_tier_state_topic_that_is_changed_cut_and_deleted_is_not_safe(world: World) -> None:
    """The metrics are those of a gateway. The last part is about a follower that is behind."""
    gateway, _ = world.other.gateway()
    eventually(lambda: world.other.value("tierstate_topic_problems") == 0)
    world.other.quiet("TierstateTopicDrifted", "TierstateHeadLost", "TierstateNotReady")
    kafka, topic = world.disks.kafka, world.other.house.tier_topic
    alter(world.admin, topic, "max.compaction.lag.ms", "9223372036854775807")
    for partition in (0, 1):
        cut(kafka, topic, partition, -1)
    fires(world.other, "TierstateTopicDrifted")
    fires(world.other, "TierstateHeadLost")
    world.admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    fires(world.other, "TierstateNotReady", {"> 300": "> 20"})
    world.other.prometheus.forget(world.other.addresses[gateway.process.pid])


def test_a_broker_that_is_away_and_comes_back_without_a_disk_and_without_a_folder(world: World) -> None:
    agent = world.watched.agent()
    world.watched.quiet("TierstateNotReady", "TierstateLogFolderLost", "TierstateOutOfLineage")
    world.disks.kafka.kill(0)
    fires(world.watched, "TierstateNotReady")
    assert world.watched.value("tierstate_discovery_failing") == 1
    world.disks.lose()
    shutil.rmtree(world.disks.first / f"{world.disks.topic}-0")
    world.disks.kafka.start(0)
    world.house.append(world.disks.topic, RECORDS)
    fires(world.watched, "TierstateLogFolderLost")
    fires(world.watched, "TierstateOutOfLineage")
    world.watched.retire(agent)
