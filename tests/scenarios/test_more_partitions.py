"""The tier-state topic has more partitions than it was made with: its keys stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.scenarios.house import House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


def test_an_agent_goes_on_with_the_partitions_that_map_keys_and_check_names_the_others(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    house = House(kafka, tmp_path / "house", "more-partitions")
    house.run("init")
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(house.tier_topic, 5)])[house.tier_topic].result(30)
    assert "its last 3 partitions, added later, stay empty" in house.run("check").stdout
    topic = house.create("orders")
    house.append(topic, 2000)
    with house.agent() as agent:
        eventually(lambda: house.manifests(topic))
        assert agent.stop() == 0
