"""The disks of a cluster are copied, and the copy starts with the same bucket: it changes nothing of production's.

One broker, stopped, its folder and the agents' state folders copied; then both go on with one bucket, in any order. The
copy keeps one segment only (``retention.bytes``), so that it would delete all others. Each house is an order.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.scenarios.copied_cluster import CopyOf
from tests.scenarios.house import House, Running, eventually, get, run
from tests.scenarios.reasons_world import shows
from tierstate.rules.reasons import Reason
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RECORDS = 3_000
NOW = ("--set", "expire.grace=0s")
WHILE_S = 12.0
"""Long enough for an agent without a proof to delete everything: it looks every few seconds."""


@dataclass
class Side:
    house: House
    topic: str

    def agent(self, *flags: str) -> Running:
        running = self.house.start("agent", *NOW, *flags)
        running.says("agent ready")
        return running

    def gives(self, what: str, reason: Reason) -> bool:
        done = run("describe", self.topic, "--json", "--config", str(self.house.config))  # 4 when facts are lost
        agent = json.loads(done.stdout)[0]["agent"]
        return isinstance(agent, dict) and agent[f"{what}_reason"] == reason

    def keeps_one_segment(self) -> None:
        admin: Any = AdminClient({**self.house.kafka.client_config, "log_level": 0})
        entries = [ConfigEntry("retention.bytes", "100000", incremental_operation=AlterConfigOpType.SET)]
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(30)


@dataclass
class Pair:
    production: Side
    clone: Side

    @property
    def objects(self) -> set[Path]:
        return set(self.production.house.objects())

    def nothing_is_deleted(self, before: set[Path]) -> None:
        end = time.monotonic() + WHILE_S
        while time.monotonic() < end:
            assert before <= self.objects, before - self.objects
            time.sleep(0.5)


def contested(agent: Running) -> bool:
    return "tierstate_prefix_contested 1.0" in agent.metrics()


def not_ready(agent: Running) -> str:
    status, body = get(f"http://{agent.says('agent ready')['management']}/readyz")
    return "" if status == 200 else body.decode()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    folder = tmp_path_factory.mktemp("copied")
    houses: list[House] = []
    with KafkaSandbox(folder=folder / "kafka") as kafka:
        try:
            pairs_by_name = {}
            for name in ("down", "running", "killed", "diverged"):
                house = House(kafka, folder / name, name)
                houses.append(house)
                house.run("init")
                production = Side(house, house.create("t"))
                house.append(production.topic, RECORDS)
                house.run("agent", "--once")
                pairs_by_name[name] = production
            kafka.stop(0)
            shutil.copytree(kafka.brokers[0].log_dir, folder / "copied")
            kafka.start(0)
            with CopyOf([folder / "copied"], kafka.cluster_id, folder / "clone") as copied:
                pairs = {}
                for name, production in pairs_by_name.items():
                    house = House(copied, folder / f"{name}-clone", name)
                    houses.append(house)
                    mine = house.config.read_text()
                    house.config.write_text(mine.replace(house.store.as_uri(), production.house.store.as_uri()))
                    shutil.copytree(production.house.folder / "state", house.folder / "state")
                    clone = Side(house, production.topic)
                    clone.keeps_one_segment()
                    pairs[name] = Pair(production, clone)
                yield pairs
        finally:
            for house in houses:
                house.close()


@shows(Reason.PREFIX_ON_TRIAL, Reason.PREFIX_CONTESTED)
def test_a_copy_that_starts_while_production_is_down_deletes_nothing_until_production_comes_back(
    pairs: dict[str, Pair],
) -> None:
    pair = pairs["down"]
    before = pair.objects
    assert len(before) >= 9
    clone = pair.clone.agent()
    eventually(partial(pair.clone.gives, "not_expired", Reason.PREFIX_ON_TRIAL))
    pair.nothing_is_deleted(before)
    production = pair.production.agent()
    eventually(lambda: contested(production) and contested(clone))
    assert "another cluster writes below this prefix" in not_ready(production)
    assert "another cluster writes below this prefix" in not_ready(clone)
    for side in (pair.production, pair.clone):
        wrong = {each["check"] for each in side.house.json("check", code=1) if not each["ok"]}
        assert "prefix" in wrong
        eventually(partial(side.gives, "not_copied", Reason.PREFIX_CONTESTED))
    pair.nothing_is_deleted(before)
    assert pair.production.house.run("keep-prefix", code=1).stdout.count("another cluster") >= 1
    pair.production.house.run("keep-prefix", "--execute")
    eventually(lambda: not contested(production) and not not_ready(production))
    pair.production.house.append(pair.production.topic, RECORDS, first=RECORDS)
    eventually(lambda: len(pair.objects - before) >= 3)
    assert contested(clone)
    assert pair.clone.house.run("keep-prefix", "--execute", code=2)
    clone.stop()
    shutil.rmtree(pair.clone.house.folder / "state")
    again = pair.clone.agent()
    eventually(lambda: contested(again))
    pair.nothing_is_deleted(before)
    assert not contested(production)
    assert pair.production.house.holds(pair.production.topic, 2 * RECORDS)
    for agent in (production, again):
        agent.stop()


def test_a_copy_with_wiped_folders_next_to_running_agents_changes_nothing(pairs: dict[str, Pair]) -> None:
    pair = pairs["running"]
    production = pair.production.agent()
    eventually(lambda: not not_ready(production))
    before = pair.objects
    shutil.rmtree(pair.clone.house.folder / "state")
    clone = pair.clone.agent()
    pair.production.house.append(pair.production.topic, RECORDS, first=RECORDS)
    eventually(lambda: contested(production) and contested(clone))
    pair.nothing_is_deleted(before)
    pair.production.house.run("keep-prefix", "--execute")
    eventually(lambda: not contested(production) and len(pair.objects - before) >= 3)
    assert pair.production.house.holds(pair.production.topic, 2 * RECORDS)
    assert before <= pair.objects
    for agent in (production, clone):
        agent.stop()


@shows(Reason.PREFIX_UNPROVEN)
def test_an_agent_that_was_killed_copies_at_once_and_trims_later(pairs: dict[str, Pair]) -> None:
    side = pairs["killed"].production
    killed = side.agent()
    eventually(lambda: "tierstate_prefix_unproven 0.0" in killed.metrics())
    killed.stop(signal.SIGKILL)
    before = set(side.house.objects())
    side.house.append(side.topic, RECORDS, first=RECORDS)
    agent = side.agent("--set", "prefix.heartbeat=20s")
    eventually(partial(side.gives, "not_trimmed", Reason.PREFIX_UNPROVEN))
    eventually(lambda: len(set(side.house.objects()) - before) >= 3)
    assert agent.stop() == 0


def test_a_new_history_and_deleted_records_in_a_copy_remove_nothing_of_production(pairs: dict[str, Pair]) -> None:
    """Production went on after the copy, and is down: in the copy the topic has diverged from the archive."""
    pair = pairs["diverged"]
    house, topic = pair.clone.house, pair.clone.topic
    pair.production.house.append(topic, RECORDS, first=RECORDS)
    pair.production.house.run("agent", "--once")
    house.append(topic, 2 * RECORDS, first=RECORDS)
    before = pair.objects
    output = run("agent", "--once", "--config", str(house.config)).stderr  # whichever it sees first
    assert "parted from its archive" in output or "another cluster writes below this prefix" in output
    house.run("recover", "--begin-history", "--execute", code=1)
    house.run("agent", "--once")
    house.run("delete-records", f"{topic}:0", "--before", "500", "--execute", "--no-wait")
    clone = pair.clone.agent()
    eventually(partial(pair.clone.gives, "not_expired", Reason.PREFIX_ON_TRIAL))
    pair.nothing_is_deleted(before)
    production = pair.production.agent()
    eventually(lambda: contested(production) and contested(clone))
    pair.nothing_is_deleted(before)
    pair.production.house.run("keep-prefix", "--execute")
    clone.stop()
    eventually(lambda: not contested(production))
    assert pair.production.house.holds(topic, 2 * RECORDS)
    production.stop()


def test_a_copy_that_stands_where_production_stood_deletes_nothing(tmp_path: Path) -> None:
    """It has the same names, a moment after production stopped: only its folders are others."""
    with KafkaSandbox(folder=tmp_path / "kafka") as kafka, closing(House(kafka, tmp_path / "same", "same")) as house:
        house.run("init")
        side = Side(house, house.create("t"))
        house.append(side.topic, RECORDS)
        house.run("agent", "--once")
        kafka.stop(0)
        disk = kafka.brokers[0].log_dir
        shutil.copytree(disk, tmp_path / "copy")
        disk.rename(tmp_path / "production")
        (tmp_path / "copy").rename(disk)
        kafka.start(0)
        pair, before = Pair(side, side), set(house.objects())
        side.keeps_one_segment()
        side.agent()
        eventually(partial(side.gives, "not_expired", Reason.PREFIX_ON_TRIAL))
        pair.nothing_is_deleted(before)
