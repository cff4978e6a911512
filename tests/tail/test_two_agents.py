"""Two agents that copy by Fetch for one cluster share its partitions; one that was frozen comes back to no harm."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scenarios.house import Running, eventually
from tests.tail.test_leaders_that_move import FetchHouse, findings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.tail.ownership import SESSION_S

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[FetchHouse]:
    made = FetchHouse(kafka, tmp_path, "two-agents")
    try:
        made.run("init")
        yield made
    finally:
        made.close()


def copied_segments(house: FetchHouse, topic: str) -> int:
    return sum(int(each["remote_segments"]) for each in house.json("describe", topic))


def local_starts(house: FetchHouse, topic: str) -> list[int]:
    return [int(each["local_log_start_offset"]) for each in house.json("describe", topic)]


def terms(agent: Running) -> int:
    return len(agent.events("term started"))


def settled(count: Callable[[], int]) -> int:
    """Return the count once it has been the same for five seconds."""
    counts = [count()]
    while len(counts) < 6 or len(set(counts[-6:])) > 1:
        time.sleep(1)
        counts.append(count())
    return counts[-1]


def test_two_agents_share_the_partitions_and_take_over_from_each_other(house: FetchHouse) -> None:
    """The tier-state topic has two partitions: each agent owns one, and works for all partitions that map to it."""
    topic = house.create("shared", partitions=8)
    with house.agent() as first:
        for partition in range(8):
            house.append(topic, 300, partition)
        eventually(lambda: copied_segments(house, topic) >= 8)
        second = house.start("agent", "--set", f"state_dir={house.folder / 'other-state'}")
        second.says("term started")
        before = settled(lambda: terms(first) + terms(second))
        for partition in range(8):
            house.append(topic, 300, partition, first=300)
        eventually(lambda: copied_segments(house, topic) >= 16)
        eventually(lambda: all(start > 300 for start in local_starts(house, topic)))
        assert terms(first) + terms(second) == before, "nobody takes a term away from an owner, and no log is emptied"
        first.process.send_signal(signal.SIGSTOP)
        eventually(lambda: terms(second) == 8, 2 * SESSION_S + 60)
        first.process.send_signal(signal.SIGCONT)
        for partition in range(8):
            house.append(topic, 300, partition, first=600)
        eventually(lambda: copied_segments(house, topic) >= 24)
    eventually(lambda: terms(second) >= 8)
    for partition in range(8):
        assert house.holds(topic, 900, partition)
    assert findings(house, topic) == []


def test_an_agent_does_not_start_next_to_agents_that_read_logs_in_another_way(house: FetchHouse) -> None:
    """Each of the two would take the other's terms, for ever."""
    by_disk = ("--set", "agent.source=disk", "--set", f"agent.log_dirs={house.log_dir}")
    house.config.write_text(house.config.read_text().replace('heartbeat = "1s"', 'heartbeat = "4s"'))
    house.create("both")
    with house.agent(*by_disk):
        refused = house.run("agent", "--set", f"state_dir={house.folder / 'other'}", code=2).stderr
        assert "another agent.source" in refused
        assert "broker 1 at " in refused
        rows = {each["check"]: each for each in house.json("check", code=1)}
        assert "broker 1 at " in rows["prefix"]["detail"]
    with house.agent():
        refused = house.run("agent", *by_disk, "--set", f"state_dir={house.folder / 'other'}", code=2).stderr
        assert "an agent by Fetch at " in refused
        house.run("check")
