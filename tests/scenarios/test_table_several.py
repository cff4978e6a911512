"""Tables of several topics: each row says its topic, and a topic that goes stops only itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import House, eventually
from tests.scenarios.tables import RECORDS, Tables, all_copied, made
from tierstate.lake.columns import SPAN
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def tables(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    folder = tmp_path_factory.mktemp("several")
    house = House(kafka_own, tmp_path_factory.mktemp("house"), "several")
    with house.config.open("a") as settings:
        settings.write(f'[table]\nfolder = "{folder}"\ncommit_interval = "0s"\nfile_bytes = "64KiB"\n')
    house.run("init")
    try:
        yield Tables(house, folder)
    finally:
        house.close()


def per_topic(tables: Tables, name: str) -> dict[tuple[str, int], list[int]]:
    """Return the offsets of the rows, by topic and partition."""
    rows = tables.table(name).scan(selected_fields=("topic", "partition", "offset", "source")).to_arrow().to_pylist()
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: int(row["offset"])):
        offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
        assert row["source"] % SPAN == row["partition"]
    return offsets


def test_the_records_of_several_topics_are_rows_and_a_topic_that_goes_stops_only_itself(tables: Tables) -> None:
    first, other, third = made(tables, "first"), made(tables, "other"), made(tables, "third", 1)
    places = [(first, 0), (first, 1), (other, 0), (other, 1), (third, 0)]
    name = tables.create(first, "--also", other, "--also", third, "--name", "kafka.all")
    with tables.house.agent():
        for topic in (first, other, third):
            eventually(partial(all_copied, tables, topic))
        tables.follow(name)
        report = tables.check(name)
        assert [each["partition"] for each in report["partitions"]] == [f"{topic}-{at}" for topic, at in places]
        for seconds in (0.2, 0.6):
            running = tables.house.start("table", "follow", name, "--local")
            eventually(running.out.read_text)
            SystemClock().sleep(seconds)
            running.stop(signal.SIGKILL)
        tables.follow(name, "--local")
        assert per_topic(tables, name) == {place: list(range(RECORDS)) for place in places}
        assert tables.check(name, "--local")["findings"] == []
        before = tables.rows(name)
        assert tables.house.json("table", "compact", name, "--execute")["commits"]
        assert (tables.rows(name), tables.check(name, "--local")["findings"]) == (before, [])
        admin: Any = AdminClient({**tables.house.kafka.client_config, "log_level": 0})
        for topic in (other, third):
            admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
        eventually(lambda: not {other, third} & set(admin.list_topics(timeout=60).topics))
        made(tables, "other")
        tables.house.append(first, 10, 1, first=RECORDS)
        done = tables.house.run("table", "follow", "--once", name, "--local", code=4)
    assert "a topic of this table was deleted or made anew" in done.stderr
    assert per_topic(tables, name)[first, 1] == list(range(RECORDS + 10))
    assert tables.rows(name) == before + 10
    findings = tables.check(name, "--local", code=4)["findings"]
    assert {each["partition"] for each in findings} == {f"{other}-0", f"{other}-1", f"{third}-0"}


def test_several_topics_have_no_newest_record_of_a_key(tables: Tables) -> None:
    first, other = tables.house.create("a"), tables.house.create("b")
    refused = tables.house.run("table", "create", first, "--also", other, "--upsert", "key", code=2)
    assert "a table of several topics has a row for each record" in refused.stderr


def test_a_table_shows_its_shape_its_keys_and_the_pace(tables: Tables) -> None:
    topic = tables.house.create("shown")
    typed = ("--value-format", "json", "--value-schema", "a int", "--flatten", "--sort-by", "a")
    divided = ("--partition-by", "bucket(4, a)", "--partition-by", "day(timestamp)", "--dead-letter", "kafka.dead")
    name = "kafka.shown"
    tables.house.run("table", "create", topic, *typed, *divided, "--upsert", "a", "--name", name)
    [shown] = tables.house.json("table", "show", name)
    assert shown["partition_by"] == "bucket(4, a), day(kafka_timestamp)"
    assert {each: shown[each] for each in ("sort_by", "upsert", "dead_letter", "metadata_prefix", "branch")} == {
        "sort_by": "a",
        "upsert": "a",
        "dead_letter": "kafka.dead",
        "metadata_prefix": "kafka_",
        "branch": "main",
    }
    assert (shown["commit_every"], shown["file_bytes"]) == (0.0, 65_536)
    assert "dead_letter" in tables.house.run("table", "show", name).stdout
    [dead, listed] = [each for each in tables.house.json("table", "list") if each["topic"] == topic]
    assert dead["table"] == "kafka.dead"
    assert {each: listed[each] for each in ("partition_by", "upsert", "dead_letter")} == {
        each: shown[each] for each in ("partition_by", "upsert", "dead_letter")
    }
