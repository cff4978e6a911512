"""Tests the results of ``tierstate check`` for a store."""

from __future__ import annotations

import re
import select
import socket
from pathlib import Path

import pytest

from tierstate.app.opening.connection import Connection
from tierstate.app.operating.checks import NEEDS, REPLAYING, NotAsked, checked, checks, require_short
from tierstate.runtime.settings import Settings
from tierstate.state.errors import InvalidRequest, StorageUnavailable
from tierstate.state.ids import RemoteSegmentId, TopicId
from tierstate.state.object_keys import ObjectKeys
from tierstate.storage.open import open_store


def look(store: str, name: str) -> str:
    settings = Settings.model_validate({"store": {"url": store}, "kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    with Connection(settings) as connection:
        return dict(checks(connection))[name]()


def test_a_store_that_honours_conditional_puts_is_said_to(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    open_store(store, make=True).close()
    assert look(store, "conditional put") == "honoured"
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def test_it_is_said_how_objects_are_proven_before_a_trim(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    open_store(store, make=True).close()
    assert look(store, "object store") == f"{store}; before a trim objects are read back"


def test_a_folder_that_nobody_made_is_told_what_makes_it_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="tierstate init"):
        look((tmp_path / "store").as_uri(), "object store")
    assert not (tmp_path / "store").exists()


def test_a_store_that_is_not_fit_is_wrong_once() -> None:
    store = "file:///no/such/folder"
    with pytest.raises(InvalidRequest):
        look(store, "object store")
    with pytest.raises(NotAsked, match="not asked: the object store is not fit"):
        look(store, "conditional put")


def test_a_store_that_accepts_and_never_answers_is_wrong_by_a_deadline_and_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with socket.create_server(("127.0.0.1", 0)) as store:
        endpoint = f"http://127.0.0.1:{store.getsockname()[1]}"
        settings = Settings.model_validate(
            {
                "store": {"url": "s3://bucket/tier", "endpoint": endpoint, "region": "us-east-1"},
                "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            }
        )
        with Connection(settings) as connection:
            rows = checked(connection, row_s=2.0)
            for row in rows:
                if row.check == "state folder":
                    break
            assert select.select([store], [], [], 0)[0] == [], "a row is there before the next check begins"
            row = next(rows)
            assert (row.check, row.state) == ("object store", "wrong")
            assert re.match(r"the object store does not answer: it should have within 2 s, by \d{4}-.*Z", row.detail)
            found = {row.check: (row.state, row.detail) for row in rows}
        for each in ("conditional put", "history", "clocks", "facts", "prefix"):
            assert found[each] == ("-", "not asked: the object store does not answer")
        assert list(found)[-1] == "proxy"


def test_each_check_that_another_one_needs_comes_before_it() -> None:
    made: set[str] = set()
    for source in ("disk", "fetch"):
        kafka = {"bootstrap.servers": "127.0.0.1:1"}
        with Connection(Settings.model_validate({"kafka": kafka, "agent": {"source": source}})) as connection:
            names = [name for name, _ in checks(connection)]
        made |= {*names}
        needs = {name: each for name, each in NEEDS.items() if name in names}
        assert all(names.index(needed) < names.index(name) for name, each in needs.items() for needed in each)
    assert REPLAYING | NEEDS.keys() <= made


def test_a_topic_whose_name_fits_no_folder_is_refused_and_the_longest_that_fits_is_stored(tmp_path: Path) -> None:
    longest = "t" * 232
    require_short([longest])
    with pytest.raises(InvalidRequest, match=r"tiering\.exclude"):
        require_short(["t" * 233])
    store = open_store((tmp_path / "store").as_uri(), make=True)
    for name, fits in ((longest, True), ("t" * 233, False)):
        key = ObjectKeys().base_key(name, TopicId.of(bytes(15) + b"\x07"), 0, 0, RemoteSegmentId.of(bytes(16)))
        if fits:
            store.put_if_absent(key + ".log", b"x")
        else:
            with pytest.raises(InvalidRequest):
                store.put_if_absent(key + ".log", b"x")
    store.close()
