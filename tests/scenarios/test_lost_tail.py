"""The end of `_tier-state` is lost in a power cut, unarchived: the bucket shows the facts, and recover adds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.house import House, run
from tierstate.log.batch import iter_batches
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 2_000
CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with KafkaSandbox(folder=tmp_path / "kafka") as kafka:
        made = House(kafka, tmp_path / "house", "tail")
        yield made
        made.close()


def cut_tail(house: House, topic: str, kind: str, number: int) -> None:
    """Lose the end of `_tier-state` from this fact of the topic on, as if it was never flushed.

    The last agent's goodbye in partition 0 is lost too: the topic does not know the heartbeat in the bucket.
    """
    facts = [each for each in house.lines("facts", topic) if each["fact"] == kind]
    cut_at = {facts[number]["tier_partition"]: facts[number]["position"]}
    house.kafka.stop(0)
    for log in house.log_dir.glob(f"{house.tier_topic}-*/*.log"):
        data = log.read_bytes()
        batches = list(iter_batches(data, source=log.name))
        partition = int(log.parent.name.rsplit("-", 1)[1])
        end = cut_at.get(partition, batches[-1].base_offset if batches and partition == 0 else None)
        if end is None:
            continue
        log.write_bytes(data[: next(each.position for each in batches if each.last_offset >= end)])
        for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
            for file in log.parent.glob(pattern):
                file.unlink()
    for name in CHECKPOINTS:
        (house.log_dir / name).unlink(missing_ok=True)
    house.kafka.start(0)


@pytest.mark.parametrize(
    ("kind", "number", "agent_ends"),
    [
        ("SegmentCopyFinished", -1, 0),
        ("SegmentCopyStarted", -1, 0),
        ("SegmentCopyFinished", 0, 0),
        ("LogStartAdvanced", 0, 3),
    ],
    ids=["last finished", "last started", "first finished", "no log start"],
)
def test_a_lost_tail_is_shown_kept_and_added_by_the_command_that_is_shown(
    house: House, kind: str, number: int, agent_ends: int
) -> None:
    house.config.write_text(house.config.read_text().replace('partial_after = "0s"', 'partial_after = "1h"'))
    house.run("init")
    topic = house.create("t")
    house.append(topic, RECORDS)
    house.run("agent", "--once")
    assert house.holds(topic, RECORDS)
    objects = house.objects()
    cut_tail(house, topic, kind, number)

    described = house.run("describe", topic, code=4).stdout
    assert "FACTS LOST" in described
    assert f"tierstate recover {topic}:0" in described
    assert "delete-records" not in described
    checked = {each["check"]: each for each in house.json("check", code=4)}
    assert not checked["facts"]["ok"]
    assert "facts are lost" in house.run("delete-records", f"{topic}:0", "--before", "1000", code=4).stderr
    swept = run("sweep", topic, "--json", "--config", str(house.config))
    stored = json.loads(swept.stdout)["found"]
    assert swept.returncode == bool(stored)
    for each in stored:
        if each["kind"] == "orphan":
            refused = house.run("sweep", topic, "--orphan", each["object_key"], "--execute", code=4).stderr
            assert f"tierstate recover {topic}:0" in refused
    contested = house.run("agent", "--once", code=agent_ends or 4).stderr
    assert agent_ends or "tierstate keep-prefix" in contested, "a copy of the cluster would look the same"
    house.run("keep-prefix", "--execute")
    for _ in range(2):
        house.run("agent", "--once", "--set", "sweep.grace=2s", code=agent_ends)
    assert set(objects) <= set(house.objects())
    assert "FACTS LOST" in house.run("describe", topic, code=4).stdout

    assert "to be written" in house.run("recover", f"{topic}:0").stdout
    assert "written" in house.run("recover", f"{topic}:0", "--execute").stdout
    assert house.holds(topic, RECORDS)
    house.run("agent", "--once")
    house.run("describe", topic)
    assert house.json("check")[-1]["ok"]
    assert house.json("verify", topic, "--level", "3")["summary"]["corrupt"] == 0
    assert house.holds(topic, RECORDS)
    assert set(objects) <= set(house.objects())
