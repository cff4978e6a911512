"""The main job on Kafka 3.9: copied, trimmed, read back by every reader, with transactions, across a broker restart.

Every record also goes to a twin, an untiered topic: the records that Kafka's own client reads of it are the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.scenarios.house import House, eventually
from tests.scenarios.workload import Workload
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BEFORE, AFTER = "before", "after"
ISOLATIONS = ("read_committed", "read_uncommitted")
Digests = list[tuple[int, int, str]]


@dataclass
class Older:
    """``ends``, ``segments_at``: the end of the log and the number of segments, before the restart and after it."""

    house: House
    topic: str
    twin: str
    url: str
    ends: dict[str, int]
    segments_at: dict[str, int]
    known: dict[tuple[str, str], Digests] = field(default_factory=dict)

    def truth(self, isolation: str, end: str) -> Digests:
        if (isolation, end) not in self.known:
            self.known[isolation, end] = self.digests(self.twin, isolation, end, "--via", "broker")
        return self.known[isolation, end]

    def digests(self, topic: str, isolation: str, end: str, *flags: str) -> Digests:
        to = str(self.ends[end])
        return self.house.digests(topic, "--isolation", isolation, "--to", to, *flags)

    def segments(self) -> list[dict[str, Any]]:
        segments_read: list[dict[str, Any]] = self.house.json("segments", f"{self.topic}:0")
        return segments_read


@pytest.fixture(scope="module")
def older(kafka_older: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Older]:
    """Tier a topic, restart the broker, and tier again; the agent has ended since."""
    house = House(kafka_older, tmp_path_factory.mktemp("older") / "house", "older")
    try:
        house.run("init")
        topic = house.create("t")
        twin = house.create("twin")
        ends, segments = {}, {}
        for number, round in enumerate((BEFORE, AFTER)):
            with closing(Workload(kafka_older.bootstrap, (topic, twin), seed=number)) as workload:
                workload.plain(20, int(time.time() * 1000))
                workload.transactions(10, int(time.time() * 1000))
                ends[round] = workload.end
            house.run("agent", "--once", "--set", f'tiering.exclude=["{twin}"]')
            eventually(lambda: len(house.logs(topic)) == 1)
            segments[round] = len(house.manifests(topic))
            if round == BEFORE:
                kafka_older.stop(0)
                kafka_older.start(0)
        _, url = house.gateway()
        yield Older(house, topic, twin, url, ends, segments)
    finally:
        house.close()


def test_it_is_the_older_release_that_answers(older: Older) -> None:
    assert "Kafka version: 3.9.1" in older.house.kafka.brokers[0].log_file.read_text()


def test_both_rounds_are_copied_and_trimmed_and_the_twin_is_whole(older: Older) -> None:
    assert 1 < older.segments_at[BEFORE] < older.segments_at[AFTER] - 1
    assert older.house.logs(older.twin)[0].stem == "0" * 20
    assert len(older.house.logs(older.twin)) == older.segments_at[AFTER] + 1
    assert int(older.house.logs(older.topic)[0].stem) > older.ends[BEFORE]
    assert not older.house.manifests(older.twin)


def test_the_restart_began_an_epoch_and_the_segment_across_it_has_both(older: Older) -> None:
    epochs = [[entry["epoch"] for entry in each["leader_epochs"]] for each in older.segments()]
    assert [len(each) for each in epochs].count(2) == 1
    assert epochs[0] != epochs[-1]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("via", ["reader", "consumer", "gateway"])
def test_all_readers_read_what_kafkas_client_reads_of_the_twin(older: Older, via: str, isolation: str) -> None:
    truth = older.truth(isolation, AFTER)
    assert truth[0][1] > 500
    flags = ["--gateway", older.url] if via == "gateway" else ["--via", via]
    assert older.digests(older.topic, isolation, AFTER, *flags) == truth


def test_transactions_were_aborted_on_both_sides_of_the_restart(older: Older) -> None:
    for end in (BEFORE, AFTER):
        committed, uncommitted = (older.truth(isolation, end) for isolation in ISOLATIONS)
        assert committed[0][1] < uncommitted[0][1]
        assert older.digests(older.topic, "read_committed", end) == committed
    assert any(each["aborted"]["count"] for each in older.segments())


def test_verify_finds_nothing_in_the_objects_of_a_3_9_broker(older: Older) -> None:
    whole = older.house.json("verify", older.topic, "--level", "3")
    assert whole["findings"] == []
    assert whole["summary"]["segments"] == older.segments_at[AFTER]
