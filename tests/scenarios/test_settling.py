"""Quiet restarts leave remote records readable; a person settles once what no process can know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import House, eventually, run
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.keys import tier_partition_of

pytestmark = pytest.mark.kafka

END = -1
"""All records, as in `kafka-delete-records.sh`."""


@pytest.fixture
def house(kafka_own: KafkaSandbox, tmp_path: Path, topic_name: str) -> Iterator[House]:
    opened = House(kafka_own, tmp_path / "house", topic_name[-40:].strip("-"))
    opened.run("init")
    yield opened
    opened.close()


def described(house: House, topic: str) -> dict[str, Any]:
    """Return the description with any exit code: these tests are about offsets that are in no tier."""
    done = run("describe", f"{topic}:0", "--json", "--config", str(house.config))
    description: dict[str, Any] = json.loads(done.stdout)[0]
    return description


def copied(house: House, topic: str) -> int:
    """Return how many records are remote, once all that is rolled is copied and trimmed."""
    done = eventually(
        lambda: (now := described(house, topic))["local_log_start_offset"] == int(house.logs(topic)[-1].stem) and now
    )
    return int(done["highest_remote_offset"]) + 1


def restarts(house: House) -> None:
    house.kafka.stop(0)
    house.kafka.start(0)


def loses_all(house: House, topic: str) -> None:
    """Delete all of the broker's records, even the active segment, and with them every epoch but the last."""
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    (future,) = admin.delete_records([TopicPartition(topic, 0, END)]).values()
    future.result(30)
    eventually(lambda: len(checkpoint(house, topic)) == 1)


def checkpoint(house: House, topic: str) -> list[str]:
    return (house.log_dir / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]


def newest_term(house: House, topic: str) -> tuple[int, int]:
    """Return its epoch, and the start of the broker's log then."""
    terms = [fact for fact in house.lines("facts", f"{topic}:0") if fact["fact"] == "LeaderElected"]
    return int(terms[-1]["epoch"]), int(terms[-1]["local_start"])


def reads(house: House, topic: str, records: int) -> bool:
    """Return whether a reader from the beginning gets so many records."""
    done = house.run("consume", f"{topic}:0", "-n", str(records), "--format", "%o\\n")
    return done.stdout.split() == [str(offset) for offset in range(records)]


@pytest.mark.slow
def test_what_is_remote_stays_readable_when_all_that_a_quiet_restart_left_is_gone(house: House) -> None:
    topic = house.create("quiet")
    house.append(topic, 2_500)
    with house.agent():
        remote = copied(house, topic)
        for _ in range(2):  # the second time on an empty log
            restarts(house)
            eventually(lambda: newest_term(house, topic)[0] == int(checkpoint(house, topic)[-1].split()[0]))
            loses_all(house, topic)
            eventually(lambda: newest_term(house, topic)[1] == int(checkpoint(house, topic)[0].split()[1]))
        house.append(topic, 2_500)
        assert copied(house, topic) > remote
        assert not described(house, topic)["lineage_unknown"]
        assert reads(house, topic, remote)


@pytest.mark.slow
def test_the_past_of_an_epoch_that_no_agent_saw_is_settled_by_a_person(house: House) -> None:
    topic = house.create("away")
    house.append(topic, 2_500)
    with house.agent():
        remote = copied(house, topic)
    restarts(house)
    house.append(topic, 10, first=2_500)
    loses_all(house, topic)
    with house.agent():
        eventually(lambda: described(house, topic)["lineage_unknown"])
        shown = house.run("settle", f"{topic}:0")
        assert "LINEAGE UNKNOWN" in shown.stdout
        assert "could" not in shown.stderr
        assert "nothing was done" in shown.stderr
        assert described(house, topic)["lineage_unknown"]
        house.run("settle", f"{topic}:0", "--continues", "--execute")
        eventually(lambda: not described(house, topic)["lineage_unknown"])
        assert reads(house, topic, remote)
        assert "nothing is to be settled" in house.run("settle", f"{topic}:0").stderr


def test_a_contradiction_that_a_person_settled_stays_settled_over_a_new_agent(house: House) -> None:
    topic = house.create("contradicted")
    house.append(topic, 2_500)
    with house.agent():
        copied(house, topic)
        started = next(each for each in house.lines("facts", f"{topic}:0") if each["fact"] == "SegmentCopyStarted")
        erase(house, topic, started["key"])
        (text,) = eventually(lambda: described(house, topic)["contradictions"])
        assert text in house.run("settle", f"{topic}:0").stdout
        house.run("settle", f"{topic}:0", "--contradiction", "1", "--keep", "--execute")
        assert described(house, topic)["contradictions"] == []
    before = house.objects()
    with house.agent():
        house.append(topic, 2_500, first=2_500)
        eventually(lambda: len(house.objects()) > len(before) and house.logs(topic)[0].stem != "0")
        copied(house, topic)
        now = described(house, topic)
        assert (now["contradictions"], now["holds"]) == ([], [])
        assert len(now["kept"]) == 1
        assert set(before) <= set(house.objects())


def erase(house: House, topic: str, key: str) -> None:
    """Erase a fact without its other half, which is forbidden."""
    partition = TopicIdPartition(TopicId(key.partition("/")[0]), 0)
    with closing(open_tier_topic(house.kafka.client_config, TierTopicSpec(house.tier_topic, 2, 1))) as tier_topic:
        tier_topic.append(tier_partition_of(partition, 2), key, None)
