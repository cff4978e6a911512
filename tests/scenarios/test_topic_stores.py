"""A store for some topics, on a real broker and a real S3 protocol: the rule comes later, and old segments follow."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.scenarios.house import House, eventually, run
from tests.scenarios.test_migrate import REGION, Reader
from tierstate.follower.object_names import PART_OF, STORES
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 2_000


@dataclass
class Tiers:
    """A house whose store is a folder, and a bucket for the topic ``audit``, which no setting names yet."""

    house: House
    client: Any
    bucket: str
    rule: str

    def add_rule(self) -> None:
        with self.house.config.open("a") as file:
            file.write(self.rule)

    def remote(self) -> dict[str, str]:
        """Return the storage classes of the objects in the bucket, by key."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {each["Key"]: each["StorageClass"] for page in pages for each in page.get("Contents", ())}

    def segments(self) -> list[str]:
        return [key for key in self.remote() if key.endswith(".rsm-manifest")]


@pytest.fixture
def tiers(kafka: KafkaSandbox, tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiers]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    bucket = f"audit-{topic_name.lower()}"[:63].rstrip("-")
    client.create_bucket(Bucket=bucket)
    house = House(kafka, tmp_path / "house", topic_name)
    options = f'endpoint = "{endpoint}"\nregion = "{REGION}"\nstorage_class = "STANDARD_IA"\n'
    try:
        house.run("init")
        yield Tiers(house, client, bucket, f'[store.topics.".*-audit"]\nurl = "s3://{bucket}/a"\n{options}')
    finally:
        house.close()
        client.close()
        server.stop()


def test_a_rule_that_comes_later_moves_new_segments_and_old_ones_when_asked_while_readers_read(tiers: Tiers) -> None:
    house = tiers.house
    audit, orders = house.create("audit"), house.create("orders")
    for topic in (audit, orders):
        house.append(topic, RECORDS)
    house.run("agent", "--once")
    before = house.manifests(audit)
    assert before
    assert tiers.remote() == {}
    tiers.add_rule()
    for topic in (audit, orders):
        house.append(topic, RECORDS, first=RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(audit)) == len(house.logs(orders)) == 1)
    house.run("agent", "--once")  # archives what the other one has just copied
    assert house.manifests(audit) == before
    assert len(house.manifests(orders)) > len(before)
    classes = {key.removeprefix("a/"): storage_class for key, storage_class in tiers.remote().items()}
    assert [key for key in classes if key.startswith("_tierstate")] == ["_tierstate/part-of"]
    assert {each for key, each in classes.items() if key.endswith(".log")} == {"STANDARD_IA"}
    assert {each for key, each in classes.items() if not key.endswith(".log")} == {"STANDARD"}

    def readable() -> None:
        for topic in (audit, orders):
            assert house.holds(topic, 2 * RECORDS)
            remote = house.json("verify", topic, "--level", "3")
            assert remote, topic

    readable()
    digests = house.digests(audit, "--source", "bucket")
    assert digests[0][1] > RECORDS
    sweep = house.json("sweep")
    plan = house.json("recover")["partitions"]
    assert sum(len(each["restored"]) for each in plan) == len(house.manifests()) + len(tiers.segments())
    everything = len(house.manifests()) + len(tiers.segments())

    _, url = house.gateway()
    reader = Reader(url, audit, 2 * RECORDS)
    assert not reader.round()
    thread = threading.Thread(target=reader.run)
    thread.start()
    agent = house.start("agent")
    agent.says("agent ready")
    quote = house.json("migrate", "--topic", ".*-audit")
    (way,) = quote["misplaced"].values()
    assert (quote["executed"], quote["steps"], way["objects"]) == (False, {}, 3 * len(before))
    for flags in ((), ("--finish",)):
        killed = house.start("migrate", "--topic", ".*-audit", *flags, "--execute")
        time.sleep(2.0)
        killed.stop(signal.SIGKILL)
        done = house.json("migrate", "--topic", ".*-audit", *flags, "--execute")
        assert done["executed"]
    assert set(done["steps"]) <= {"deleted"}
    reader.stop.set()
    thread.join()
    assert (reader.failure, reader.rounds > 0) == ("", True)
    agent.stop()
    assert house.manifests(audit) == []
    assert len(house.manifests()) + len(tiers.segments()) == everything
    readable()
    assert house.digests(audit, "--source", "bucket") == digests
    assert (house.json("sweep"), house.json("recover")["partitions"]) == (sweep, plan)
    assert house.json("migrate", "--topic", ".*")["misplaced"] == {}


def test_no_agent_forgets_a_store_or_shares_it_and_expired_segments_go_from_both(tiers: Tiers) -> None:
    house = tiers.house
    audit = house.create("audit")
    house.append(audit, RECORDS)
    house.run("agent", "--once")
    config = house.config.read_text()
    tiers.add_rule()
    house.append(audit, RECORDS, first=RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(audit)) == 1)
    assert tiers.segments()
    checked = house.json("check")
    assert next(
        f"s3://{tiers.bucket}/a; before" in each["detail"]
        for each in checked
        if each["check"] == f"store s3://{tiers.bucket}/a"
    )
    with_rule = house.config.read_text()
    house.config.write_text(config)
    refused = run("agent", "--once", "--config", str(house.config))
    assert refused.returncode == 2, refused.stderr
    assert "no setting names: name it last in store.topics" in refused.stderr
    assert f'"{audit}" = "s3://{tiers.bucket}/a"' in refused.stderr
    assert "no setting names" in run("check", "--config", str(house.config)).stdout
    house.config.write_text(with_rule)
    with house.agent():
        house.run("delete-records", f"{audit}:0", "--before", str(RECORDS + 500), "--execute")
        eventually(lambda: not house.manifests(audit))
        assert tiers.segments()
    house.run("verify", audit, "--level", "1")


def test_segments_of_a_rule_that_no_longer_matches_are_read_and_deleted_where_they_are(tiers: Tiers) -> None:
    house = tiers.house
    audit = house.create("audit")
    tiers.add_rule()
    house.append(audit, RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(audit)) == 1)
    _, last = tiers.segments()
    house.config.write_text(house.config.read_text().replace(".*-audit", ".*-others"))
    house.append(audit, RECORDS, first=RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(audit)) == 1 and house.manifests(audit))
        assert house.holds(audit, 2 * RECORDS)
        house.run("verify", audit, "--level", "3")
        house.run("sweep")
        assert house.json("status", audit)[0]["trouble"] == []
        house.run("delete-records", f"{audit}:0", "--before", str(RECORDS // 2), "--execute")
        eventually(lambda: tiers.segments() == [last])
    assert not {key.rpartition(".")[0] for key in tiers.remote() if ".log" in key} - {
        key.rpartition(".")[0] for key in tiers.segments()
    }
    house.run("verify", audit, "--level", "1")
    moved = house.json("migrate", "--topic", ".*-audit", "--execute")
    assert set(moved["steps"]) == {"streamed"}
    house.run("migrate", "--topic", ".*-audit", "--finish", "--execute")
    assert tiers.segments() == []


@contextmanager
def silent_s3(bucket: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the URL of an S3 server that takes connections and never answers, and a function that lets it answer."""
    with ExitStack() as opened:
        silent = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = silent.getsockname()[1]
        url = f"http://127.0.0.1:{port}"

        def answer() -> Any:
            silent.close()
            server = ThreadedMotoServer("127.0.0.1", port=port, verbose=False)
            server.start()
            opened.callback(server.stop)
            client = boto3.client("s3", endpoint_url=url, region_name=REGION)
            opened.callback(client.close)
            client.create_bucket(Bucket=bucket)
            return client

        yield url, answer


def test_a_store_of_topics_that_is_away_at_the_start_stops_only_its_own_topics_until_it_is_back(tiers: Tiers) -> None:
    house, bucket = tiers.house, f"b{tiers.bucket}"[:63]
    audit, orders = house.create("audit", partitions=6), house.create("orders")
    for partition in range(6):  # more than copy.concurrency
        house.append(audit, RECORDS, partition=partition)
    house.append(orders, RECORDS)
    with silent_s3(bucket) as (url, answer):
        options = f'endpoint = "{url}"\nregion = "{REGION}"\n'
        with house.config.open("a") as file:
            file.write(f'[store.topics.".*-audit"]\nurl = "s3://{bucket}/a"\n{options}')
        with house.agent() as agent:
            eventually(lambda: len(house.logs(orders)) == 1, 40.0)  # copied and trimmed
            assert not house.manifests(audit)
            status = eventually(
                lambda: next(
                    (
                        each["agent"]
                        for each in house.json("describe", f"{audit}:0")
                        if each["agent"].get("not_copied_reason") == "store-away"
                    ),
                    None,
                )
            )
            assert f"s3://{bucket}/a" in status["not_copied"]
            assert f"s3://{bucket}/a" in status["store_away"]
            assert house.json("describe", f"{orders}:0")[0]["agent"]["store_away"] is None
            (sample,) = [line for line in agent.metrics().splitlines() if f'store="s3://{bucket}/a"' in line]
            assert (sample.startswith("tierstate_object_store_away"), sample.split()[-1]) == (True, "1.0")
            wrong = [
                each
                for each in json.loads(run("check", "--json", "--config", str(house.config)).stdout)
                if each["state"] == "wrong"
            ]
            assert [each["check"] for each in wrong] == [f"store s3://{bucket}/a"]
            _, gateway = house.gateway()
            assert not Reader(gateway, orders, RECORDS).round()
            sweep = run("sweep", "--json", "--config", str(house.config))
            assert (sweep.returncode, f"s3://{bucket}/a" in sweep.stderr) == (3, True)
            assert not list((house.store / STORES).rglob("*"))
            client = answer()
            eventually(lambda: all(len(house.logs(audit, partition)) == 1 for partition in range(6)))
            keys = [each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]]
            assert f"a/{PART_OF}" in keys
            assert len(list((house.store / STORES).iterdir())) == 1
            assert not Reader(gateway, audit, RECORDS).round()
        house.run("sweep")
        assert house.holds(audit, RECORDS, partition=5)
