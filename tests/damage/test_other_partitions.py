"""Tests that a damaged partition stops no other partition, in each command, before and after its repair."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.consumer.test_damaged_objects import damage, log_object, tiered
from tests.consumer.tiered_cluster import TieredCluster
from tests.twins.manual_clock import ManualClock
from tierstate.app.opening.connection import Connection
from tierstate.cli.main import run
from tierstate.consumer.connect import connect
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_keeper import FollowPace, Keeper
from tierstate.lake.table_note import LASTING_S
from tierstate.lake.table_open import catalog_properties, fresh_attempt, limits_of, open_log
from tierstate.lake.table_snapshots import Retention
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import CorruptData

pytestmark = pytest.mark.kafka
RECORDS, CORRUPT, FINDING = 400, 4, 1


class Commands:
    """Commands on one topic of two partitions, of which the first one is damaged or not."""

    def __init__(self, cluster: TieredCluster, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.cluster, self.folder, self._capfd = cluster, folder, capfd
        self.topic = tiered(cluster, folder.name.strip("_").replace("_", "-"), RECORDS, 2)
        self.object = log_object(cluster, self.topic, 0)
        self._whole = self.object.read_bytes()

    def break_it(self, how: str = "flipped") -> int:
        """Damage an object, and return the first offset that cannot be read."""
        if how == "flipped":
            return damage(self.object)
        self.object.unlink()
        return int(self.object.name.partition("-")[0])

    def mend_it(self) -> None:
        self.object.write_bytes(self._whole)

    def run(self, *command: str, code: int = 0) -> tuple[str, str]:
        """Run a command, check its exit code, and return its stdout and stderr."""
        self._capfd.readouterr()
        flags = ["--config", str(self.cluster.settings_file), "--set", f"table.folder={self.folder}/tables"]
        ended = run([*command, *flags])
        out, err = self._capfd.readouterr()
        assert ended == code, err
        return out, err

    def document(self, *command: str, code: int = 0) -> Any:
        return json.loads(self.run(*command, "--json", code=code)[0])

    def named(self, said: str) -> bool:
        """Return whether an error names the object, the partition, and the next command."""
        name = self.object.relative_to(self.cluster.folder / "store").as_posix()
        step = f"next=tierstate verify {self.topic}:0 --level 3"
        return f"file={name} " in said and f"partition={self.topic}-0" in said and step in said


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("damage"), "_tier-state-beside")


@pytest.fixture
def commands(cluster: TieredCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster, tmp_path, capfd)


DAMAGES = pytest.mark.parametrize("how", ["flipped", "missing"])


@DAMAGES
def test_consume_and_digest_read_the_others_and_end_with_the_error(commands: Commands, how: str) -> None:
    topic = commands.topic
    whole = commands.document("digest", topic)
    bad = commands.break_it(how)
    out, err = commands.run("consume", topic, "--json", code=CORRUPT)
    offsets: dict[int, list[int]] = {0: [], 1: []}
    for line in out.splitlines():
        record = json.loads(line)
        offsets[record["partition"]].append(record["offset"])
    assert offsets == {0: list(range(bad)), 1: list(range(RECORDS))}
    assert f"{topic}-0 is not read to its end" in err
    assert commands.named(err)
    said = commands.document("digest", topic, code=CORRUPT)
    assert (said["digest"], said["records"]) == (None, None)
    assert said["partitions"] == whole["partitions"][1:]
    assert [each["partition"] for each in said["not_read"]] == [0]
    commands.mend_it()
    assert commands.document("digest", topic) == whole


@pytest.mark.extended
def test_a_digest_by_spark_has_the_others(commands: Commands) -> None:
    whole = commands.document("digest", commands.topic, "--via", "spark")
    commands.break_it()
    out, err = commands.run("digest", commands.topic, "--via", "spark", "--json", code=CORRUPT)
    assert json.loads(out)["partitions"] == whole["partitions"][1:]
    assert commands.named(err)


@pytest.mark.parametrize(("how", "processes"), [("flipped", "1"), ("flipped", "2"), ("missing", "1")])
def test_an_export_has_the_others_and_what_is_asked_for_later(commands: Commands, how: str, processes: str) -> None:
    topic, place = commands.topic, commands.folder / "export"
    place.mkdir()
    export = ("export", topic, "--into", place.as_uri(), "--processes", processes, "--file-bytes", "16KiB")
    commands.break_it(how)
    first = commands.document(*export, "--to", "300", code=CORRUPT)
    assert {each["partition"] for each in first["not_exported"]} == {0}
    lacking = sum(each["end"] - each["start"] for each in first["not_exported"])
    assert 0 < lacking < 300
    assert first["records"] == 600 - lacking
    later = commands.document(*export, code=CORRUPT)
    assert later["not_exported"] == first["not_exported"]
    assert later["records"] == 800 - lacking
    commands.mend_it()
    out, _ = commands.run("export", topic, "--into", place.as_uri(), "--check", code=FINDING)
    [missing] = first["not_exported"]
    assert f"it lacks {topic}-0 {missing['start']}..{missing['end'] - 1}" in out
    assert commands.document(*export)["not_exported"] == []
    assert "800 records" in commands.run("export", topic, "--into", place.as_uri(), "--check")[1]


@DAMAGES
def test_a_table_follows_the_others_and_the_damaged_one_once_it_is_mended(commands: Commands, how: str) -> None:
    commands.break_it(how)
    [made] = commands.document("table", "create", commands.topic)
    out, err = commands.run("table", "follow", "--once", "--local", "--json", code=CORRUPT)
    [followed] = json.loads(out)
    assert (followed["rows"], followed["partitions_waiting"]) == (RECORDS, 1)
    assert commands.named(err)
    checked = commands.document("table", "check", made["table"], "--local", code=FINDING)
    assert [each["rows"] for each in checked["partitions"]] == [0, RECORDS]
    [listed] = commands.document("table", "list")
    assert listed["state"] == "stopped"
    assert commands.named(listed["reason"])
    commands.mend_it()
    assert commands.document("table", "follow", "--once", "--local")[0]["rows"] == RECORDS
    [listed] = commands.document("table", "list")
    assert (listed["state"], listed["reason"]) == ("current", None)
    commands.break_it(how)
    checked = commands.document("table", "check", made["table"], "--local", code=CORRUPT)
    assert [each["partition"] for each in checked["partitions"]] == [1]
    [finding] = checked["findings"]
    assert (finding["partition"], finding["problem"].startswith("not compared: ")) == (0, True)
    commands.mend_it()
    commands.run("table", "check", made["table"], "--local")


@DAMAGES
def test_a_service_that_keeps_a_table_says_what_waits_and_tries_again(commands: Commands, how: str) -> None:
    overrides = (f"table.folder={commands.folder}/tables", "table.commit_interval=60s")
    settings = load_settings(commands.cluster.settings_file, overrides, os.environ, None, None)
    clock, runs = ManualClock(), threading.Event()
    [made] = commands.document("table", "create", commands.topic)
    name = made["table"]
    commands.break_it(how)
    catalog = LakeCatalog(catalog_properties(settings, new=False))
    pace = FollowPace(clock, 60.0, Retention(200, 86_400_000), fresh_attempt)
    with Connection(settings) as connection:
        with open_log(connection, catalog.table(name).facts, lambda text: None, local=True) as (log, _):
            keeper = Keeper(catalog, (name,), lambda facts: log, limits_of(settings), pace, structlog.get_logger())
            while keeper.turn(runs):
                pass
            kept = keeper.tables[name]
            assert kept.rows == RECORDS
            assert commands.named(kept.stopped or "")
            assert keeper.turn(runs) is False, "it does not read the damaged partition at each look"
            clock.advance(LASTING_S)
            keeper.turn(runs)
            [listed] = commands.document("table", "list")
            assert listed["state"] == "stopped"
            assert commands.named(listed["reason"])
            commands.mend_it()
            clock.advance(60)
            while keeper.turn(runs):
                pass
            assert (kept.rows, kept.stopped) == (2 * RECORDS, None)
            assert commands.document("table", "list")[0]["reason"] is None
    catalog.close()


def test_read_records_has_the_others_before_its_error(commands: Commands) -> None:
    bad = commands.break_it()
    cluster = commands.cluster
    facts = {"tier_state.topic": cluster.facts}
    with connect(cluster.kafka.bootstrap, str(cluster.store["url"]), settings=facts) as log:
        seen = dict.fromkeys((0, 1), 0)

        def read() -> None:
            for batch in log.topic(commands.topic).read():
                for partition in batch.column("partition").to_pylist():
                    seen[partition] += 1

        with pytest.raises(CorruptData):
            read()
    assert seen == {0: bad, 1: RECORDS}
