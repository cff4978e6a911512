"""Damage is refused by name, or the records are equal: a fixed part of the table's cells in each run, all nightly."""

from __future__ import annotations

import zlib
from functools import partial

import pytest

from tests.damage.damages import Damage
from tests.damage.matrix import FAULTS, PAGE, known, outcomes, results_of, shown, table
from tests.damage.segments import FORMS, Form

QUICK = ("encrypted", "transactions")
"""The forms of which `make test` damages a few; CI damages more of each form."""
PARTS = [
    *(pytest.param(form, 480) for form in FORMS if form.name in QUICK),
    *(pytest.param(form, 8, marks=pytest.mark.extended) for form in FORMS),
]


def belongs(one_of: int, damage: Damage) -> bool:
    """Return whether this damage belongs to a fixed part of the table: one damage of so many."""
    return zlib.crc32(str(damage).encode()) % one_of == 0


def test_the_page_holds_the_table_as_it_was_found_last() -> None:
    assert shown(PAGE.read_text()) == table(known()), "python -m tests.damage.matrix --write"


@pytest.mark.parametrize(("form", "one_of"), PARTS, ids=lambda value: getattr(value, "name", None))
def test_damage_is_refused_by_name_or_delivered_equal_where_the_table_says_so(form: Form, one_of: int) -> None:
    results, count = known(), 0
    for outcome in outcomes(form, partial(belongs, one_of)):
        count += 1
        assert form.name in results[outcome.row][outcome.column].get(outcome.what, ()), outcome
    assert count > 1_600 / one_of


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_whole_matrix_is_as_it_was_found_last() -> None:
    results = results_of(outcome for form in FORMS for outcome in outcomes(form))
    assert results == known(), "python -m tests.damage.matrix --write"


def test_no_damage_is_silent_or_reported_late() -> None:
    for row, columns in known().items():
        for column, cell in columns.items():
            assert not set(cell) & set(FAULTS), (row, column, cell)
