"""A map of layers answers as a dict with the same entries, and earlier answers never change."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.layered_map import LayeredTable

PUTS = st.lists(st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(1, 9))), max_size=120)


@given(PUTS)
def test_it_answers_as_a_dict_with_the_same_entries_in_the_same_order(puts: list[tuple[int, int | None]]) -> None:
    table, plain = LayeredTable[int, int](), dict[int, int]()
    shown = []
    for key, value in puts:
        assert table.put(key, value) == plain.pop(key, None)
        if value is not None:
            plain[key] = value
        shown.append((table.shown(), dict(plain)))
    for now, then in shown:
        assert list(now.items()) == list(then.items())
        assert (len(now), now == then) == (len(then), True)
        assert [now.get(key) for key in range(41)] == [then.get(key) for key in range(41)]


def test_a_deleted_key_is_an_error_as_in_a_dict() -> None:
    table = LayeredTable[str, int]()
    for key in "abcdefgh":
        table.put(key, 1)
    table.put("a", None)
    with pytest.raises(KeyError):
        table.shown()["a"]
    assert pickle.loads(pickle.dumps(table.shown())) == table.shown()
