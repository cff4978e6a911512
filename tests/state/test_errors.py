"""Errors cross process borders whole (Spark pickles them), and their messages end with their facts."""

from __future__ import annotations

import copy
import pickle

import pytest

from tierstate.state import errors
from tierstate.state.errors import (
    CorruptData,
    Fenced,
    InvalidSettings,
    LogGap,
    MissingExtra,
    OffsetOutOfRange,
    TierstateError,
    ViewBehind,
    apart,
)
from tierstate.state.ids import TopicId, TopicIdPartition

SPECIAL: dict[str, TierstateError] = {
    "InvalidSettings": InvalidSettings(["a.b: wrong", "c.d: missing"]),
    "MissingExtra": MissingExtra("spark", "the data source"),
    "OffsetOutOfRange": OffsetOutOfRange("offset out of range", valid_start=3, valid_end=9, topic="orders", offset=1),
    "LogGap": LogGap("offsets belong to no tier", start=3, end=9, topic="orders"),
}


def every_class(root: type[TierstateError] = TierstateError) -> list[type[TierstateError]]:
    return [root, *(each for kind in root.__subclasses__() for each in every_class(kind))]


def sample(kind: type[TierstateError]) -> TierstateError:
    return SPECIAL.get(kind.__name__) or kind("it broke", file="a b", position=7)


@pytest.mark.parametrize("kind", [each for each in every_class() if each.__module__ == errors.__name__])
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_survives_pickling_with_all_it_knows(kind: type[TierstateError], again: object) -> None:
    error = sample(kind)
    assert callable(again)
    rebuilt = again(error)
    assert type(rebuilt) is kind
    assert (str(rebuilt), rebuilt.__dict__) == (str(error), error.__dict__)
    assert rebuilt.facts == error.facts


def test_attributes_set_later_survive_too() -> None:
    error = ViewBehind("behind", position=3)
    error.add_note("while planning")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while planning"]


def test_the_message_states_facts_last() -> None:
    assert str(CorruptData("batch CRC does not match", file="0.log", position=61)) == (
        "batch CRC does not match. file=0.log position=61"
    )
    assert str(CorruptData("batch CRC does not match")) == "batch CRC does not match"


def test_facts_that_are_none_are_left_out() -> None:
    assert str(CorruptData("bad", file=None, position=0)) == "bad. position=0"


def test_out_of_range_and_gap_carry_their_ranges() -> None:
    out, gap = SPECIAL["OffsetOutOfRange"], SPECIAL["LogGap"]
    assert str(out) == "offset out of range. topic=orders offset=1 valid_start=3 valid_end=9"
    assert str(gap) == "offsets belong to no tier. topic=orders start=3 end=9"


def test_the_drawing_shows_every_error_under_its_parent() -> None:
    drawing = (errors.__doc__ or "").splitlines()
    depth = {line.strip("│├└─ ").split()[0]: line.index(line.strip("│├└─ ")) for line in drawing if line.strip("│├└─ ")}
    for kind in every_class():
        if kind.__module__ == errors.__name__ and kind is not TierstateError:
            assert depth[kind.__name__] == depth[kind.__bases__[0].__name__] + 4, kind.__name__


def test_people_read_a_partition_as_kafka_writes_it_and_programs_its_parts() -> None:
    place = TopicIdPartition(TopicId.of(bytes(16)), 3)
    assert str(Fenced("stop", topic="orders", partition=3, term="0/1")) == "stop. partition=orders-3 term=0/1"
    named = Fenced("stop", topic="orders", partition=place)
    assert str(named) == f"stop. partition=orders-3 topic_id={place.topic_id}"
    assert apart(named.facts) == {"topic": "orders", "partition": 3, "topic_id": place.topic_id}
    assert str(Fenced("stop", partition=place)) == f"stop. partition={place}", "by its id where nobody says the name"
