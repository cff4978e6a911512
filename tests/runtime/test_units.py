from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.runtime.units import counted, parse_duration, parse_size, show_duration, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4MiB", 4 << 20), ("4 mib", 4 << 20), ("10MB", 10**7), (7, 7), ("1.5KiB", 1536), ("9B", 9)],
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("15m", 900), ("7d", 604_800), ("1h30m", 5400), ("250ms", 0.25), (2, 2), ("0", 0), (0, 0)],
)
def test_durations_are_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "4 MiB extra", "MiB", "4XB", True, None, "nan", "1e3", "٤", "9999999TiB"])
def test_a_text_that_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "-1s", "15 minutes", "m", True, None, -1, float("nan"), float("inf"), "٣s", "1w"])
def test_a_text_that_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["15", "0.5", " 900 "])
def test_a_duration_is_written_with_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match=rf"without a unit: {text.strip()}; write {text.strip()}s for seconds"):
        parse_duration(text)


@given(st.integers(0, 2**62))
def test_a_size_reads_back_as_it_is_shown(size: int) -> None:
    assert parse_size(show_size(size)) == size


@given(st.integers(0, 10**12))
def test_a_duration_reads_back_as_it_is_shown(milliseconds: int) -> None:
    assert parse_duration(show_duration(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize(("number", "said"), [(0, "0 topics"), (1, "1 topic"), (2, "2 topics"), (2000, "2,000 topics")])
def test_one_of_a_thing_is_singular(number: int, said: str) -> None:
    assert counted(number, "topic") == said
    assert counted(number, "topic is", "topics are") == said + (" is" if number == 1 else " are")
