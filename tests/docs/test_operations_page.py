"""Blocks of `docs/operations.md`, `docs/upgrade.md` and `docs/encryption.md`, typed on a real broker."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from getpass import getuser
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.docs.blocks import Block, executed
from tests.docs.page_shell import PageShell, types
from tests.scenarios.house import House, eventually
from tests.scenarios.test_drill import deleted
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.extended]

OPERATIONS = executed("docs/operations.md", __file__)
UPGRADE = executed("docs/upgrade.md", __file__)
ENCRYPTION = executed("docs/encryption.md", __file__)
RECORDS = 4_000
GROUPS = {
    "orders": ("$ tierstate pause", "$ tierstate delete-records", "tierstate check", "$ tierstate facts",
               "$ tierstate verify", "tierstate keep-prefix\n", "tierstate keep-prefix --execute"),
    "transaction": ("$ tierstate describe orders:0",),
    "recovery": ("$ tierstate recover\n",),
}  # fmt: skip
"""The begin of each block, by the test that types it."""


def block(begin: str) -> Block:
    (match,) = [block for block in OPERATIONS if block.code.startswith(begin)]
    return match


def test_every_block_is_typed_by_one_of_these_tests() -> None:
    typed = [block(begin) for group in GROUPS.values() for begin in group]
    assert sorted(map(str, typed)) == sorted(map(str, OPERATIONS))


@contextmanager
def world(kafka: KafkaSandbox, folder: Path, name: str) -> Iterator[tuple[House, PageShell]]:
    """Yield a `House` whose topic is the page's ``orders``, and a shell for the page."""
    house = House(kafka, folder / "house", f"page-{name}")
    with closing(house):
        house.config.write_text(house.config.read_text().replace("partitions = 2", "partitions = 1"))
        house.run("init")
        meant = {
            "orders": f"{house.name}-t",
            "_tier-state": house.tier_topic,
            "root@vm": f"{getuser()}@{socket.gethostname()}",
            "127.0.0.1:30170": kafka.bootstrap,
            "/etc/tierstate/keys": str(folder / "keys"),
        }
        shell = PageShell(folder / "shell", meant, {"TIERSTATE_CONFIG": str(house.config)}, forks=True)
        try:
            yield house, shell
        finally:
            shell.close()


def test_the_blocks_about_orders_facts_and_objects(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with world(kafka, tmp_path, "orders") as (house, shell):
        topic = house.create("t", partitions=2)
        house.append(topic, RECORDS)
        shell.meant["17000"] = "1900"
        with house.agent("--set", "archive.partial_after=10m", "--set", "expire.grace=0s"):
            eventually(lambda: len(house.logs(topic)) == 1)
            house.run("pause", f"{topic}:0")
            eventually(lambda: "pause ordered" in house.run("describe", f"{topic}:0").stdout)
            types(shell, block("$ tierstate pause"))
            house.run("resume", topic)
            types(shell, block("$ tierstate delete-records"))
            eventually(lambda: "SegmentDeleteFinished" in house.run("facts", f"{topic}:0").stdout)
            types(shell, block("$ tierstate facts"))
            types(shell, block("tierstate check"))
            types(shell, block("tierstate keep-prefix\n"))
            types(shell, block("tierstate keep-prefix --execute"))
            for part in UPGRADE:
                types(shell, part)
        (command, _) = block("$ tierstate verify").examples()[0]
        lost = sorted(house.store.rglob("*.log"))[-1]
        lost.rename(tmp_path / "elsewhere")
        types(shell, block("$ tierstate verify"), {command: 4})
        (tmp_path / "elsewhere").rename(lost)
        assert shell.type(command).returncode == 0


def test_the_block_about_an_open_transaction(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with world(kafka, tmp_path, "transaction") as (house, shell):
        topic = house.create("t")
        house.append(topic, RECORDS // 2)
        with house.agent():
            eventually(lambda: len(house.logs(topic)) == 1)
            open_transaction(house, topic)
            eventually(lambda: "does it hang?" in house.run("describe", f"{topic}:0").stdout)
            types(shell, block("$ tierstate describe orders:0"))


def open_transaction(house: House, topic: str) -> None:
    """Leave a transaction open that begins below a rolled segment."""
    config = {**house.kafka.client_config, "transactional.id": topic, "log_level": 0, "batch.size": 10_000}
    producer: Any = Producer(config)
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(RECORDS // 2):
        producer.produce(topic, b"x" * 120)
    assert producer.flush(60) == 0


def test_the_block_about_a_lost_tier_state_topic(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with world(kafka, tmp_path, "recovery") as (house, shell):
        topic = house.create("t")
        house.append(topic, RECORDS)
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(topic)) == 1)
        whole = house.digests(topic)
        deleted(house, house.tier_topic)
        shutil.rmtree(house.folder / "state")
        house.run("init")
        types(shell, block("$ tierstate recover\n"))
        assert house.digests(topic) == whole


def test_the_blocks_about_keys(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with world(kafka, tmp_path, "keys") as (house, shell):
        commands, ring = ENCRYPTION
        making, listing = commands.commands()
        done = shell.type(making)
        assert done.returncode == 0, done
        written = (tmp_path / "keys" / "keyring.toml").read_text()
        assert written.split() == ring.code.split()
        with house.config.open("a") as settings:
            settings.write(f'[encryption]\nkeyring = "{tmp_path / "keys" / "keyring.toml"}"\n')
        topic = house.create("t")
        house.append(topic, RECORDS // 2)
        house.run("agent", "--once")
        done = shell.type(listing)
        assert done.returncode == 0, done
        assert "key1" in done.stdout
