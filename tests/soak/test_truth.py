"""The complaints of a soak: each way in which the records read can differ from those acknowledged."""

from __future__ import annotations

import pytest

from tests.soak.truth import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Known,
    Record,
    Truth,
    complaints,
    digest,
    jumped,
    key_of,
    value_of,
)

PLACE = ("orders", 0)


def record(offset: int, number: int) -> Record:
    return offset, key_of(number), value_of(number)


@pytest.fixture
def truth() -> Truth:
    """Numbers 1 to 6 are at offsets 10 to 15; 3 is in an aborted transaction, 4 and 5 in one whose end is unknown."""
    made = Truth(fates={100: ABORTED, 101: UNKNOWN, 102: COMMITTED}, transaction_of={3: 100, 4: 101, 5: 101, 6: 102})
    for offset in (12, 10, 11, 13, 14, 15):  # acknowledged in any order
        made.acknowledged(PLACE, offset - 9, offset, offset * 1000)
    return made


RIGHT = [record(10, 1), record(11, 2), record(13, 4), record(14, 5), record(15, 6)]


def said(truth: Truth, read: list[Record], committed: bool = True, start: int = 10) -> str:
    truth_now: Known = truth.snapshot(PLACE)
    return "; ".join(complaints(truth, truth_now, start, 16, read, committed))


def test_the_truth_is_no_complaint(truth: Truth) -> None:
    assert not said(truth, RIGHT)
    assert not said(truth, RIGHT[:2] + RIGHT[4:])
    assert not said(truth, RIGHT[1:], start=11)
    assert not said(truth, [record(offset, offset - 9) for offset in range(10, 16)], committed=False)


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        (RIGHT[:4], "1 acknowledged records are lost, at offsets 15"),
        (RIGHT[1:], "1 acknowledged records are lost, at offsets 10"),
        ([*RIGHT[:1], record(11, 3), *RIGHT[2:]], "1 records are not the ones acknowledged there, at offsets 11"),
        ([*RIGHT[:1], (11, key_of(2), value_of(2)[:-1] + b"!"), *RIGHT[2:]], "offset 11 holds what nobody wrote"),
        ([*RIGHT[:1], (11, b"other", value_of(2)), *RIGHT[2:]], "offset 11 holds what nobody wrote"),
        ([*RIGHT[:2], record(12, 3), *RIGHT[2:]], "1 records of aborted transactions are shown, at offsets 12"),
        ([*RIGHT[:3], RIGHT[4]], "1 transactions are shown in part: 101"),
        ([RIGHT[1], RIGHT[0], *RIGHT[2:]], "offset 10 is read after 11"),
        ([*RIGHT, RIGHT[-1]], "offset 15 is read after 15"),
        ([*RIGHT, record(16, 6)], "read twice: 6"),
        ([*RIGHT, record(16, 7)], "1 records were never sent there, at offsets 16"),
    ],
)
def test_every_other_reading_is_one(truth: Truth, read: list[Record], complaint: str) -> None:
    assert complaint in said(truth, read)


def test_a_record_acknowledged_without_an_offset_must_be_there_in_its_order(truth: Truth) -> None:
    """A retry whose first answer was lost is acknowledged as a duplicate."""
    truth.transaction_of |= {8: 102, 9: 102}
    truth.acknowledged(PLACE, 9, 17, 0)
    truth.acknowledged(PLACE, 8, -1, 0)
    truth_now = truth.snapshot(PLACE)
    whole = [*RIGHT, record(16, 8), record(17, 9)]
    assert not [*complaints(truth, truth_now, 10, 18, whole, True)]
    (lost,) = complaints(truth, truth_now, 10, 18, [*RIGHT, record(17, 9)], True)
    assert lost == "1 acknowledged records are lost, of numbers 8"


def test_a_record_never_answered_may_be_there_and_may_be_not(truth: Truth) -> None:
    truth.unanswered(PLACE, 7)
    assert not said(truth, RIGHT)
    assert not said(truth, [*RIGHT, record(16, 7)])


def test_records_that_a_consumer_did_not_get_were_jumped_over(truth: Truth) -> None:
    truth_now = truth.snapshot(PLACE)
    whole = [record(offset, offset - 9) for offset in range(10, 16)]
    assert not [*jumped(truth_now, 10, 16, whole)]
    assert not [*jumped(truth_now, 12, 15, whole[2:5])]
    for read in (whole[2:], [*whole[:1], record(11, 7), *whole[2:]]):
        (complaint,) = jumped(truth_now, 10, 16, read)
        assert complaint.endswith(
            "records from 10 on were jumped over, at offsets " + ("10, 11" if read[0][0] > 10 else "11")
        )


def test_digests_tell_offsets_keys_and_values_apart() -> None:
    variants = [(1, b"k", b"v"), (2, b"k", b"v"), (1, b"", b"kv"), (1, b"k", b"w")]
    assert len({digest([each]) for each in variants}) == len(variants)


def test_the_youngest_record_below_an_offset_is_known(truth: Truth) -> None:
    truth_now = truth.snapshot(PLACE)
    assert (truth_now.youngest_below(10), truth_now.youngest_below(12)) == (None, 11_000)


def test_records_below_the_log_start_are_forgotten(truth: Truth) -> None:
    truth.forget_below(PLACE, 13)
    assert truth.snapshot(PLACE).offsets == [13, 14, 15]
    assert 3 not in truth.transaction_of
    assert not said(truth, RIGHT[2:], start=13)
