"""Foreign keys and unreadable values are kept, shown, erased like any others, and never fatal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.twins.manual_clock import ManualClock
from tierstate.broker.tier_reader import key_bytes, key_text
from tierstate.follower.digests import live_set_digest
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.errors import InvalidRequest
from tierstate.state.facts import Fact, UnknownFact
from tierstate.state.keys import Places, key_of, parse_key, partition_of_key, tier_partition_of
from tierstate.state.offsets import Position
from tierstate.state.view import Entry, ViewStore

NewStore = Callable[[], ViewStore]
T = str(partition(0).topic_id)
NUMBER = tier_partition_of(partition(0), PARTITIONS)
FOREIGN = [
    "",
    "/",
    "//",
    "hex:ff00",
    "somebody else's key",
    "meta/other",
    f"{T}/0/whatever/x",
    f"{T}/0/",
    f"{T}/00/leader/3/{T}",
    f"{T}/2147483648/leader/3/{T}",
    f"{T}/0/leader/-1/{T}",
    f"{T}/0/segment/{T}/copy-finished/",
    f"{T}/0/segment/{T[:-1]}B/copy-finished",
    f"{T}x/0/order/{T}",
]


@pytest.fixture
def follower(said: Topic) -> Follower:
    return open_view(said.topic, "cluster", ManualClock(), Following(tail=False))


@pytest.mark.parametrize("key", FOREIGN)
def test_a_foreign_key_degrades_its_whole_tier_state_partition_until_it_is_erased(
    said: Topic, follower: Follower, key: str
) -> None:
    leader = elected(0, 3, 1)
    said.say(leader)
    at = said.topic.append(NUMBER, key, b"what is this")
    follower.require_fresh(NUMBER, 0)
    view = follower.partition(partition(0))
    assert view.leader == leader
    assert len(view.degraded) == 1
    assert f"position={at}" in view.degraded[0]
    assert f"key={key!r}" in view.degraded[0]
    said.topic.append(NUMBER, key, None)
    follower.require_fresh(NUMBER, 0)
    assert follower.partition(partition(0)).degraded == ()


def test_a_foreign_key_degrades_every_partition_there_and_none_elsewhere(said: Topic, follower: Follower) -> None:
    there = next(number for number in range(1, 99) if tier_partition_of(partition(number), PARTITIONS) == NUMBER)
    elsewhere = next(number for number in range(99) if tier_partition_of(partition(number), PARTITIONS) != NUMBER)
    for user in (0, there, elsewhere):
        said.say(elected(user, 3, user + 1))
    said.topic.append(NUMBER, "foreign", b"v")
    for number in range(PARTITIONS):
        follower.require_fresh(number, 0)
    degraded = [bool(follower.partition(partition(user)).degraded) for user in (0, there, elsewhere)]
    assert degraded == [True, True, False]
    said.say(elected(elsewhere, 4, 77))
    follower.require_fresh(tier_partition_of(partition(elsewhere), PARTITIONS), 0)
    leader = follower.partition(partition(elsewhere)).leader
    assert leader is not None
    assert leader.epoch == 4


def test_a_key_of_ours_in_the_wrong_tier_state_partition_means_nothing(
    new_store: NewStore,
) -> None:
    store, leader = new_store(), elected(0, 3, 1)
    wrong = (NUMBER + 1) % PARTITIONS
    store.apply(wrong, [Entry(key_of(leader), Position(0), encode_fact(leader))], Position(1))
    assert f"belongs in tier-state partition {NUMBER} " in store.foreign(wrong)[0]
    assert store.foreign(NUMBER) == ()
    assert store.state(partition(0)).view().leader is None
    assert store.partitions() == []


def test_foreign_entries_count_in_the_live_set_and_its_digest(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    for position, key in enumerate(FOREIGN):
        one.apply(NUMBER, [Entry(key, Position(position), b"v")], Position(position + 1))
    two.apply(NUMBER, [Entry(key, Position(at), b"v") for at, key in enumerate(FOREIGN)], Position(len(FOREIGN)))
    assert sorted(entry.key for _, entry in one.entries()) == sorted(FOREIGN)
    assert live_set_digest(one.entries()).hexdigest() == live_set_digest(two.entries()).hexdigest()
    assert one.foreign(NUMBER) == two.foreign(NUMBER)
    assert len(one.foreign(NUMBER)) == len(FOREIGN)
    assert one.partitions() == []


def test_an_unreadable_value_degrades_only_its_own_partition(said: Topic, follower: Follower) -> None:
    leader = elected(0, 3, 1)
    at = said.say(leader)
    said.topic.append(NUMBER, key_of(log_start(0, 5, leader, at)), b"\xc3\x01garbage")
    there = next(number for number in range(1, 99) if tier_partition_of(partition(number), PARTITIONS) == NUMBER)
    said.say(elected(there, 3, 9))
    follower.require_fresh(NUMBER, 0)
    assert "position=1" in follower.partition(partition(0)).degraded[0]
    assert follower.partition(partition(there)).degraded == ()


@given(st.binary(max_size=60))
def test_every_key_has_one_text_and_every_text_its_key(key: bytes) -> None:
    text = key_text(key)
    assert key_bytes(text) == key
    text.encode()


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_two_keys_never_look_alike(one: bytes, two: bytes) -> None:
    assert (key_text(one) == key_text(two)) == (one == two)
    assert key_text(b"hex:" + one) != key_text(one)


PARTS = st.sampled_from(
    ["", T, T[:-1] + "B", "0", "01", "7", str(2**31), str(2**63), "-1", "leader", "segment", "trim"]
)
MORE = st.sampled_from(
    ["copy-started", "delete-started", "order", "deleted", "log-start", "meta", "topic", "trim", "x\n"]
)


@given(st.lists(PARTS | MORE, max_size=8).map("/".join) | st.text(max_size=30))
def test_a_key_is_ours_if_it_parses(key: str) -> None:
    places = Places()
    places.of(0, f"{T}/0/leader/3/{T}")  # so that the fast way is taken too
    try:
        parsed = parse_key(key)
    except InvalidRequest:
        assert places.of(0, key).foreign is not None
    else:
        assert places.of(0, key) == (partition_of_key(key) if parsed else None, None)


def damaged(number: int) -> st.SearchStrategy[tuple[str, bytes]]:
    leader = elected(number, 3, 1)
    facts: list[Fact] = [leader, log_start(number, 1234, leader, Position(5))]

    def one(which: int, at: int, mask: int, cut: bool) -> tuple[str, bytes]:
        value = bytearray(encode_fact(facts[which]))
        at %= len(value)
        if cut:
            return key_of(facts[which]), bytes(value[:at])
        value[at] ^= mask
        return key_of(facts[which]), bytes(value)

    return st.builds(one, st.sampled_from([0, 1]), st.integers(0, 10_000), st.integers(1, 255), st.booleans())


@given(damaged(0))
def test_a_damaged_value_is_an_unknown_fact_or_one_that_still_agrees_with_its_key(case: tuple[str, bytes]) -> None:
    key, value = case
    fact = decode_fact(key, value)
    assert isinstance(fact, UnknownFact) or key_of(fact) == key
