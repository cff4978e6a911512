"""A store accepts connections and never answers, while Kafka goes on rolling and deleting segments."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.scenarios.house import House, eventually, opened_house
from tests.servers.needs import needs
from tests.servers.store_programs import VERSITYGW
from tests.servers.store_server import StoreServer, versitygw
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

BUCKET, REGION, KEYS = "hangs", "us-east-1", ("an-agent", "and-its-secret")
DAY_MS = 86_400_000


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, topic_name: str) -> Iterator[House]:
    with opened_house(kafka, tmp_path, topic_name) as opened:
        yield opened


@pytest.fixture
def store(house: House, tmp_path: Path) -> Iterator[StoreServer]:
    """Run a real S3 server that can be stopped at any moment as the house's store."""
    needs(VERSITYGW)
    with versitygw(tmp_path / "s3", *KEYS) as server:
        boto3.Session(*KEYS, region_name=REGION).client("s3", endpoint_url=server.url).create_bucket(Bucket=BUCKET)
        (tmp_path / "secret").write_text(KEYS[1])
        settings = house.config.read_text()
        before = f'url = "{house.store.as_uri()}"\n'
        assert before in settings
        house.config.write_text(
            settings.replace(
                before,
                f'url = "s3://{BUCKET}"\nendpoint = "{server.url}"\nregion = "{REGION}"\npath_style = true\n'
                f'access_key_id = "{KEYS[0]}"\nsecret_access_key = {{ file = "{tmp_path / "secret"}" }}\n',
            )
        )
        yield server
        server.signal(signal.SIGCONT)


def retain(house: House, topic: str, ms: int) -> None:
    """Let the broker keep records of the topic for so long from now on."""
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    entry = ConfigEntry("retention.ms", str(ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_waiting_segments_are_shown_although_the_store_never_answers(house: House, store: StoreServer) -> None:
    topic = house.create("orders", retention_ms=str(DAY_MS), local_retention_bytes="-2")

    def agents() -> dict[str, Any]:
        status: dict[str, Any] = house.json("describe", f"{topic}:0")[0]["agent"]
        return status

    with house.agent() as agent:
        house.append(topic, 1000)
        eventually(lambda: house.logs(topic)[1:] and agents().get("copied_to") == int(house.logs(topic)[-1].stem) - 1)
        store.signal(signal.SIGSTOP)
        house.append(topic, 2500, first=1000)  # the agent begins with the first rolled segment, and waits
        rolled = [int(path.stem) for path in house.logs(topic)][:-1]
        waiting = [base for base in rolled if base > agents()["copied_to"]]
        assert len(waiting) > 1
        eventually(lambda: agents()["copy_lag_segments"] == len(waiting))
        expires = agents()["uncopied_expires_at"]
        retain(house, topic, 2 * DAY_MS)
        eventually(lambda: agents()["uncopied_expires_at"] == expires + DAY_MS)
        lag = [line for line in agent.metrics().splitlines() if line.startswith("tierstate_remote_copy_lag_segments{")]
        assert [line.split()[-1] for line in lag if topic in line] == [str(float(len(waiting)))]
        away = eventually(lambda: agents()["store_away"])
        assert away.startswith("the store does not answer")
        assert agents()["not_copied_reason"] == "store-away"
        shown = house.run("describe", f"{topic}:0").stdout
        assert f"not copied    the object store is away: {away.partition(' waited_')[0]}" in shown
        (row,) = house.json("status", topic)
        assert "no tiered topic has this name" in house.run("status", "no-such-topic", topic, code=2).stderr
        assert "store away" in row["trouble"]
        store.signal(signal.SIGCONT)
        eventually(lambda: agents()["copy_lag_segments"] == 0)
        eventually(lambda: not agents()["store_away"] and agents()["not_copied_reason"] != "store-away")
    assert house.holds(topic, 3500)
