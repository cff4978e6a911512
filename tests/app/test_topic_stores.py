"""Stores of topics by settings: which options they get, and whose they are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.app.opening.connection import Connection
from tierstate.app.opening.moved import place_of
from tierstate.app.opening.split_reads import access_by
from tierstate.app.opening.store_place import TopicStore
from tierstate.app.operating.topic_stores import make_store_of_topics, require_every_store
from tierstate.follower.object_names import LOCK, PART_OF
from tierstate.runtime.effective_settings import effective
from tierstate.runtime.settings import Settings
from tierstate.runtime.settings_load import load_settings
from tierstate.spark.options import options_of, parse_options
from tierstate.state.errors import UNNAMED_STORE, InvalidRequest, InvalidSettings, ObjectNotFound, StorageUnavailable
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.open import DEFAULT
from tierstate.storage.routed import RoutedStore
from tierstate.storage.s3 import S3Store

OWN = {"url": "s3://all/tier", "endpoint": "https://one", "region": "a", "access_key_id": "k", "secret_access_key": "s"}


def rules(topics: dict[str, Any], **own: Any) -> list[tuple[str, str | None, str | None, str | None, Any]]:
    place = place_of(Settings.model_validate({"store": {**OWN, **own, "topics": topics}}))
    return [
        (rule.url, rule.options.endpoint, rule.options.region, rule.options.storage_class, rule.options.keys)
        for rule in place.topics
    ]


def test_a_url_takes_the_options_of_the_store_and_a_table_has_its_own() -> None:
    table = {"url": "s3://b", "endpoint": "https://two", "access_key_id": "k2", "secret_access_key": "s2"}
    topics = {"a": "s3://a/", "b": table, "c": {"url": "s3://c", "storage_class": "GLACIER_IR"}, "d": "gs://d"}
    assert rules(topics, storage_class="STANDARD_IA") == [
        ("s3://a", "https://one", "a", "STANDARD_IA", ("k", "s")),
        ("s3://b", "https://two", None, None, ("k2", "s2")),
        ("s3://c", None, None, "GLACIER_IR", ("k", "s")),
        ("gs://d", None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("s3://all/tier/a", "neither in nor around s3://all/tier"),
        ("s3://all", "neither in nor around s3://all/tier"),
        ("s3://b/inside", "neither in nor around s3://b"),
        ({"url": "s3://all/tier", "storage_class": "STANDARD_IA"}, "another URL than store.url"),
        ({"region": "eu"}, "url: needed here"),
        ({"url": "s3://c", "access_key_id": "k2"}, "both or neither"),
    ],
)
def test_a_store_inside_of_another_is_refused(store: Any, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        rules({"b": "s3://b", "a": store})


def test_the_table_is_read_from_the_file_with_its_secrets_hidden(tmp_path: Path) -> None:
    file = tmp_path / "tierstate.toml"
    lines = '[store]\nurl = "s3://all/tier"\n[store.topics]\n"a.*" = "s3://a"\n[store.topics."b.1"]\nurl = "s3://b"\n'
    keys = 'access_key_id = "k"\nsecret_access_key = { env = "B_SECRET" }\n'
    file.write_text(lines + keys)
    settings = load_settings(file, [], {"B_SECRET": "hunter2"})
    assert [(rule.pattern, rule.url) for rule in place_of(settings).topics] == [("a.*", "s3://a"), ("b.1", "s3://b")]
    shown = {each.key: each.value for each in effective(settings)}
    assert shown["store.topics.b.1.url"] == "s3://b"
    assert shown["store.topics.b.1.secret_access_key"] == "(hidden)"
    file.write_text(lines + 'access_key_id = "k"\nsecret_access_key = "hunter2"\n')
    with pytest.raises(InvalidSettings, match="by reference only") as refused:
        load_settings(file, [], {})
    assert "hunter2" not in str(refused.value)
    for wrong, says in (
        ("[store.topics]\n'a(' = 's3://a'", "regular expression"),
        ("[store.topics.a]\nurI = 1", "url"),
    ):
        file.write_text(wrong)
        with pytest.raises(InvalidSettings, match=says):
            load_settings(file, [], {})


def test_tasks_of_spark_read_from_the_stores_of_topics(tmp_path: Path) -> None:
    topics = {"Audit.*": {"url": "s3://audit", "access_key_id": "k2", "secret_access_key": "s2"}, "x": "s3://x"}
    settings = Settings.model_validate({"store": {**OWN, "topics": topics}})
    settings = settings.with_origins(dict.fromkeys(("store.url", "store.endpoint", "store.region"), "file"), set())
    options = {name.lower(): value for name, value in options_of(settings).items()}
    assigned = {**options, "subscribe": "t", "kafka.bootstrap.servers": "x:1", "tierstate.store.access_key_id": "k"}
    by_spark, by_file = parse_options(assigned).access, access_by(settings)
    for access in (by_spark, by_file):
        with pickle.loads(pickle.dumps(access)).reads([], ManualClock()) as reads:
            assert isinstance(reads.store, RoutedStore)
            stores: Any = reads.store.stores[1:]
            assert [(each.bucket, each.options.keys) for each in stores] == [("audit", ("k2", "s2")), ("x", ("k", "s"))]
            assert all(isinstance(each.bare, S3Store) for each in stores)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    for name in ("one", "two", "audit", "old"):
        DirectoryStore(tmp_path / name, make=True).close()
    return {name: (tmp_path / name).as_uri() for name in ("one", "two", "audit", "old")}


def opened(url: str, topics: dict[str, str]) -> Connection:
    return Connection(Settings.model_validate({"store": {"url": url, "topics": topics}}))


def test_init_makes_a_folder_for_topics_but_none_in_the_place_of_one_that_is_away(
    folders: dict[str, str], tmp_path: Path
) -> None:
    rule = TopicStore("audit", (tmp_path / "new").as_uri(), DEFAULT)
    with opened(folders["one"], {"audit": rule.url}) as connection:
        make_store_of_topics(connection.stores[0], rule)
        pair_stores(connection)
        make_store_of_topics(connection.stores[0], rule)
        (tmp_path / "new").rename(tmp_path / "away")
        with pytest.raises(StorageUnavailable, match="agents used this store of topics, and it is away"):
            make_store_of_topics(connection.stores[0], rule)
    assert not (tmp_path / "new").exists()


def pair_stores(connection: Connection) -> None:
    stores: Any = connection.stores[1:]
    for store in stores:
        store.pair()
    require_every_store(connection)


def test_a_store_of_topics_belongs_to_one_default_store_and_is_not_forgotten(folders: dict[str, str]) -> None:
    one, two, audit = (folders[name] for name in ("one", "two", "audit"))
    for _ in range(2):
        with opened(one, {"audit": audit}) as connection:
            pair_stores(connection)
    with opened(two, {"audit": audit}) as connection, pytest.raises(InvalidRequest, match="another tierstate"):
        pair_stores(connection)
    with opened(two, {"audit": one}) as connection, pytest.raises(InvalidRequest, match="another tierstate"):
        pair_stores(connection)
    for topics in ({}, {"audit": folders["old"]}):
        with opened(one, topics) as connection, pytest.raises(InvalidRequest, match="no setting names") as refused:
            require_every_store(connection)
        assert refused.value.facts["store"] == audit
    with opened(one, {"audit": folders["old"], "was": audit}) as connection:
        pair_stores(connection)


def test_nothing_is_written_in_a_store_of_topics_before_both_stores_know_that_they_belong_together(
    folders: dict[str, str], tmp_path: Path
) -> None:
    one, two, audit = (folders[name] for name in ("one", "two", "audit"))
    key = "audit-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAA.log"
    with opened(one, {"audit": audit}) as connection:
        assert not list(connection.store.list(key))
        assert not (tmp_path / "audit" / PART_OF).exists()
        connection.store.put_if_absent(key, b"1")
        assert (tmp_path / "audit" / PART_OF).exists()
    with opened(two, {"audit": audit}) as connection:
        for change in (connection.store.delete, lambda key: connection.store.put_if_absent(f"{key}x", b"2")):
            with pytest.raises(InvalidRequest, match="another tierstate"):
                change(key)
    with opened(one, {"audit": audit}) as connection:
        assert [each.key for each in connection.store.list(key)] == [key]


def test_a_missing_object_names_the_store_of_topics_that_no_rule_names(folders: dict[str, str]) -> None:
    one, audit, old = (folders[name] for name in ("one", "audit", "old"))
    with opened(one, {"audit": audit, "old": old}) as connection:
        pair_stores(connection)
    segment = "audit-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAA.rsm-manifest"
    cases = [(segment, {"x": old}, audit), (segment, {"audit": old}, audit), (LOCK, {"x": old}, None)]
    cases += [(segment, {"x": audit, "old": old}, None)]
    for key, topics, unnamed in cases:
        with opened(one, topics) as connection, pytest.raises(ObjectNotFound) as missing:
            connection.store.get(key)
        assert missing.value.facts.get(UNNAMED_STORE) == unnamed, (key, topics)
