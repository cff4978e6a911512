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
        assert terms(first) + terms(second) == before, "nobody takes a term away from an owner"
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
