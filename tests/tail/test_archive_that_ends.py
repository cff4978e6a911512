"""Trimming ends an archive: `check` names what the topic's retention then deletes, before an agent does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.scenarios.house import eventually
from tests.tail.test_leaders_that_move import FetchHouse, copied_to
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
ARCHIVE = ("--set", "trim.enabled=false")
YEARS_AGO_MS = 2 * 365 * 24 * 3600 * 1000


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[FetchHouse]:
    made = FetchHouse(kafka, tmp_path, "archive-ends")
    try:
        made.run("init")
        yield made
    finally:
        made.close()


def keep_a_week(house: FetchHouse, topic: str) -> None:
    week = ConfigEntry("retention.ms", str(7 * 24 * 3600 * 1000), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[week])
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)


def facts_row(house: FetchHouse, *flags: str) -> tuple[str, str]:
    row = next(each for each in house.json("check", *flags) if each["check"] == "facts")
    return row["state"], row["detail"]


def test_check_names_what_retention_deletes_once_trimming_is_on(house: FetchHouse) -> None:
    topic = house.create("old", retention_ms=str(10 * 365 * 24 * 3600 * 1000))
    producer = Producer({**house.kafka.client_config, "linger.ms": 5})
    for number in range(300):
        producer.produce(topic, b"%0120d" % number, timestamp=int(time.time() * 1000) - YEARS_AGO_MS)
    assert producer.flush(30) == 0
    with house.agent(*ARCHIVE):
        eventually(lambda: copied_to(house, topic) >= 299)
    assert facts_row(house)[0] == "ok"
    keep_a_week(house, topic)
    assert facts_row(house, *ARCHIVE)[0] == "ok", "an archive keeps them"
    state, detail = facts_row(house)
    assert state == "warning"
    assert f"of {topic} with " in detail
    assert "are older than retention.ms: an agent deletes them at once" in detail
