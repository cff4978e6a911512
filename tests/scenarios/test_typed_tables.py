"""Typed tables as people run them: JSON by a schema, Avro of a registry, and Debezium's changes."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.lake.typed_tables import answer_of
from tests.lake.typed_topics import AVRO, avro_record, avro_topic
from tests.scenarios.house import eventually
from tests.scenarios.tables import Tables, listed, produced
from tests.servers.schema_registry import registry

pytestmark = pytest.mark.kafka


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
