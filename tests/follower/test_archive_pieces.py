"""One object of the archive: what goes in comes out, and nothing else can pass for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.follower.archived import flips
from tierstate.follower.archive_piece import (
    WINDOW,
    ArchivedEntry,
    Draft,
    border_after,
    decode_piece,
    encode_piece,
)
from tierstate.follower.object_names import PieceName, TierPlace
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import Entry

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"
PLACE = TierPlace(TOPIC_ID, 3)
IDENTITY = ViewIdentity("cluster", TOPIC_ID, 50)


def name(first: int, last: int) -> PieceName:
    return PieceName(Position(first), Position(last), PLACE.piece(first, last))


def entry(position: int, key: str = "key", value: bytes | None = b"value", timestamp: int = 5) -> ArchivedEntry:
    return ArchivedEntry(Entry(key, Position(position), value), TimestampMs(timestamp))


def piece(first: int, last: int, *entries: ArchivedEntry) -> bytes:
    return encode_piece(IDENTITY, 3, Draft(Position(first), Position(last), entries, 7, True), None)


SMALL = piece(100, 105, entry(100), entry(102, "k2", None), entry(105, "k3", b"", -1))


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    first = draw(st.integers(0, 2**40))
    last = draw(st.integers(first, border_after(first) - 1))
    positions = draw(st.sets(st.integers(first, last), max_size=12))
    keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    values = st.none() | st.binary(max_size=60)
    entries = tuple(
        entry(position, draw(keys), draw(values), draw(st.integers(-1, 2**62))) for position in sorted(positions)
    )
    return Draft(Position(first), Position(last), entries, draw(st.integers(-1, 2**31 - 1)), True)


@given(drafts())
def test_what_goes_in_comes_out(draft: Draft) -> None:
    data = encode_piece(IDENTITY, 3, draft, None)
    read = decode_piece(data, PLACE, name(draft.first, draft.last))
    assert read.entries == draft.entries
    assert (read.header.first, read.header.last, read.header.epoch) == (draft.first, draft.last, draft.epoch)
    assert read.holes == draft.last - draft.first + 1 - len(draft.entries)
    times = [entry.timestamp for entry in draft.entries] or [TimestampMs(-1)]
    assert (read.header.oldest_timestamp, read.header.newest_timestamp) == (min(times), max(times))


def test_every_changed_byte_is_found() -> None:
    decode_piece(SMALL, PLACE, name(100, 105))
    for changed in flips(SMALL):
        with pytest.raises(CorruptData, match="/archive/"):
            decode_piece(changed, PLACE, name(100, 105))


def test_every_missing_or_added_byte_is_found() -> None:
    for data in [*(SMALL[:end] for end in range(len(SMALL))), SMALL + b"\0", SMALL + SMALL]:
        with pytest.raises(CorruptData):
            decode_piece(data, PLACE, name(100, 105))


@pytest.mark.parametrize(
    ("place", "as_name"),
    [
        (PLACE, name(100, 106)),
        (PLACE, name(99, 105)),
        (TierPlace(TOPIC_ID, 4), name(100, 105)),
        (TierPlace("BBBBBBBBBBBBBBBBBBBBBg", 3), name(100, 105)),
    ],
)
def test_a_piece_under_another_name_is_refused(place: TierPlace, as_name: PieceName) -> None:
    with pytest.raises(CorruptData, match="another's name"):
        decode_piece(SMALL, place, as_name)


@pytest.mark.parametrize(
    ("first", "last", "positions"),
    [
        (WINDOW - 1, WINDOW, ()),
        (5, 4, ()),
        (5, 9, (4,)),
        (5, 9, (10,)),
        (5, 9, (7, 6)),
        (5, 9, (7, 7)),
    ],
)
def test_a_piece_that_no_chain_may_have_is_never_made(first: int, last: int, positions: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match="not a piece"):
        piece(first, last, *(entry(position) for position in positions))


def test_names_are_read_as_they_are_minted_and_nothing_else_is() -> None:
    minted = name(0, 9_999)
    assert PLACE.parse_piece(minted.key) == minted
    for key in (
        minted.key + "x",
        minted.key[:-1],
        TierPlace(TOPIC_ID, 33).piece(0, 9_999),
        PLACE.piece(9, 8),
        PLACE.checkpoint(5),
        PLACE.piece(0, 2**63),
    ):
        assert PLACE.parse_piece(key) is None
