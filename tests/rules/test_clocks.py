"""The rules that name the wrong clock, and the time by which something may be deleted."""

from __future__ import annotations

import pytest

from tierstate.rules.clocks import MACHINE, NO_DELETION, STORE, Clocks, Witness
from tierstate.rules.reasons import Reason
from tierstate.state.offsets import TimestampMs

NOW = 1_700_000_000_000
DAY = 86_400_000


def clocks(machine: int, *others: tuple[str, int]) -> Clocks:
    witnesses = (Witness(name, TimestampMs(NOW + apart)) for name, apart in others)
    return Clocks(Witness(MACHINE, TimestampMs(NOW + machine)), tuple(witnesses))


def test_the_earliest_of_clocks_that_agree_decides_the_age() -> None:
    seen = clocks(40_000, ("broker", 10_000), (STORE, 0))
    assert seen.doubt is None
    assert seen.for_deletion == NOW
    assert seen.latest == NOW + 40_000


@pytest.mark.parametrize("apart", [2 * DAY, -2 * DAY, 61_000])
def test_nothing_grows_old_while_machine_and_broker_differ_by_more_than_a_minute(apart: int) -> None:
    seen = clocks(apart, ("broker", 0))
    assert seen.for_deletion == NO_DELETION
    assert seen.doubt is not None
    assert seen.doubt.kind is Reason.CLOCKS_DISAGREE


@pytest.mark.parametrize(
    ("machine", "broker", "store", "wrong"),
    [(2 * DAY, 0, 0, MACHINE), (0, -3 * DAY, 500, "broker"), (0, 900, 4 * DAY, STORE)],
)
def test_two_clocks_that_agree_name_the_third_as_wrong(machine: int, broker: int, store: int, wrong: str) -> None:
    doubt = clocks(machine, ("broker", broker), (STORE, store)).doubt
    assert doubt is not None
    assert f"the clock of {wrong} is wrong" in doubt.text


def test_brokers_that_differ_by_days_stop_deletion_although_one_of_them_agrees_with_the_machine() -> None:
    doubt = clocks(0, ("broker of 3", 200), ("broker of 7", 3 * DAY)).doubt
    assert doubt is not None
    assert "the clock of broker of 7 is wrong" in doubt.text


def test_two_clocks_that_differ_blame_neither() -> None:
    doubt = clocks(DAY, ("broker", 0)).doubt
    assert doubt is not None
    assert "is wrong" not in doubt.text


def test_a_machine_that_nothing_confirms_deletes_nothing() -> None:
    assert clocks(0).doubt is not None
    assert clocks(0).apart is None
