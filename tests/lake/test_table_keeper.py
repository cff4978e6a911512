"""A process that keeps tables: new records wait for more of them, and a table that cannot go on holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from pyiceberg.manifest import DataFile
from structlog.testing import capture_logs

from tests.fetch.two_tiers import NOW as COPIED_AT
from tests.fetch.two_tiers import Golden
from tests.lake.exports import EVERY_COLUMN, TOPIC_ID
from tests.lake.tables import NAME, SMALL, TableWorld
from tests.lake.test_table_history import delete_below, rows_in
from tests.lake.typed_tables import COUNT, answer_of, avro_world
from tests.lake.typed_topics import avro_record
from tests.twins.manual_clock import ManualClock
from tierstate.lake import table_snapshots
from tierstate.lake.columns import Columns
from tierstate.lake.table import LakeTable
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_facts import TableFacts
from tierstate.lake.table_follow import TableLimits
from tierstate.lake.table_keeper import LOOK_S, FollowPace, Keeper, Kept, feed_table_metrics
from tierstate.lake.table_layout import Key
from tierstate.lake.table_note import LASTING_S, note_of, report
from tierstate.lake.table_snapshots import Retention
from tierstate.lake.table_status import TableStatus
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.metrics import Metrics
from tierstate.state.ids import FactId, TopicId
from tierstate.state.offsets import Extent
from tierstate.state.routing import Isolation
from tierstate.values.form import Form

pytestmark = pytest.mark.extended

Make = Callable[..., Golden]
RUNS = threading.Event()
DAY_MS = 86_400_000
KEPT = 10
OTHER = "kafka.a_topic_made_anew"


def keeper_of(world: TableWorld, clock: ManualClock, limits: TableLimits = SMALL, interval_s: float = 60.0) -> Keeper:
    pace = FollowPace(clock, interval_s, Retention(KEPT, DAY_MS), lambda: FactId.of(RandomIds().uuid()))
    catalog = LakeCatalog(world.properties, world.registry)
    return Keeper(catalog, (), lambda facts: world.log(), limits, pace, structlog.get_logger())


@pytest.fixture
def world(golden_log: Make, tmp_path: Path) -> TableWorld:
    return TableWorld(golden_log("transactions", copies=2), tmp_path, local=False)


def copy_another(world: TableWorld) -> None:
    golden = world.golden
    first = golden.segments[-1].offsets.end + 1
    bases = golden.folder.bases
    golden.segments.append(golden.tiers.copy(golden.folder, first, bases[bases.index(first) + 1]))
    golden.tiers.view.require_fresh(0, 0)


def test_new_records_wait_for_the_interval(world: TableWorld) -> None:
    clock = ManualClock()
    keeper = keeper_of(world, clock, TableLimits())
    assert keeper.turn(RUNS) is True
    rows = world.rows().num_rows
    copy_another(world)
    assert keeper.turn(RUNS) is False
    kept = keeper.tables[NAME]
    assert kept.lag > 0
    clock.advance(59)
    assert keeper.turn(RUNS) is False
    assert keeper.lag_seconds(kept) == listed(world, clock).lag_seconds
    clock.advance(1)
    assert keeper.turn(RUNS) is True
    assert (kept.lag, keeper.lag_seconds(kept)) == (0, 0)
    assert world.rows().num_rows > rows
    assert world.table_digest() == world.log_digest()


def test_tables_with_news_wait_for_a_share_of_the_others_alone(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the rows of one table would wait until hundreds of others were loaded."""
    load, loaded, clock = LakeCatalog.table, list[str](), ManualClock()
    with world.catalog() as catalog:
        catalog.create(OTHER, world.table().facts)

    def noted(catalog: LakeCatalog, name: str) -> LakeTable:
        loaded.append(name)
        return load(catalog, name)

    keeper = keeper_of(world, clock, TableLimits(), interval_s=0.0)
    while keeper.turn(RUNS):
        pass
    monkeypatch.setattr(LakeCatalog, "table", noted)
    assert keeper.turn(RUNS, 0.0) is False
    assert loaded == []
    for _ in range(4):
        clock.advance(1)
        keeper.turn(RUNS, 0.5)
    assert loaded == [OTHER, NAME, OTHER, NAME]
    loaded.clear()
    copy_another(world)
    clock.advance(1)
    assert keeper.turn(RUNS, 0.0) is True
    assert loaded == [OTHER, NAME]
    assert keeper.turn(RUNS, 0.0) is False
    with world.catalog() as catalog:
        catalog.drop(OTHER)
    clock.advance(LOOK_S)
    keeper.turn(RUNS, 0.0)
    assert list(keeper.tables) == [NAME]
    monkeypatch.undo()
    assert world.table_digest() == world.log_digest()


def listed(world: TableWorld, clock: ManualClock) -> TableStatus:
    status = TableStatus.of_table(world.table())
    status.compare(world.table(), world.log(), clock.now_ms())
    return status


def test_the_list_and_the_metric_count_the_lag_from_the_copy_and_the_list_tells_where_a_reason_is(
    world: TableWorld,
) -> None:
    clock = ManualClock(COPIED_AT)
    keeper = keeper_of(world, clock)
    keeper.turn(RUNS)
    copy_another(world)
    for seconds, named in ((599, False), (1, True)):
        clock.advance(seconds)
        keeper = keeper_of(world, clock)  # a restart
        keeper.tables[NAME] = Kept(due=clock.monotonic() + 60)
        keeper.turn(RUNS)
        status = listed(world, clock)
        assert keeper.lag_seconds(keeper.tables[NAME]) == status.lag_seconds == (600 if named else 599)
        assert ("/readyz" in (status.reason or "")) is named
    while keeper.tables[NAME].lag:
        keeper.tables[NAME].due = 0
        keeper.turn(RUNS)
    assert (listed(world, clock).lag_seconds, listed(world, clock).reason) == (0.0, None)


def test_the_log_line_tells_rows_that_went_from_rows_that_were_rewritten(world: TableWorld) -> None:
    keeper = keeper_of(world, ManualClock(), TableLimits())
    keeper.turn(RUNS)
    before, files = world.rows().num_rows, world.named_files()
    delete_below(world, 777)
    with capture_logs() as lines:
        keeper.turn(RUNS)
    [line] = [each for each in lines if each["event"] == "table"]
    went, rewritten = before - world.rows().num_rows, rows_in(world.named_files() - files)
    assert went > 0 < rewritten
    assert (line["step"], line["rows"], line["rewritten_rows"]) == ("expired", went, rewritten)


def test_another_engines_commit_is_answered_at_once_and_delays_no_record(world: TableWorld) -> None:
    """Otherwise that engine's next expiry would take every snapshot with the place."""
    clock = ManualClock()
    keeper = keeper_of(world, clock, TableLimits())
    assert keeper.turn(RUNS) is True
    clock.advance(60)
    with world.table().iceberg.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    assert world.table().is_place_covered
    assert keeper.turn(RUNS) is True
    assert not world.table().is_place_covered
    copy_another(world)
    assert keeper.turn(RUNS) is True
    assert world.table_digest() == world.log_digest()


def test_so_much_log_does_not_wait(world: TableWorld) -> None:
    keeper = keeper_of(world, ManualClock(), TableLimits(file_bytes=6_000, commit_bytes=20_000))
    while keeper.turn(RUNS):
        pass
    assert keeper.tables[NAME].commits > 2
    end = world.table().place().partitions[0].end
    left = world.log().extent(0)[1]
    assert end < left, "what is left waits"
    assert world.log().planned(0, Extent(end, left)).log_bytes < 20_000


@pytest.mark.extended
@pytest.mark.parametrize("old", [True, False])
def test_a_follower_keeps_few_snapshots_however_many_it_makes(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """Each commit writes all of them again: a table followed for a week would stand still."""
    monkeypatch.setattr(table_snapshots, "EXPIRED_AT_ONCE", 5)
    now = SystemClock().now_ms()
    clock = ManualClock(now + 2 * DAY_MS if old else now)
    keeper = keeper_of(world, clock, TableLimits(file_bytes=2_000, commit_bytes=2_000), interval_s=0.0)
    while keeper.turn(RUNS):
        pass
    spread = 0 if old else 2  # of those made now, one in each tenth of a day stays
    assert keeper.tables[NAME].commits > 20
    assert KEPT <= len(world.table().iceberg.snapshots()) < KEPT + spread + 5
    assert world.table_digest() == world.log_digest(end=world.log().extent(0)[1])
    assert world.table().place().partitions[0].end == world.log().extent(0)[1]


def test_a_table_that_cannot_go_on_says_why_and_holds_up_no_other(world: TableWorld) -> None:
    with world.catalog() as catalog:
        anew = TableFacts(
            "t", TopicId.of(b"another-topic-id"), Isolation.READ_COMMITTED, (Columns(EVERY_COLUMN),), False
        )
        catalog.create(OTHER, anew)
    keeper = keeper_of(world, ManualClock(), TableLimits())
    assert keeper.turn(RUNS) is True
    assert world.table_digest() == world.log_digest()
    [stopped_table] = keeper.stopped()
    assert stopped_table.startswith(f"table {OTHER}: the topic was made anew")
    metrics = Metrics()
    feed_table_metrics(metrics, keeper)
    shown = metrics.exposition().decode()
    assert f'tierstate_table_stopped{{table="{OTHER}"}} 1.0' in shown
    assert f'tierstate_table_failures_total{{table="{OTHER}"}} 1.0' in shown
    assert f'tierstate_table_stopped{{table="{NAME}"}} 0.0' in shown


def test_a_table_goes_on_once_its_reason_is_gone(world: TableWorld) -> None:
    with world.table().iceberg.transaction() as transaction:
        transaction.set_properties({"tierstate.isolation": "none"})
    keeper = keeper_of(world, ManualClock(), TableLimits())
    assert keeper.turn(RUNS) is False
    assert "does not say what it follows" in keeper.stopped()[0]
    iceberg = LakeCatalog(world.properties)._catalog.load_table(("kafka", "t"))
    with iceberg.transaction() as transaction:
        transaction.set_properties({"tierstate.isolation": "read_committed"})
    assert keeper.turn(RUNS) is True
    assert keeper.stopped() == []
    assert world.table_digest() == world.log_digest()
    assert TOPIC_ID == world.table().facts.topic_id


def test_a_table_whose_columns_cannot_become_what_is_met_stops_and_no_other(golden_log: Make, tmp_path: Path) -> None:
    with avro_world(golden_log, tmp_path) as world:
        world.produce(COUNT)
        with world.catalog() as catalog:
            catalog.create(OTHER, replace(world.table().facts, versions=(Columns(EVERY_COLUMN),), grows=()))
        clock = ManualClock()
        world.server.answers["/schemas/ids/3"] = answer_of(avro_record(("id", "string")))
        keeper = keeper_of(world, clock, TableLimits(), interval_s=0.0)
        while keeper.turn(RUNS):
            pass
        [stopped_table] = keeper.stopped()
        assert stopped_table.startswith(f"table {NAME}: ")
        assert "field=id" in stopped_table
        assert "schema=3" in stopped_table
        noted_at_once = len(world.table().iceberg.metadata.metadata_log)
        assert keeper.tables[OTHER].lag == 0
        assert keeper.tables[OTHER].rows == COUNT
        assert listed(world, clock).state == "behind", "the failure may be over soon"
        clock.advance(LASTING_S)
        for _ in range(3):
            keeper.turn(RUNS)
        status = listed(world, clock)
        assert (status.state, keeper.tables[NAME].noted) == ("stopped", keeper.tables[NAME].stopped)
        assert "field=id" in (status.reason or "")
        assert len(world.table().iceberg.metadata.metadata_log) == noted_at_once + 1, "each note is a commit"


def test_a_table_has_its_reason_only_while_it_cannot_go_on(world: TableWorld) -> None:
    table, now = world.table(), SystemClock().now_ms()
    with world.catalog() as catalog:
        for reason in ("one", "one", "another", None, None):
            report(catalog, NAME, reason, now)
            note = note_of(world.table())
            assert (note and note.reason) == reason
        report(catalog, "kafka.none", "no such table", now)
    assert len(world.table().iceberg.metadata.metadata_log) == len(table.iceberg.metadata.metadata_log) + 3
    assert world.table().place() == table.place()


def test_records_for_new_columns_do_not_wait_again(golden_log: Make, tmp_path: Path) -> None:
    with avro_world(golden_log, tmp_path) as world:
        keeper = keeper_of(world, ManualClock(), TableLimits())
        while keeper.turn(RUNS):
            pass
        metrics = Metrics()
        feed_table_metrics(metrics, keeper)
        assert (version := world.table().facts.version) > 0
        shown = metrics.exposition().decode()
        assert f'tierstate_table_version{{format="avro",table="{NAME}"}} {version}.0' in shown
        assert keeper.tables[NAME].rows == COUNT


def test_records_that_do_not_parse_are_counted(world: TableWorld) -> None:
    with world.catalog() as catalog:
        typed = Columns(EVERY_COLUMN, value=Form("json", "id int"))
        catalog.create(OTHER, replace(world.table().facts, versions=(typed,)))
        keeper = keeper_of(world, ManualClock(), TableLimits())
        keeper.turn(RUNS)
        corrupt = catalog.table(OTHER).iceberg.scan(row_filter="_corrupt is not null").count()
        rows = catalog.table(OTHER).count("offset >= 0")
    metrics = Metrics()
    feed_table_metrics(metrics, keeper)
    assert rows == world.rows().num_rows
    assert corrupt > rows / 2
    assert f'tierstate_table_corrupt_records_total{{table="{OTHER}"}} {corrupt}.0' in metrics.exposition().decode()


def test_a_bug_at_one_table_stops_that_table_and_no_other(world: TableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.catalog() as catalog:
        catalog.create("kafka.a", world.table().facts)
    put = LakeTable.put

    def broken(table: LakeTable, url: str, pieces: Iterable[bytes], partition: Key) -> DataFile:
        if table.name == "kafka.a":
            raise OverflowError("date value out of range")
        return put(table, url, pieces, partition)

    monkeypatch.setattr(LakeTable, "put", broken)
    clock = ManualClock()
    keeper = keeper_of(world, clock, TableLimits())
    assert keeper.turn(RUNS) is True
    assert keeper.stopped() == ["table kafka.a: a bug: OverflowError('date value out of range')"]
    assert world.table_digest() == world.log_digest()
    clock.advance(LASTING_S)
    keeper.turn(RUNS)
    keeper.turn(RUNS)
    assert "a bug" in (keeper.tables["kafka.a"].noted or "")
    monkeypatch.undo()
    keeper.turn(RUNS)
    assert keeper.stopped() == []
    with world.catalog() as catalog:
        assert note_of(catalog.table("kafka.a")) is None


def test_asked_to_stop_it_begins_nothing(world: TableWorld) -> None:
    stopping = threading.Event()
    stopping.set()
    keeper = keeper_of(world, ManualClock())
    keeper.work(stopping)
    assert not world.data_files()


def test_a_stopped_table_that_is_dropped_is_no_longer_reported(world: TableWorld) -> None:
    with world.catalog() as catalog:
        other = TableFacts(
            "t", TopicId.of(b"another-topic-id"), Isolation.READ_COMMITTED, (Columns(EVERY_COLUMN),), False
        )
        catalog.create(OTHER, other)
        keeper = keeper_of(world, ManualClock())
        keeper.turn(RUNS)
        assert keeper.stopped()
        catalog.drop(OTHER)
    keeper.turn(RUNS)
    assert not keeper.stopped()
    assert OTHER not in keeper.tables


def test_a_table_in_a_nested_namespace_is_followed(world: TableWorld) -> None:
    with world.catalog() as catalog:
        catalog.create("kafka.eu.west.t", world.table().facts)
        assert list(catalog.ours()) == [NAME, "kafka.eu.west.t"]
    keeper = keeper_of(world, ManualClock(), TableLimits())
    keeper.turn(RUNS)
    assert keeper.tables["kafka.eu.west.t"].rows == keeper.tables[NAME].rows > 0


def test_a_table_that_cannot_be_loaded_stops_and_no_other(world: TableWorld) -> None:
    with world.catalog() as catalog:
        made = catalog.create(OTHER, world.table().facts)
    keeper = keeper_of(world, ManualClock(), TableLimits())
    metadata = Path(made.iceberg.metadata_location.removeprefix("file://"))
    metadata.rename(metadata.with_suffix(".away"))
    keeper.turn(RUNS)
    assert keeper.tables[NAME].rows > 0
    assert "a file of the table is missing" in str(keeper.tables[OTHER].stopped)
    assert keeper.stopped() == [], "it may be another team's table in the same catalog"
    metadata.with_suffix(".away").rename(metadata)
    keeper.turn(RUNS)
    with world.catalog() as catalog:
        Path(catalog.table(OTHER).iceberg.metadata_location.removeprefix("file://")).unlink()
    keeper.turn(RUNS)
    assert [each.split(":")[0] for each in keeper.stopped()] == [f"table {OTHER}"]
