"""A consumer group as a table of phases: every time is given."""

from __future__ import annotations

import pytest

from tierstate.proxy.group import (
    FIRST_JOIN_S,
    ILLEGAL_GENERATION,
    INCONSISTENT_PROTOCOL,
    NONE,
    REBALANCE,
    UNKNOWN_MEMBER,
    Group,
    Member,
    Phase,
)


def member(name: str, now: float, *protocols: str, instance: str | None = None) -> Member:
    return Member(name, instance, dict.fromkeys(protocols or ("range",), b""), 10.0, 60.0, now)


@pytest.fixture
def pair() -> Group:
    """A stable group of a and b in generation 1, at time 1."""
    group = Group()
    assert group.join(member("a", 0.0, "sticky", "range"), "consumer", 0.0) == NONE
    group.step(FIRST_JOIN_S / 2)
    assert group.phase is Phase.JOINING
    assert group.join(member("b", 0.3), "consumer", 0.3) == NONE
    group.step(FIRST_JOIN_S)
    assert (group.phase, group.generation, group.protocol, group.leader) == (Phase.SYNCING, 1, "range", "a")
    group.assign({"a": b"0", "b": b"1"})
    return group


def test_the_first_members_share_one_rebalance_and_the_protocol_that_all_have(pair: Group) -> None:
    assert pair.phase is Phase.STABLE
    assert {each.id: each.assignment for each in pair.members.values()} == {"a": b"0", "b": b"1"}
    assert pair.check("a", 1, 1.0) == pair.check("b", 1, 1.0) == NONE


def test_a_new_member_makes_the_others_join_again(pair: Group) -> None:
    pair.join(member("c", 2.0), "consumer", 2.0)
    pair.step(2.0)
    assert (pair.phase, pair.check("a", 1, 2.0)) == (Phase.JOINING, REBALANCE)
    for name in "ab":
        pair.join(member(name, 2.1), "consumer", 2.1)
    pair.step(2.1)
    assert (pair.phase, pair.generation) == (Phase.SYNCING, 2)
    assert pair.check("a", 1, 2.2) == ILLEGAL_GENERATION


def test_a_member_that_does_not_join_again_is_removed_after_its_time(pair: Group) -> None:
    pair.join(member("a", 2.0), "consumer", 2.0)
    pair.members["a"].waits = 1
    pair.members["b"].session_s = 100.0
    pair.step(61.9)
    assert pair.phase is Phase.JOINING
    pair.step(62.0)
    assert (pair.phase, set(pair.members)) == (Phase.SYNCING, {"a"})
    assert pair.check("b", 1, 62.0) == UNKNOWN_MEMBER


def test_a_silent_member_is_removed_and_one_that_waits_is_not(pair: Group) -> None:
    pair.members["a"].waits = 1
    pair.members["b"].seen = 1.0
    pair.step(11.1)
    assert set(pair.members) == {"a"}
    assert pair.phase is Phase.JOINING


def test_the_last_member_leaves_an_empty_group(pair: Group) -> None:
    assert [pair.leave(name, 2.0) for name in ("a", "b", "b")] == [NONE, NONE, UNKNOWN_MEMBER]
    pair.step(2.0)
    assert pair.phase is Phase.EMPTY


def test_a_static_member_takes_the_place_of_its_instance(pair: Group) -> None:
    pair.members["b"].instance = "pod-1"
    assert pair.join(member("c", 2.0, instance="pod-1"), "consumer", 2.0) == NONE
    assert set(pair.members) == {"a", "c"}


def test_members_without_a_common_protocol_are_refused(pair: Group) -> None:
    assert pair.join(member("c", 2.0, "other"), "consumer", 2.0) == INCONSISTENT_PROTOCOL
    assert pair.join(member("c", 2.0), "connect", 2.0) == INCONSISTENT_PROTOCOL
    assert pair.phase is Phase.STABLE
