"""A broker is restored from an older backup while the object store is not: two histories that must not be mixed.

One broker is stopped and its folder copied; it goes on, and its records are copied and archived; then the copy is put
back, and everything grows past the old end, in the same epochs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks_of
from tests.scenarios.house import House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
BEFORE, LOST, AFTER = 1_500, 2_000, 4_500


@dataclass
class Restored:
    """``topic``: records 0 to `BEFORE` in both histories; from 10,000 on in the lost one, from 50,000 on in this."""

    kafka: KafkaSandbox
    house: House
    topic: str

    def values(self, *flags: str) -> list[int]:
        read = self.house.run("consume", f"{self.topic}:0", "--format", "%s\\n", *flags).stdout.splitlines()
        return [int(each) for each in read]

    @property
    def expected(self) -> list[int]:
        return [*range(BEFORE), *range(50_000, 50_000 + AFTER)]

    def work(self, code: int = 0, *flags: str) -> list[dict[str, Any]]:
        """Run an agent until all is done; return its output."""
        done = self.house.run("agent", "--once", "--json", *flags, code=code)
        return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]

    def status(self) -> dict[str, Any] | None:
        """Return the agent's status; None before a term shows its address."""
        agent_status = self.house.json("describe", self.topic)[0]["agent"]
        return agent_status if isinstance(agent_status, dict) else None

    def put_back(self, backup: Path) -> None:
        self.kafka.stop(0)
        shutil.rmtree(self.house.log_dir)
        shutil.copytree(backup, self.house.log_dir)
        self.kafka.start(0)


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    folder = tmp_path_factory.mktemp("restored")
    with KafkaSandbox(folder=folder / "kafka") as kafka:
        house = House(kafka, folder / "house", "restored")
        try:
            house.run("init")
            world = Restored(kafka, house, house.create("t"))
            house.append(world.topic, BEFORE)
            world.work()
            kafka.stop(0)
            shutil.copytree(house.log_dir, folder / "backup")
            kafka.start(0)
            house.append(world.topic, LOST, first=10_000)
            world.work()
            world.put_back(folder / "backup")
            house.append(world.topic, AFTER, first=50_000)
            yield world
        finally:
            house.close()


@pytest.mark.slow
def test_a_restored_broker_and_the_archive_of_its_lost_future_are_told_apart_and_a_person_settles_it(
    restored: Restored,
) -> None:
    house = restored.house
    lost = house.json("replay", "--source", "archive")
    events = restored.work()
    rebuilt = [each["reason"] for each in events if each["event"] == "view rebuilt"]
    assert any("history" in reason or "past the end" in reason or "ends below" in reason for reason in rebuilt), rebuilt
    failed = [each["error"] for each in events if each["event"] == "chore failed"]
    assert any("parted from its archive" in error for error in failed), events
    assert house.json("replay", "--source", "topic")["facts"] > lost["facts"], "it has not grown past the archived end"
    assert house.json("replay", "--source", "archive")["live_set_digest"] == lost["live_set_digest"]
    assert restored.values() == restored.expected

    shutil.rmtree(house.folder / "state")  # an agent without a folder takes no checkpoint of the lost future either
    events = restored.work()
    assert any("is not used" in each.get("error", "") for each in events if each["event"] == "chore failed"), events
    assert restored.values() == restored.expected
    wrong = {each["check"]: each["detail"] for each in house.json("check", code=1) if not each["ok"]}
    assert "parted from its archive" in wrong["history"]
    verified = house.json("verify", restored.topic, code=4)["findings"]
    assert any("parted from its archive" in each["what"] for each in verified), verified
    with house.agent() as agent:
        agent.says("chore failed")
        described = eventually(restored.status)
        assert described["not_trimmed_reason"] == "tier-state-unsafe"
        assert "tierstate recover --begin-history" in described["not_trimmed"]
        assert "tierstate_history_broken 1.0" in agent.metrics()

    title = "Brokers were restored from an older backup"
    (block,) = [each for each in blocks_of("docs/disasters.md") if each.heading == title]
    assert [line.split()[1:] for line in block.commands()] == [
        ["recover", "--begin-history"],
        ["recover", "--begin-history", "--execute"],
        ["keep-prefix", "--execute"],
        ["check"],
    ]
    plan = house.json("recover", "--begin-history", code=1)
    assert any(each["parted_at"] is not None and each["lost"] for each in plan["tier_partitions"])
    left = [each for row in plan["partitions"] for each in row["left"]]
    assert left
    assert not any(row["gone"] for row in plan["partitions"])
    assert house.json("recover", "--begin-history", "--execute", code=1)["begun"] == 1
    assert "have not parted" in house.run("recover", "--begin-history", code=2).stderr
    house.run("keep-prefix", "--execute")

    events = restored.work()
    assert not [each for each in events if each["event"] == "chore failed" and each["chore"] == "archive"], events
    replayed = [house.json("replay", "--source", source) for source in ("topic", "archive")]
    assert replayed[0]["live_set_digest"] == replayed[1]["live_set_digest"]
    assert house.json("replay", "--source", "archive", "--history", "0")["live_set_digest"] == lost["live_set_digest"]
    assert house.json("check")[-1]["ok"]
    assert restored.values() == restored.expected

    fresh = ("--set", "tier_state.topic=restored-fresh")  # now the topic is lost altogether
    house.run("init", *fresh)
    plan = house.json("recover", "--execute", *fresh, code=1)
    assert {each["segment_id"] for each in plan["partitions"][0]["not_restored"]} == {
        each["segment_id"] for each in left
    }
    assert restored.values(*fresh) == restored.expected
