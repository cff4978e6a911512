"""Stories: scenarios in the language of `story.py`, on the clusters of `tests/conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.native_tiers import kafkas_own_tiers
from tests.lake.typed_logs import AVRO, avro_order
from tests.scenarios.exported import ORDERS, RECORDS, TYPED, Lake, produce, remote_ends
from tests.scenarios.house import House, eventually
from tests.scenarios.reasons_world import Desk, NewReasonTopic, ReasonTopic
from tests.scenarios.story import Story, telling
from tests.scenarios.tables import Tables
from tierstate.sandbox.kafka import KafkaSandbox

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Access lists that deny nothing yet."""


@pytest.fixture
def story(kafka: KafkaSandbox, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """A story on the shared broker: never stop that."""
    with telling(kafka, tmp_path, request.node.name) as new_story:
        yield new_story


@pytest.fixture
def story_three(kafka_three: KafkaSandbox, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """A story on the three brokers of this file."""
    with telling(kafka_three, tmp_path, request.node.name) as new_story:
        yield new_story


@pytest.fixture(scope="module")
def kafka_own(request: pytest.FixtureRequest) -> Iterator[KafkaSandbox]:
    """One broker for one file of tests, which may stop and start it."""
    failed = request.session.testsfailed
    sandbox = KafkaSandbox().open()
    yield sandbox
    sandbox.close(keep_logs=request.session.testsfailed > failed)


@pytest.fixture
def story_own(kafka_own: KafkaSandbox, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """A story on the one broker of this file."""
    with telling(kafka_own, tmp_path, request.node.name) as new_story:
        yield new_story


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """A broker for one file of tests, with Kafka's own tiers for the topic that asks for them."""
    with KafkaSandbox(properties=GUARDED | kafkas_own_tiers(tmp_path_factory.mktemp("tiers"))) as opened:
        yield opened


@pytest.fixture
def topic_for(guarded_kafka: KafkaSandbox, topic_name: str, tmp_path: Path) -> NewReasonTopic:
    def topic(sections: dict[str, dict[str, Any]] | None = None, **config: str) -> ReasonTopic:
        made = ReasonTopic(guarded_kafka, topic_name[-80:].strip("-"), tmp_path / "store", sections=sections or {})
        made.create(**{name.replace("_", "."): value for name, value in config.items()})
        return made

    return topic


@pytest.fixture
def topic(topic_for: NewReasonTopic) -> ReasonTopic:
    """A topic with two rolled segments and an active one; no agent has seen it."""
    made = topic_for()
    made.roll()
    return made


@pytest.fixture
def desk(topic: ReasonTopic) -> Iterator[Desk]:
    """The agent's worker of that topic, with nothing left to do."""
    with topic.desk() as opened:
        opened.work()
        yield opened


@pytest.fixture(scope="module")
def lake(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    house = House(kafka_own, tmp_path_factory.mktemp("lake"), "lake")
    topic, orders, avro = house.create("orders", 2), house.create("json"), house.create("avro")
    house.run("init")
    try:
        for partition in (0, 1):
            house.append(topic, RECORDS, partition)
        produce(house, orders, ORDERS)
        produce(house, avro, [avro_order(number, AVRO, 1) for number in range(TYPED)])
        with house.agent():
            eventually(lambda: all(each["local_log_start_offset"] > 0 for each in house.json("describe", topic)))
            eventually(lambda: remote_ends(house, topic) == remote_ends(house, topic, "--source", "bucket"))
            eventually(lambda: remote_ends(house, orders) not in ([], [None]))
        yield Lake(house, topic, tmp_path_factory.mktemp("exports"), orders, avro)
    finally:
        house.close()


@pytest.fixture
def own(lake: Lake, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """Return a folder of this test's own, not made yet."""
    return lake.place("".join(each if each.isalnum() else "-" for each in request.node.name))


@pytest.fixture(scope="module")
def tables(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    folder = tmp_path_factory.mktemp("tables")
    house = House(kafka, tmp_path_factory.mktemp("house"), "tables")
    with house.config.open("a") as settings:
        settings.write(f'[table]\nfolder = "{folder}"\ncommit_interval = "0s"\nfile_bytes = "64KiB"\n')
    house.run("init")
    try:
        yield Tables(house, folder)
    finally:
        house.close()
