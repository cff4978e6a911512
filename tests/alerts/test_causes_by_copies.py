"""Copied disks fire alerts: a clone of the cluster that runs next to it, and a backup that is restored."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.alerts.prometheus import Prometheus, prometheus
from tests.alerts.watched import Watched
from tests.scenarios.copied_cluster import CopyOf
from tests.scenarios.house import House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.alerts, pytest.mark.kafka]
RECORDS = 1_500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


@pytest.fixture(scope="module")
def scrapes(folder: Path) -> Iterator[Prometheus]:
    with prometheus(folder) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(folder: Path) -> Iterator[KafkaSandbox]:
    with KafkaSandbox(folder=folder / "kafka") as running:
        yield running


@pytest.fixture(scope="module")
def production(kafka: KafkaSandbox, scrapes: Prometheus, folder: Path) -> Iterator[Watched]:
    """Yield a cluster with a tiered topic. The stopped broker's disks were copied to the folder ``copied``."""
    house = House(kafka, folder / "house", "copies")
    try:
        house.run("init")
        house.append(house.create("orders"), RECORDS)
        house.run("agent", "--once")
        kafka.stop(0)
        shutil.copytree(house.log_dir, folder / "copied")
        kafka.start(0)
        yield Watched(scrapes, house)
    finally:
        house.close()


def fires(watched: Watched, alert: str) -> None:
    eventually(partial(watched.fires, alert), 120)


def test_a_clone_of_the_cluster_is_on_trial_and_then_contested(
    production: Watched, kafka: KafkaSandbox, scrapes: Prometheus, folder: Path
) -> None:
    with CopyOf([folder / "copied"], kafka.cluster_id, folder / "clone") as copied:
        house = House(copied, folder / "clone-house", production.house.name)
        mine = house.config.read_text()
        house.config.write_text(mine.replace(house.store.as_uri(), production.house.store.as_uri()))
        shutil.copytree(production.house.folder / "state", house.folder / "state")
        clone = Watched(scrapes, house)
        for side in (clone, production):
            side.quiet("TierstatePrefixOnTrial", "TierstatePrefixContested")
        try:
            theirs = clone.agent()
            fires(clone, "TierstatePrefixOnTrial")
            assert not clone.fires("TierstatePrefixContested")
            ours = production.agent()
            fires(production, "TierstatePrefixContested")
            production.house.run("keep-prefix", "--execute")
            clone.retire(theirs)
            production.retire(ours)
        finally:
            house.close()


def test_a_backup_of_the_broker_that_is_put_back_has_parted_from_the_archive(scrapes: Prometheus, folder: Path) -> None:
    with KafkaSandbox(folder=folder / "restored") as kafka:
        house = House(kafka, folder / "restored-house", "restored")
        restored = Watched(scrapes, house)
        try:
            house.run("init")
            topic = house.create("orders")
            house.append(topic, RECORDS)
            house.run("agent", "--once")
            kafka.stop(0)
            shutil.copytree(house.log_dir, folder / "backup")
            kafka.start(0)
            house.append(topic, RECORDS, first=10_000)
            house.run("agent", "--once")
            kafka.stop(0)
            shutil.rmtree(house.log_dir)
            shutil.copytree(folder / "backup", house.log_dir)
            kafka.start(0)
            house.append(topic, 3 * RECORDS, first=50_000)
            restored.quiet("TierstateHistoryBroken")
            restored.agent()
            fires(restored, "TierstateHistoryBroken")
        finally:
            house.close()
