"""`tierstate migrate` on a real broker and a real S3 protocol: an agent copies, a gateway reads, it is killed."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from tests.scenarios.house import House, eventually, run
from tests.scenarios.reasons_world import ACTS, shows
from tierstate.rules.reasons import Reason
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
REGION = "us-east-1"
RECORDS = 2_000


@dataclass
class Buckets:
    """An S3 server with two buckets, and a house whose store is the old one."""

    house: House
    client: Any
    old: str
    new: str

    def keys(self, bucket: str) -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {each["Key"] for page in pages for each in page.get("Contents", ())}

    def manifests(self, bucket: str) -> set[str]:
        return {key for key in self.keys(bucket) if key.endswith(".rsm-manifest")}


@pytest.fixture
def buckets(kafka: KafkaSandbox, tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Buckets]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    old, new = (f"{side}-{topic_name.lower()}"[:63].rstrip("-") for side in ("old", "new"))  # moto keeps them all
    for bucket in (old, new):
        client.create_bucket(Bucket=bucket)
    house = House(kafka, tmp_path / "house", topic_name)
    before = f'url = "{house.store.as_uri()}"\n'
    after = f'url = "s3://{old}/tier"\nendpoint = "{endpoint}"\nregion = "{REGION}"\npath_style = true\n'
    house.config.write_text(house.config.read_text().replace(before, after))
    try:
        house.run("init")
        yield Buckets(house, client, old, new)
    finally:
        house.close()
        client.close()
        server.stop()


@dataclass
class Reader:
    """Reads all remote records again and again by a gateway that was started before the move."""

    url: str
    topic: str
    records: int
    rounds: int = 0
    failure: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set() and not self.failure:
            self.failure = self.round()
            self.rounds += not self.failure

    def round(self) -> str:
        following, values = 0, list[str]()
        path = f"{self.url}/v1/topics/{self.topic}/partitions/0/records"
        while following < self.records:
            answer = httpx.get(path, params={"offset": following, "max_bytes": 50_000}, timeout=60)
            if answer.status_code != 200:
                return f"at {following}: {answer.text}"
            values += [json.loads(line)["value"] for line in answer.text.splitlines()]
            following = int(answer.headers["x-next-offset"])
        expected = [f"{number:0120d}" for number in range(self.records)]
        return "" if values[: self.records] == expected else f"{len(values)} other records"


def test_a_bucket_moves_while_an_agent_copies_and_readers_read_and_migrate_is_killed(buckets: Buckets) -> None:
    house, old, new, chance = buckets.house, buckets.old, buckets.new, random.Random(1)
    topic, records = house.create("t"), RECORDS
    house.append(topic, records)
    agent = house.start("agent")
    agent.says("agent ready")
    eventually(lambda: len(house.logs(topic)) == 1)
    _, url = house.gateway()
    reader = Reader(url, topic, records)
    assert not reader.round()
    thread = threading.Thread(target=reader.run)
    thread.start()
    quote = house.json("migrate", "--to", f"s3://{new}/tier")
    assert (quote["executed"], quote["by_store"], quote["state"]) == (False, True, "none")
    assert quote["objects"] == len([key for key in buckets.keys(old) if not key.endswith("/lock")])
    assert buckets.keys(new) == set()

    for seconds in (2.0, *(chance.uniform(2.5, 20) for _ in range(3))):
        migrate = house.start("migrate", "--to", f"s3://{new}/tier", "--execute")
        time.sleep(seconds)
        migrate.stop(signal.SIGKILL)
        house.append(topic, 500, first=records)
        records += 500
    done = house.json("migrate", "--execute")
    assert done["executed"]
    assert house.json("migrate")["state"] == "arrived"

    eventually(lambda: len(agent.events("agent ready")) == 2)
    before = buckets.manifests(old)
    house.append(topic, RECORDS, first=records)
    records += RECORDS
    eventually(lambda: len(buckets.manifests(new)) > len(before) and len(house.logs(topic)) == 1)
    assert buckets.manifests(old) == before, "the agent writes to the new bucket only"
    assert house.holds(topic, records)
    assert not Reader(url, topic, records).round(), "the gateway follows"

    digests = house.digests(topic, "--source", "bucket")
    assert digests == house.digests(topic, "--source", "bucket", "--store", f"s3://{new}/tier")
    finished = house.json("migrate", "--finish", "--execute")
    assert finished["steps"]["deleted"]["objects"] > len(before)
    reader.stop.set()
    thread.join()
    assert (reader.failure, reader.rounds > 0) == ("", True)
    assert {key for key in buckets.keys(old) if "/move/" not in key and not key.endswith("/lock")} == set()
    refused = house.run("migrate", "--to", f"s3://{new}/third", code=2).stderr
    assert f"set store.url to where they are. target=s3://{new}/tier" in refused
    assert not Reader(url, topic, records).round()
    assert house.holds(topic, records)
    assert house.digests(topic, "--source", "bucket") == digests
    house.run("verify", topic, "--level", "2")
    agent.stop()


@shows(Reason.STORE_MOVES)
def test_a_move_that_is_cancelled_changes_nothing_and_a_store_in_use_is_no_target(buckets: Buckets) -> None:
    house, old, new = buckets.house, buckets.old, buckets.new
    topic = house.create("t")
    house.append(topic, RECORDS)
    house.run("agent", "--once")
    buckets.client.put_object(Bucket=new, Key="other/a.log", Body=b"1")
    refused = run("migrate", "--to", f"s3://{new}/other", "--execute", "--config", str(house.config))
    assert refused.returncode == 2
    assert "name an empty prefix" in refused.stderr
    for inside in ("", "/tier/new"):
        refused = run("migrate", "--to", f"s3://{old}{inside}", "--execute", "--config", str(house.config))
        assert "one prefix contains the other" in refused.stderr
    assert "no move has begun here" in house.run("migrate", code=2).stderr
    with house.agent() as agent:
        migrate = house.start("migrate", "--to", f"s3://{new}/tier", "--execute")
        eventually(lambda: "tier/_tierstate/move/moved" in buckets.keys(old))
        migrate.stop(signal.SIGKILL)
        house.append(topic, RECORDS, first=RECORDS)
        assert house.holds(topic, 2 * RECORDS)
        eventually(lambda: house.json("status", topic)[0]["trouble"] == ["store moves"])
        (described,) = house.json("describe", topic)
        assert {described["agent"][f"not_{act}_reason"] for act in ACTS} == {Reason.STORE_MOVES}
        (moves,) = agent.events("the objects move: nothing is copied, trimmed or deleted")
        assert moves["target"] == f"s3://{new}/tier"
        assert "another move stands here" in house.run("migrate", "--to", f"s3://{new}/third", code=2).stderr
        house.run("migrate", "--cancel", "--execute")
        eventually(lambda: len(house.logs(topic)) == 1)
        assert len(agent.events("agent ready")) == 1
        eventually(lambda: agent.events("the move was cancelled: this agent goes on"))
        eventually(lambda: house.json("status", topic)[0]["trouble"] == [])
    assert house.holds(topic, 2 * RECORDS)
