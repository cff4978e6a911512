"""Tables that upsert: at each place the rows are the fold of the log up to it, whatever happened on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from tests.lake.exports import EVERY_COLUMN
from tests.lake.tables import TableWorld
from tests.lake.test_table_check import change
from tests.lake.test_table_history import delete_below, unclean_election
from tests.lake.test_table_killed import killed_at
from tests.lake.typed_logs import folder_of
from tests.lake.typed_tables import Make
from tests.tiers import few
from tierstate.lake.columns import Columns
from tierstate.lake.envelope import envelope_ddl
from tierstate.lake.table_check import check_table
from tierstate.lake.table_follow import Step, TableLimits
from tierstate.lake.table_shape import TableShape
from tierstate.lake.table_upkeep import compact
from tierstate.runtime.operation import run
from tierstate.state.errors import InvalidRequest
from tierstate.values.form import Form

Records: TypeAlias = Sequence[tuple[bytes | None, bytes | None]]
COUNT = 240
ROW = "id bigint, of string, n int"
BYTES = Columns(EVERY_COLUMN)
FLAT = Columns(EVERY_COLUMN, value=Form("json", ROW), prefix="kafka_")
CHANGES = Columns(EVERY_COLUMN, value=Form("json", envelope_ddl(ROW)), prefix="kafka_", envelope="debezium")
BY_KEY, BY_FIELDS = ("kafka_key",), ("id", "of")


def keyed_topic(seed: int = 5) -> Records:
    """Return records of few keys: some delete, some do not parse, some have no key."""
    random, records = Random(seed), []
    for at in range(COUNT):
        key = random.randrange(17)
        value: bytes | None = json.dumps({"id": key, "of": "ab"[key % 2], "n": at}).encode()
        kind = random.random()
        if kind < 0.15:
            value = None
        elif kind < 0.2:
            value = b"?"
        records.append((None if random.random() < 0.05 else b"k%d" % key, value))
    return records


def world_of(golden_log: Make, path: Path, records: Records, columns: Columns, **world: Any) -> TableWorld:
    golden = golden_log(path=folder_of(path / "topic", records, a_batch=5, a_segment=40, apart_ms=3_600_000))
    limits = TableLimits(file_bytes=700, commit_bytes=1_500)
    return TableWorld(
        golden, path / "table", columns=columns, **{"limits": limits, "shape": TableShape(), "keep": True, **world}
    )


def fold(records: Records, end: int, fields: bool = False, start: int = 0) -> list[int]:
    """Return the offsets that are rows, by a dictionary."""
    newest: dict[Any, int | None] = {}
    alone = []
    for at, (key, value) in enumerate(records[:end]):
        if at < start:
            continue
        row = None if value in (None, b"?") else json.loads(value or b"")
        name = (row and (row["id"], row["of"])) if fields else key
        if name is None:
            alone += [] if value is None else [at]
        else:
            newest[name] = None if value is None else at
    return sorted(alone + [at for at in newest.values() if at is not None])


def produce(world: TableWorld, end: int) -> None:
    world.golden.local.high_watermark = world.golden.local.last_stable_offset = end


def require_log(world: TableWorld) -> list[int]:
    """Require that the check has nothing to say; return the offsets of the rows."""
    checked = check_table(world.table(), world.log(), window_bytes=2_000)
    assert not checked.findings
    rows = world.rows()
    assert sum(each.rows + each.older for each in checked.partitions) == rows.num_rows
    offsets: list[int] = rows.column(world.table().column("offset")).to_pylist()
    return offsets


@pytest.mark.extended
@pytest.mark.parametrize(
    ("columns", "keys", "shape"),
    [
        (BYTES, ("key",), TableShape()),
        pytest.param(FLAT, BY_KEY, TableShape(("bucket(4, kafka_key)",)), marks=pytest.mark.essential),
        (FLAT, BY_FIELDS, TableShape(("day(timestamp)",), ("n",))),
        (
            Columns(EVERY_COLUMN, value=Form("json", ROW)),
            ("value.id", "value.of"),
            TableShape(("bucket(2, value.id)",)),
        ),
    ],
    ids=["bytes", "flat by key", "by fields, sorted", "by fields of a struct"],
)
def test_at_each_place_the_rows_are_the_fold_of_the_log(
    golden_log: Make, tmp_path: Path, columns: Columns, keys: tuple[str, ...], shape: TableShape
) -> None:
    records = keyed_topic()
    world = world_of(golden_log, tmp_path, records, columns, upsert=keys, shape=shape)
    commits = 0
    for end in (0, 40, 41, 110, 160, COUNT):
        produce(world, end)
        rounds = world.follow()
        commits += len(rounds)
        rows = require_log(world)
        assert rows == fold(records, end, fields=len(keys) > 1)
    assert commits > 8
    before = world.rows()
    assert compact(world.table(), world.attempt_id, execute=True).commits
    assert world.rows().equals(before)
    require_log(world)


@pytest.mark.extended
def test_the_rows_of_each_commit_are_counted_apart_from_those_that_are_written_again(
    golden_log: Make, tmp_path: Path
) -> None:
    records = [(b"%d" % (at % 10), b"%d" % at) for at in range(40)] + [(b"3", b"x")]
    world = world_of(golden_log, tmp_path, records, BYTES, upsert=("key",), limits=TableLimits())
    produce(world, 40)
    (first,) = world.follow()
    produce(world, 41)
    (second,) = world.follow()
    assert (first.rows, first.rewritten, first.files) == (10, 0, 1)
    assert (second.rows, second.rewritten, second.files) == (1, 9, 2)


def test_a_commit_rewrites_only_files_that_may_have_its_keys(golden_log: Make, tmp_path: Path) -> None:
    records = [(b"%03d" % at, b"1") for at in range(100)] + [(b"042", b"2")]
    world = world_of(
        golden_log,
        tmp_path,
        records,
        BYTES,
        upsert=("key",),
        shape=TableShape(("bucket(16, key)",)),
        limits=TableLimits(),
    )
    produce(world, 100)
    world.follow()
    files = world.named_files()
    produce(world, 101)
    world.follow()
    assert len(files) == 16
    assert len(files - world.named_files()) == 1
    require_log(world)


@pytest.mark.extended
def test_a_follower_that_is_killed_at_any_step_leaves_the_fold_of_the_log(golden_log: Make, tmp_path: Path) -> None:
    records, killed = keyed_topic(), 0
    for step in range(1, 22, 2):
        world = world_of(golden_log, tmp_path / str(step), records, FLAT, upsert=BY_KEY)
        killed += killed_at(world, step)
        require_log(world)
        world.follow()
        assert require_log(world) == fold(records, COUNT)
    assert killed == 11


@pytest.mark.extended
def test_of_two_followers_one_commits_and_the_other_begins_again(golden_log: Make, tmp_path: Path) -> None:
    records = keyed_topic()
    world = world_of(golden_log, tmp_path, records, FLAT, upsert=BY_KEY)
    produce(world, 100)
    world.follow()
    produce(world, COUNT)
    late = world.round()
    while next(late) != "commit":
        pass
    compact(world.table(), world.attempt_id, execute=True)
    assert run(late).step is Step.RACED
    world.follow()
    assert require_log(world) == fold(records, COUNT)


@pytest.mark.extended
def test_after_a_lost_branch_the_table_is_the_fold_of_the_log_that_remains(golden_log: Make, tmp_path: Path) -> None:
    """Records of the lost branch replaced rows that the log still has."""
    records = keyed_topic()
    world = world_of(golden_log, tmp_path, records, FLAT, upsert=BY_KEY)
    produce(world, 200)
    world.follow()
    unclean_election(world, 9, 150)
    assert world.follow()[0].step is Step.LOST_BRANCH
    assert require_log(world) == fold(records, 150)
    produce(world, COUNT)
    world.follow()
    assert require_log(world) == fold(records, COUNT)


@pytest.mark.extended
def test_rows_stay_when_the_log_deletes_their_records_until_their_key_is_written_again(
    golden_log: Make, tmp_path: Path
) -> None:
    records = [(b"%d" % (at % 7), b"%d" % at) for at in range(100)] + [(b"9", b"x")] + [(b"7", b"y")] * 139
    records[3] = (b"9", b"9")
    world = world_of(golden_log, tmp_path, records, BYTES, upsert=("key",))
    produce(world, 90)
    world.follow()
    delete_below(world, 60)
    assert require_log(world)[0] == 3
    produce(world, COUNT)
    world.follow()
    assert require_log(world) == [*range(93, 101), COUNT - 1]


def debezium_topic() -> tuple[Records, dict[int, dict[str, Any]]]:
    """Return changes of rows, and the rows at the end by their id."""
    random, rows, records = Random(11), dict[int, dict[str, Any]](), list[tuple[bytes | None, bytes | None]]()
    while len(records) < COUNT:
        at = random.randrange(12)
        before, op = rows.get(at), "u"
        row: dict[str, Any] | None = {"id": at, "of": random.choice("ab"), "n": len(records)}
        if before is None:
            op = random.choice("cr")
        elif random.random() < 0.3:
            op, row = "d", None
        event: dict[str, Any] = {"before": before, "after": row, "op": op, "ts_ms": 1, "source": {"db": "x"}}
        document = {"schema": {"type": "struct"}, "payload": event} if random.random() < 0.5 else event
        records.append((json.dumps({"id": at}).encode(), json.dumps(document).encode()))
        if row is None:
            del rows[at]
            records.append((json.dumps({"id": at}).encode(), None))
        else:
            rows[at] = row
    return records[:COUNT], rows


@pytest.mark.parametrize("keys", few([BY_KEY, ("id",)], [("id",)]), ids=["by key", "by field"])
def test_debeziums_changes_become_the_rows_of_their_table(
    golden_log: Make, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    records, rows = debezium_topic()
    world = world_of(golden_log, tmp_path, records, CHANGES, upsert=keys)
    world.follow()
    require_log(world)
    shown = [{name: row[name] for name in ("id", "of", "n")} for row in world.rows().to_pylist()]
    assert sorted(shown, key=lambda row: row["id"]) == [row for _, row in sorted(rows.items())]


def test_an_envelope_of_another_operation_keeps_its_bytes(golden_log: Make, tmp_path: Path) -> None:
    strange = [b'{"op": "t"}', b'{"op": "c"}', b'{"before": {"id": 1}}', b"{}", b"?"]
    world = world_of(golden_log, tmp_path, [(None, each) for each in strange], CHANGES, upsert=("id",))
    assert sum(each.corrupt for each in world.follow()) == len(strange)
    assert [row["_corrupt"]["value"] for row in world.rows().to_pylist()] == strange
    require_log(world)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (Columns(EVERY_COLUMN, envelope="debezium"), "an envelope has typed values"),
        (Columns(EVERY_COLUMN, value=Form("json", ROW), envelope="debezium"), "before, after and op"),
        (
            Columns(
                EVERY_COLUMN,
                value=Form("json", "before struct<a int>, after struct<a bigint>, op string"),
                envelope="debezium",
            ),
            "records of one type",
        ),
    ],
)
def test_a_schema_that_is_no_envelope_is_refused(columns: Columns, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        columns.schema()


def test_the_check_finds_a_row_that_is_not_the_newest_and_one_that_is_missing(golden_log: Make, tmp_path: Path) -> None:
    records = keyed_topic()
    world = world_of(golden_log, tmp_path, records, BYTES, upsert=("key",))
    world.follow()
    rows = fold(records, COUNT)
    older = next(at for at in range(COUNT) if at not in rows)

    def stale(row: pa.Table) -> pa.Table:
        at = row.schema.get_field_index("offset")
        return row.set_column(at, row.field(at), pa.array([older] * row.num_rows, pa.int64()))

    change(world, stale, rows[3], rows[3])
    (finding,) = check_table(world.table(), world.log(), window_bytes=10**6).findings
    assert finding.problem == "1 record of the log is no row"
    assert finding.offset == rows[3]


def test_the_check_finds_a_row_below_the_log_start_whose_key_has_a_newer_record(
    golden_log: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [(b"%d" % at, b"1") for at in range(100)] + [(b"3", b"2")] * 140
    world = world_of(golden_log, tmp_path, records, BYTES, upsert=("key",))
    produce(world, 100)
    world.follow()
    delete_below(world, 60)
    monkeypatch.setattr("tierstate.lake.table_upsert._replaced", lambda *_: iter(()))
    produce(world, COUNT)
    world.follow()
    problems = [each.problem for each in check_table(world.table(), world.log()).findings]
    assert "1 row is of a key with a newer record" in problems


def test_more_keys_than_a_filter_names_are_found_by_their_bounds(golden_log: Make, tmp_path: Path) -> None:
    records = [(b"%03d" % (at % 230), b"%d" % at) for at in range(460)]
    world = world_of(golden_log, tmp_path, records, BYTES, upsert=("key",), limits=TableLimits())
    produce(world, 230)
    world.follow()
    produce(world, 460)
    world.follow()
    assert require_log(world) == list(range(230, 460))
