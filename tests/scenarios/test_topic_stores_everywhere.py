"""A topic whose objects are in a second store: every command and every reader finds them, or names the missing rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import House, eventually, run
from tests.scenarios.own_s3 import own_s3
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.spark.options import options_of
from tierstate.spark.sessions import local_session
from tierstate.storage.directory import DirectoryStore

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
RECORDS = 2_000


@dataclass
class Split:
    """The topic ``audit`` is in a store of its own, ``orders`` in the default one. ``plain``: settings without the
    rule. ``remote``: how many records of each topic are remote.
    """

    house: House
    audit: str
    orders: str
    url: str
    plain: Path
    remote: int

    def lacking(self, *arguments: str) -> tuple[int, str]:
        """Return exit code and text of a command whose settings lack the rule."""
        done = run(*arguments, "--config", str(self.plain))
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def split(
    request: pytest.FixtureRequest, kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Split]:
    folder = tmp_path_factory.mktemp("split")
    with ExitStack() as opened:
        if request.param == "folder":
            url, rule = (folder / "audit").as_uri(), ""
            DirectoryStore(folder / "audit").close()
        else:
            url, rule = "s3://audit/tier", opened.enter_context(own_s3(folder, "audit")).lines
        house = House(kafka, folder / "house", f"split-{request.param}")
        opened.callback(house.close)
        plain = folder / "plain.toml"
        plain.write_text(house.config.read_text().replace('/state"', '/state-plain"'))
        with house.config.open("a") as file:
            file.write(f'[table]\nfolder = "{folder}/tables"\n[store.topics.".*-audit"]\nurl = "{url}"\n{rule}')
        house.run("init")
        audit, orders = house.create("audit"), house.create("orders")
        for topic in (audit, orders):
            house.append(topic, RECORDS)
        with house.agent():
            eventually(lambda: len(house.logs(audit)) == len(house.logs(orders)) == 1)
        house.run("agent", "--once")  # archives what the other one has just copied
        house.run("backup")
        assert house.manifests(orders)
        assert not house.manifests(audit)
        yield Split(house, audit, orders, url, plain, int(house.logs(audit)[0].stem))


def test_every_reader_finds_what_a_rule_sent_elsewhere(split: Split, tmp_path: Path) -> None:
    house, audit = split.house, split.audit
    assert house.holds(audit, RECORDS)
    house.run("verify", audit, "--level", "3")
    ((_, records, digest),) = house.digests(audit, "--source", "bucket")
    assert records == split.remote
    into = (tmp_path / "lake").as_uri()
    assert house.json("export", audit, "--into", into, "--source", "bucket")["records"] == records
    assert house.json("export", audit, "--into", into, "--source", "bucket", "--check")["findings"] == []
    [made] = house.json("table", "create", audit)
    house.run("table", "follow", "--once")
    checked = house.json("table", "check", made["table"], "--source", "bucket")
    assert [(each["rows"], each["digest"]) for each in checked["partitions"]] == [(records, digest)]
    proxy, address = house.proxy("--source", "bucket")
    assert consumed(address, audit, records) == [b"%0120d" % number for number in range(records)]
    proxy.stop()


def consumed(address: str, topic: str, records: int) -> list[bytes]:
    consumer: Any = Consumer({"bootstrap.servers": address, "group.id": "anybody", "log_level": 0})
    values = list[bytes]()
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def all_read() -> bool:
            values.extend(each.value() for each in consumer.consume(500, 1))
            return len(values) >= records

        eventually(all_read)
    finally:
        consumer.close()
    return values


@pytest.mark.spark
def test_spark_reads_it_by_the_options_of_the_settings(split: Split) -> None:
    options = options_of(load_settings(split.house.config, ("view.source=bucket",), {}, None, None))
    with local_session("split", 2, memory="512m") as spark:
        frame = spark.read.format("tierstate").options(**options, subscribe=split.audit).load()
        assert frame.count() == split.remote


def test_it_comes_back_into_a_cluster_by_restore_and_drill(split: Split, tmp_path: Path, kafka: KafkaSandbox) -> None:
    house, audit, report = split.house, split.audit, tmp_path / "report.json"
    house.run("restore", audit, "--into", f"{audit}-back", "--source", "bucket", "--execute", "--verify", str(report))
    assert {each["outcome"] for each in json.loads(report.read_text())["ranges"]} == {"equal"}
    drill = house.json("drill", "--bootstrap-server", kafka.bootstrap, "--topic", audit)
    assert drill["good"]
    assert sum(each["records"] for each in drill["topics"][0]["ranges"]) == split.remote


def test_a_process_without_the_rule_names_it(split: Split, tmp_path: Path, kafka: KafkaSandbox) -> None:
    audit, orders = split.audit, split.orders
    assert split.lacking("digest", orders, "--source", "bucket")[0] == 0
    into = (tmp_path / "lake").as_uri()
    for command in (
        ("digest", audit, "--source", "bucket"),
        ("export", audit, "--into", into),
        ("export", audit, "--into", f"{into}-2", "--source", "bucket"),
        ("restore", audit, "--into", f"{audit}-lost", "--source", "bucket", "--execute"),
        ("verify", audit),
    ):
        code, text = split.lacking(*command)
        assert code == 2, (command, code, text)
        assert f"store.topics: no rule for this topic names {split.url}" in text, command
    code, text = split.lacking("drill", "--bootstrap-server", kafka.bootstrap, "--topic", audit)
    assert (code, f"no rule for this topic names {split.url}" in text) == (1, True), text
    for line in ("check", "recover", "sweep --execute"):
        code, text = split.lacking(*line.split())
        assert code != 0, (line, text)
        assert split.url in text, line


def test_a_recovery_finds_all_segments_in_both_stores(split: Split) -> None:
    house = split.house
    before = {topic: house.digests(topic) for topic in (split.audit, split.orders)}
    sweep = house.json("sweep")
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    admin.delete_topics([house.tier_topic])[house.tier_topic].result(30)
    eventually(lambda: house.tier_topic not in admin.list_topics(timeout=10).topics)
    house.run("init")
    house.run("recover", "--execute", "--agents-are-stopped")
    assert {topic: house.digests(topic) for topic in before} == before
    for topic in before:
        house.run("verify", topic, "--level", "3")
    assert house.json("sweep") == sweep
