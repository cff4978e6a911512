"""`tierstate table` as people run it: a real broker, both tiers, a catalog in a file, followers that are killed."""

from __future__ import annotations

import json
import signal
from typing import Any

import duckdb
import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyiceberg.catalog import load_catalog

from tests.scenarios.house import Running, eventually, get
from tests.scenarios.tables import RECORDS, Tables, all_copied, listed, made, path_of

pytestmark = pytest.mark.kafka


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
