"""The difference between the offsets that are asked for and those that a place already has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lake.exports import EVERY_COLUMN, TOPIC_ID
from tierstate.lake.columns import Columns
from tierstate.lake.export_ledger import Ledger, document
from tierstate.lake.export_plan import ExportedFile, ExportPlan, Shape, TaskDone, covered, uncovered
from tierstate.lake.jobs import Task
from tierstate.lake.names import day_name, plan_key, plan_number
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.offsets import Extent, Offset, TimestampMs
from tierstate.state.routing import Isolation
from tierstate.storage.memory import MemoryStore

SHAPE = Shape(Columns(EVERY_COLUMN), Isolation.READ_COMMITTED, 1000, "writer")


def plan_of(number: int, *ranges: tuple[int, int, int]) -> ExportPlan:
    tasks = [Task(at, partition, Offset(start), Offset(end)) for at, (partition, start, end) in enumerate(ranges)]
    return ExportPlan("t", TOPIC_ID, number, SHAPE, tuple(tasks))


pieces = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 8)), max_size=8)


@given(pieces, st.tuples(st.integers(0, 30), st.integers(0, 12)))
def test_an_export_lacks_exactly_the_requested_offsets_without_files(
    had: list[tuple[int, int, int]], asked: tuple[int, int]
) -> None:
    taken: set[tuple[int, int]] = set()
    ranges = []
    for partition, start, length in had:
        offsets = {(partition, at) for at in range(start, start + length)}
        if not offsets & taken:
            taken |= offsets
            ranges.append((partition, start, start + length))
    target = {partition: Extent(Offset(asked[0]), Offset(asked[0] + asked[1])) for partition in range(3)}
    left = uncovered(target, covered([plan_of(0, *ranges)]))
    offsets_left = [(partition, at) for partition, start, end in left for at in range(start, end)]
    expected = {(p, at) for p in range(3) for at in range(asked[0], asked[0] + asked[1])} - taken
    assert sorted(offsets_left) == offsets_left
    assert set(offsets_left) == expected
    assert len(offsets_left) == len(expected)


def test_two_exports_of_the_same_offsets_are_damage() -> None:
    with pytest.raises(CorruptData, match="two exports have the same offsets"):
        covered([plan_of(0, (0, 0, 10)), plan_of(1, (0, 9, 12))])


def test_the_first_of_two_plans_of_one_number_stands_for_both() -> None:
    ledger = Ledger(MemoryStore(), TOPIC_ID)
    first, second = plan_of(0, (0, 0, 10)), plan_of(0, (0, 0, 20))
    assert ledger.add(first) == first
    assert ledger.add(second) == first
    assert ledger.plans() == [first]


def test_two_runs_of_a_task_agree_or_the_second_fails() -> None:
    ledger, plan = Ledger(MemoryStore(), TOPIC_ID), plan_of(0, (0, 0, 10))
    ledger.commit(plan, TaskDone(0, ()))
    ledger.commit(plan, TaskDone(0, ()))
    file = ExportedFile(
        "t/date=1970-01-01/x.parquet", 0, "1970-01-01", 1, 0, 0, TimestampMs(0), TimestampMs(0), 1, "", ""
    )
    with pytest.raises(CorruptData, match="made something else"):
        ledger.commit(plan, TaskDone(0, (file,)))
    assert ledger.done(plan) == {0: TaskDone(0, ())}


def test_a_moved_or_broken_plan_is_named() -> None:
    place = MemoryStore()
    place.put_if_absent(plan_key(TOPIC_ID, 3), document(plan_of(2, (0, 0, 1)).as_json()))
    with pytest.raises(CorruptData, match="lies under another's name"):
        Ledger(place, TOPIC_ID).plans()
    broken = MemoryStore()
    broken.put_if_absent(plan_key(TOPIC_ID, 0), b"{}")
    with pytest.raises(CorruptData, match="not a plan"):
        Ledger(broken, TOPIC_ID).plans()
    garbage = MemoryStore()
    garbage.put_if_absent(plan_key(TOPIC_ID, 0), b"\xff")
    with pytest.raises(CorruptData, match="not a document"):
        Ledger(garbage, TOPIC_ID).plans()


def test_a_plan_of_a_later_format_is_refused_by_name() -> None:
    place = MemoryStore()
    later_plan = {**json.loads(document(plan_of(0, (0, 0, 1)).as_json())), "format": 2}
    place.put_if_absent(plan_key(TOPIC_ID, 0), document(later_plan))
    with pytest.raises(InvalidRequest, match="another version of tierstate"):
        Ledger(place, TOPIC_ID).plans()


@given(st.integers(0, 99_999_999))
def test_a_plans_key_says_its_number(number: int) -> None:
    assert plan_number(plan_key(TOPIC_ID, number)) == number
    assert plan_number(plan_key(TOPIC_ID, number) + "x") is None


def test_days_are_named_as_people_write_them_also_beyond_the_calendar() -> None:
    assert [day_name(day) for day in (0, -1, 20_000, -719_162, -719_163, 2_932_896, 2_932_897)] == [
        "1970-01-01", "1969-12-31", "2024-10-04", "0001-01-01", "day-719163", "9999-12-31", "day+2932897",
    ]  # fmt: skip
