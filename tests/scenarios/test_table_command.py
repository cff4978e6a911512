"""`tierstate table` as people run it: a real broker, both tiers, a catalog in a file, followers that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.lake.typed_tables import answer_of
from tests.lake.typed_topics import AVRO, avro_record, avro_topic
from tests.scenarios.house import House, Running, eventually, get
from tests.servers.schema_registry import registry
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 2_000


@dataclass
class Tables:
    """Topics of two partitions in both tiers, and a folder for tables."""

    house: House
    folder: Path

    def table(self, name: str) -> Table:
        """Open the table as any reader of Iceberg does."""
        catalog = load_catalog("tierstate", type="sql", uri=f"sqlite:///{self.folder}/catalog.db")
        return catalog.load_table(name)

    def rows(self, name: str) -> int:
        return self.table(name).scan().count()

    def follow(self, *flags: str, code: int = 0) -> list[dict[str, Any]]:
        rounds: list[dict[str, Any]] = json.loads(
            self.house.run("table", "follow", "--once", *flags, "--json", code=code).stdout
        )
        return rounds

    def check(self, name: str, *flags: str, code: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.house.run("table", "check", name, *flags, "--json", code=code).stdout)
        return report

    def checked(self, name: str, *flags: str) -> list[tuple[int, int, str]]:
        """Check the table; return its digests in the form of `House.digests`."""
        report = self.check(name, *flags)
        assert report["findings"] == []
        return [(each["partition"], each["rows"], each["digest"]) for each in report["partitions"]]

    def create(self, topic: str, *flags: str) -> str:
        [made] = json.loads(self.house.run("table", "create", topic, *flags, "--json").stdout)
        return str(made["table"])


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


def made(tables: Tables, name: str, partitions: int = 2) -> str:
    topic = tables.house.create(name, partitions)
    for partition in range(partitions):
        tables.house.append(topic, RECORDS, partition)
    return topic


def all_copied(tables: Tables, topic: str) -> bool:
    return all(each["local_log_start_offset"] > 0 for each in tables.house.json("describe", topic))


@pytest.mark.essential
def test_a_table_has_the_log_and_every_reader_of_iceberg_reads_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    topic = made(tables, "read")
    name = tables.create(topic)
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        [report] = tables.follow(name)
        remote = tables.rows(name)
        assert report["rows"] == remote
        assert 0 < remote < 2 * RECORDS, "what the broker alone has is not followed"
        tables.checked(name)
        [more] = tables.follow(name, "--local")
        assert more["rows"] == 2 * RECORDS - remote
        assert tables.checked(name, "--local") == tables.house.digests(topic)
        assert tables.follow(name, "--local")[0]["commits"] == 0
    table = tables.table(name)
    assert table.scan(row_filter="partition == 1 and offset >= 10 and offset < 20").to_arrow().num_rows == 10
    files = [each.file.file_path for each in table.scan().plan_files()]
    counted = duckdb.connect().execute(
        f'SELECT count(*), max("offset"), count(DISTINCT partition) FROM read_parquet({files})'
    )
    assert counted.fetchall() == [(2 * RECORDS, RECORDS - 1, 2)]
    frame = pl.scan_iceberg(table).filter(pl.col("partition") == 1).collect()
    assert frame.height == RECORDS


def test_added_partitions_join_and_deleted_records_go(tables: Tables) -> None:
    topic = made(tables, "history")
    name, kept = tables.create(topic), tables.create(topic, "--keep", "--name", "kafka.kept")
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        tables.follow(name, kept)
        admin: Any = AdminClient({**tables.house.kafka.client_config, "log_level": 0})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        tables.house.append(topic, RECORDS, 2)
        eventually(lambda: all_copied(tables, topic))
        tables.house.run("delete-records", f"{topic}:0", "--before", "500", "--execute")
        whole = tables.rows(kept)
        tables.follow(name, kept)
    assert {each["partition"] for each in tables.check(name)["partitions"]} == {0, 1, 2}
    assert tables.checked(name)[0][1] == tables.checked(kept)[0][1]
    assert tables.table(name).scan(row_filter="partition == 0 and offset < 500").count() == 0
    assert tables.table(kept).scan(row_filter="partition == 0 and offset < 500").count() == 500
    assert tables.rows(kept) > whole


def test_a_recreated_topic_stops_its_table_and_no_other(tables: Tables) -> None:
    topic, other = made(tables, "anew", 1), made(tables, "other", 1)
    name, goes_on = tables.create(topic), tables.create(other)
    admin: Any = AdminClient({**tables.house.kafka.client_config, "log_level": 0})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=60).topics)
    made(tables, "anew", 1)
    with tables.house.agent():
        eventually(lambda: all_copied(tables, other))
        done = tables.house.run("table", "follow", "--once", name, goes_on, code=2)
    assert "the topic was made anew" in done.stderr
    assert tables.rows(name) == 0
    assert tables.rows(goes_on) > 0


def metrics(running: Running) -> str:
    answer: bytes = get(f"http://{running.said()['management']}/metrics")[1]
    return answer.decode()


def test_two_services_keep_one_table_and_one_that_is_killed_is_not_missed(tables: Tables) -> None:
    topic = made(tables, "served")
    name = tables.create(topic)
    with tables.house.agent():
        folders = [f"state_dir={tables.folder / each}" for each in ("first", "second")]
        both = [tables.house.start("table", "follow", name, "--set", each) for each in folders]
        eventually(lambda: all(each.out.read_text() for each in both))
        eventually(lambda: tables.rows(name) > 0)
        both[0].stop(signal.SIGKILL)
        before = tables.rows(name)
        for partition in (0, 1):
            tables.house.append(topic, RECORDS, partition, first=RECORDS)
        eventually(lambda: tables.rows(name) > before)
        eventually(lambda: f'tierstate_table_lag_records{{table="{name}"}} 0.0' in metrics(both[1]))
        assert f'tierstate_table_stopped{{table="{name}"}} 0.0' in metrics(both[1])
        assert get(f"http://{both[1].said()['management']}/readyz")[0] == 200
        assert both[1].stop(signal.SIGTERM, seconds=10.0) == 0
        tables.follow(name, "--local")
        assert tables.checked(name, "--local") == tables.house.digests(topic)


def test_compacting_makes_few_files_of_many_and_dropping_takes_two_words(tables: Tables) -> None:
    topic = made(tables, "upkeep")
    name = tables.create(topic)
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        tables.follow(name, "--local")
    before = tables.checked(name, "--local")
    small = len(list(tables.table(name).scan().plan_files()))
    assert tables.house.json("table", "compact", name, "--dry-run")["small_files"] == small > 2
    assert tables.house.json("table", "compact", name, "--execute")["small_files"] == small
    assert len(list(tables.table(name).scan().plan_files())) == 2
    assert tables.house.json("table", "compact", name, "--execute")["commits"] == 0
    assert tables.checked(name, "--local") == before == tables.house.digests(topic)
    assert tables.house.json("table", "drop", name)["rows"] == 2 * RECORDS
    assert tables.rows(name) == 2 * RECORDS
    tables.house.run("table", "drop", name, "--execute")
    assert name not in tables.house.run("table", "list").stdout


def path_of(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def two_days_old(tables: Tables) -> None:
    """Make every file of every table old: compact leaves younger ones, which an attempt may be writing."""
    for each in (tables.folder / "warehouse").rglob("*"):
        os.utime(each, (each.stat().st_atime, each.stat().st_mtime - 2 * 86_400))


@pytest.mark.parametrize("how", ["renamed", "dropped", "another catalog", "restored catalog"])
def test_compacting_deletes_no_file_of_another_table_or_catalog(tables: Tables, how: str) -> None:
    topic = made(tables, "namesake-" + how.replace(" ", "-"), 1)
    name, catalog = tables.create(topic, "--name", "kafka.namesake"), tables.folder / "catalog.db"
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        if how == "restored catalog":
            shutil.copy(catalog, tables.folder / "backup.db")
        tables.follow(name)
        files = {path_of(each.file.file_path) for each in tables.table(name).scan().plan_files()}
        if how == "renamed":
            load_catalog("tierstate", type="sql", uri=f"sqlite:///{catalog}").rename_table(name, "kafka.renamed")
        elif how == "dropped":
            tables.house.run("table", "drop", name, "--execute")
        else:
            catalog.rename(tables.folder / "live.db")
        if how == "restored catalog":
            (tables.folder / "backup.db").rename(catalog)
        else:
            tables.create(topic, "--name", name)
        tables.follow(name)
        two_days_old(tables)
        shown = tables.house.json("table", "compact", name)
        done = tables.house.json("table", "compact", name, "--older-than", "0", "--keep-snapshots", "1", "--execute")
        assert files.isdisjoint(path_of(each) for each in shown["files"])
        assert bool(done["unknown_metadata"]) == (how == "restored catalog")
        assert all(each.exists() for each in files)
        assert tables.check(name)["findings"] == []
        if how.endswith("catalog"):
            (tables.folder / "live.db").rename(catalog)
            assert tables.check(name)["findings"] == []
        for each in {name, "kafka.renamed"} if how == "renamed" else {name}:
            tables.house.run("table", "drop", each, "--execute")


def test_a_catalog_restored_to_before_a_compaction_is_repaired(tables: Tables) -> None:
    topic = made(tables, "restored", 1)
    name, catalog, backup = tables.create(topic), tables.folder / "catalog.db", tables.folder / "backup.db"
    compaction = ("table", "compact", name, "--keep-snapshots", "1", "--older-than", "0", "--execute")
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        tables.follow(name)
        shutil.copy(catalog, backup)
        tables.follow(name, "--local")
        tables.house.json(*compaction)
        two_days_old(tables)
        dry = tables.house.run(*compaction[:-1])
        files = tables.house.json(*compaction[:-1])["files"]
        assert files
        assert all(f"would remove {each}" in dry.stderr and path_of(each).exists() for each in files)
        assert tables.house.json(*compaction)["files"] == files
        assert not any(path_of(each).exists() for each in files)
        shutil.copy(backup, catalog)
        assert "a file of the table is missing" in tables.house.run("table", "check", name, code=4).stderr
        shown = tables.house.json("table", "repair", name, "--local")
        assert (bool(shown["metadata"]), shown["executed"]) == (True, False)
        tables.house.run("table", "check", name, code=4)
        assert tables.house.json("table", "repair", name, "--local", "--execute")["metadata"] == shown["metadata"]
        assert tables.checked(name, "--local") == tables.house.digests(topic)
        assert tables.follow(name, "--local")[0]["commits"] == 0
        assert tables.house.json("table", "repair", name, "--local")["metadata"] is None


def test_list_shows_every_table_and_why_one_cannot_go_on(tables: Tables) -> None:
    """Exit codes of follow and check agree."""
    topic, untiered = made(tables, "listed", 1), "not-tiered"
    admin: Any = AdminClient({**tables.house.kafka.client_config, "log_level": 0})
    admin.create_topics([NewTopic(untiered, 1, 1)], operation_timeout=30)[untiered].result(30)
    late, sick, never = (tables.create(each, "--name", f"kafka.lists.{at}") for at, each in enumerate((topic,) * 3))
    nothing = tables.create(untiered, "--name", "kafka.lists.untiered")
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        tables.follow(late)
        path_of(tables.table(sick).metadata_location).unlink()
        refused = tables.house.run("table", "follow", "--once", nothing, code=2).stderr
        assert "the topic is not tiered" in refused
        assert "the topic is not tiered" in tables.house.run("table", "check", nothing, code=2).stderr
        behind = tables.check(never, code=1)["behind"]
        assert behind == tables.rows(late)
        assert tables.check(never, "--max-behind", str(behind))["partitions"][0]["rows"] == 0
        states = {each["table"]: (each["state"], each["lag"]) for each in tables.house.json("table", "list")}
        the_gateway_lists_the_same(tables)
    assert states[late] == ("current", 0)
    assert states[never] == ("behind", behind)
    assert states[nothing] == states[sick] == ("stopped", None)
    shown, unread = listed(tables, late), listed(tables, sick)
    assert sum(each["end_offset"] for each in shown["ends"]) == tables.rows(late)
    assert (shown["skipped"], shown["keys"], shown["values"], shown["reason"]) == ([], None, None, None)
    assert [unread[each] for each in ("ends", "skipped", "keys", "values", "lag")] == [None] * 5
    assert (shown["rows"], shown["lag_seconds"]) == (tables.rows(late), 0.0)
    assert listed(tables, never)["lag_seconds"] > 0
    head, *lines = tables.house.run("table", "list").stdout.splitlines()
    assert head.split() == "table topic rows files lag lag_seconds state last_commit skipped reason".split()
    line = next(each for each in lines if each.startswith(late))
    assert line.split() == [
        *(
            late,
            topic,
            str(tables.rows(late)),
            str(shown["files"]),
            "0",
            "0.0",
            "current",
            shown["last_commit"],
            "-",
            "-",
        )
    ]
    assert "is missing" in listed(tables, sick)["reason"]
    catalog = load_catalog("tierstate", type="sql", uri=f"sqlite:///{tables.folder}/catalog.db")
    for each in (late, sick, never, nothing):
        catalog.drop_table(each)


def the_gateway_lists_the_same(tables: Tables) -> None:
    gateway, url = tables.house.gateway("--listen", "127.0.0.1:0")
    status, body = get(f"{url}/v1/tables")
    assert status == 200
    for row, listed_row in zip(json.loads(body)["tables"], tables.house.json("table", "list"), strict=True):
        same = {**listed_row, "lag_seconds": row["lag_seconds"]}
        assert row == {name: same[name] for name in row}
        assert (row["lag_seconds"] or 0) <= (listed_row["lag_seconds"] or 0)
    assert gateway.stop(signal.SIGTERM) == 0


def test_a_service_is_ready_again_once_its_stopped_table_is_dropped(tables: Tables) -> None:
    """The catalog is its own: in the common one the service would first commit the backlog of other tests."""
    topic, folder = made(tables, "dropped-stopped", 1), tables.folder / "stopped"
    place = ("--set", f"table.folder={folder}")
    name = tables.create(topic, "--name", "kafka.stopped.t", *place)
    catalog = load_catalog("tierstate", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    with tables.house.agent():
        eventually(lambda: all_copied(tables, topic))
        iceberg = catalog.load_table(name)
        with iceberg.transaction() as transaction:
            transaction.set_properties({"tierstate.isolation": "none"})
        service = tables.house.start("table", "follow", *place, "--set", f"state_dir={folder / 'state'}")
        eventually(lambda: service.out.read_text())
        ready = f"http://{service.said()['management']}/readyz"
        eventually(lambda: get(ready)[0] == 503 and name in get(ready)[1].decode())
        catalog.drop_table(name)
        eventually(lambda: get(ready)[0] == 200)
        assert name not in metrics(service)
        assert service.stop(signal.SIGTERM, seconds=10.0) == 0


def produced(tables: Tables, topic: str, values: list[bytes | None]) -> None:
    config = {**tables.house.kafka.client_config, "log_level": 0, "enable.idempotence": True}
    producer: Any = Producer(config)
    for value in values:
        producer.produce(topic, value=value, key=b"k", partition=0)
    assert producer.flush(60) == 0


def listed(tables: Tables, name: str) -> dict[str, Any]:
    return next(each for each in tables.house.json("table", "list") if each["table"] == name)


def test_a_typed_table_shows_values_keeps_what_is_none_and_evolves(tables: Tables) -> None:
    topic = tables.house.create("typed")
    refused = tables.house.run("table", "create", topic, "--value-format", "json", code=2).stderr
    assert "json needs a schema" in refused
    name = tables.create(topic, "--value-format", "json", "--value-schema", "id int", "--key-format", "string")
    with tables.house.agent():
        produced(tables, topic, [b'{"id": 1}', b'{"id": 2, "more": true}', None, b"{", b'{"id": 5000000000}'])
        eventually(lambda: tables.follow(name, "--local") and tables.rows(name) == 5)
        wider = ["evolve", name, "--value-schema", "id bigint, more boolean"]
        changes = [
            {"field": "value.id", "before": "int32", "after": "int64"},
            {"field": "value.more", "before": "", "after": "bool"},
        ]
        shown = tables.house.json("table", *wider)
        assert (shown["changes"], shown["executed"], shown["version"]) == (changes, False, 0)
        done = tables.house.json("table", *wider, "--execute")
        assert (done["changes"], done["executed"], done["version"]) == (changes, True, 1)
        produced(tables, topic, [b'{"id": 5000000000, "more": false}'])
        [report] = tables.follow(name, "--local")
        assert (report["rows"], report["corrupt_records"]) == (1, 0)
        checked = tables.check(name, "--local")
    assert checked["findings"] == []
    [partition] = checked["partitions"]
    assert (partition["rows"], partition["corrupt_records"], partition["digest"]) == (6, 2, "")
    rows = tables.table(name).scan().to_arrow().sort_by("offset").to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [
        ("k", {"id": 1, "more": None}),
        ("k", {"id": 2, "more": None}),
        ("k", None),
        ("k", None),
        ("k", None),
        ("k", {"id": 5000000000, "more": False}),
    ]
    assert [row["_corrupt"] and row["_corrupt"]["value"] for row in rows][3:5] == [b"{", b'{"id": 5000000000}']
    state = listed(tables, name)
    assert (state["keys"], state["values"], state["version"]) == ("string", "json", 1)
    refused = tables.house.run("table", "evolve", name, "--value-schema", "id string", code=2).stderr
    assert "field=id" in refused


def test_a_table_of_the_registrys_schema_grows_with_it(tables: Tables) -> None:
    topic = tables.house.create("grown")
    with registry({at: answer_of(each) for at, each in enumerate(AVRO, 1)}) as server:
        url = f"registry.url={server.url}"
        latest = f"/subjects/{topic}-value/versions/latest"
        refused = tables.house.run("table", "create", topic, "--value-format", "avro", code=2).stderr
        assert "registry.url" in refused
        server.answers[latest] = answer_of(AVRO[0], id=1)
        name = tables.create(topic, "--value-format", "avro", "--set", url)
        with tables.house.agent():
            topic_of = avro_topic(60, Random(5))
            produced(tables, topic, [each.data for each in topic_of])
            eventually(lambda: tables.follow(name, "--local", "--set", url) and tables.rows(name) == 60)
            checked = tables.check(name, "--local", "--set", url)
        assert checked["findings"] == []
        assert checked["partitions"][0]["corrupt_records"] == sum(each.poison for each in topic_of)
        assert listed(tables, name)["version"] == 1, "both schemas were met at once"
        assert "value.tags" in tables.table(name).schema().column_names
        server.answers[latest] = answer_of(avro_record(("id", "long"), ("last", ["null", "string"])), id=9)
        grown = tables.house.json("table", "evolve", name, "--execute", "--set", url)
        assert grown["changes"] == [{"field": "value.last", "before": "", "after": "string"}]
    everything = tables.table(name).properties | {"metadata": tables.table(name).metadata.model_dump_json()}
    assert not any(server.url in text for text in everything.values()), "the registry is the settings' own"


def test_changes_of_debezium_become_a_flat_table_that_is_divided_sorted_and_reshaped(tables: Tables) -> None:
    topic = tables.house.create("changes")
    flags = ["--value-format", "json", "--value-schema", "id bigint, of string"]
    refused = tables.house.run("table", "create", topic, *flags, "--envelope", "debezium", code=2).stderr
    assert "--envelope goes with --upsert" in refused
    flat = ["--flatten", "--upsert", "id", "--envelope", "debezium", "--partition-by", "bucket(4, id)"]
    name = tables.create(topic, *flags, *flat, "--sort-by", "of")
    rows = [{"id": at % 20, "of": f"v{at}"} for at in range(100)]
    with tables.house.agent():
        produced(tables, topic, [json.dumps({"op": "u", "before": None, "after": row}).encode() for row in rows])
        produced(tables, topic, [b'{"op": "d", "before": {"id": 7}, "after": null}', None])
        eventually(lambda: tables.follow(name, "--local") and tables.rows(name) == 19)
        checked = tables.check(name, "--local")
        assert (checked["findings"], checked["partitions"][0]["rows"]) == ([], 19)
        changes = tables.house.json("table", "evolve", name, "--partition-by", "none", "--sort-by", "id", "--execute")
        assert [change["after"] for change in changes["changes"]] == ["none", "id"]
        grown = ["--value-schema", "id bigint, of string, more int"]
        assert tables.house.json("table", "evolve", name, *grown, "--execute")["changes"] == [
            {"field": "more", "before": "", "after": "int32"}
        ]
        produced(tables, topic, [b'{"op": "c", "before": null, "after": {"id": 7, "of": "again", "more": 8}}'])
        tables.follow(name, "--local", "--commit-every", "1s", "--commit-bytes", "128MiB", "--file-bytes", "64MiB")
        assert tables.check(name, "--local")["findings"] == []
    table = tables.table(name)
    shown = table.scan(selected_fields=("id", "of")).to_arrow().sort_by("id").to_pylist()
    assert shown == [*rows[80:87], {"id": 7, "of": "again"}, *rows[88:]]
    assert table.scan(row_filter="more == 8").count() == 1
    assert len(list(table.scan(row_filter="id == 5 and kafka_offset >= 0").plan_files())) == 1
