"""Compacting a table deletes its own files only, and a restored catalog is repaired."""

from __future__ import annotations

import os
import shutil

import pytest
from pyiceberg.catalog import load_catalog

from tests.scenarios.house import eventually
from tests.scenarios.tables import RECORDS, Tables, all_copied, made, path_of

pytestmark = pytest.mark.kafka


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
