"""Groups over HTTP: the tier in which each stands, for the caller alone, remembered for seconds and within bounds."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

import pytest

from tests.api.gateways import MemoryReader, StandIn, asgi_call
from tests.twins.manual_clock import ManualClock
from tierstate.api import rights
from tierstate.api.app import create_app
from tierstate.api.credentials import ANYBODY, Caller, basic, named
from tierstate.api.problems import NotAuthenticated
from tierstate.api.rights import GroupStandings
from tierstate.api.service import FetchService
from tierstate.broker.groups import GroupPosition, GroupProblem, TopicGroups
from tierstate.broker.sasl import Login
from tierstate.fetch.piece import LogicalBounds
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.pool import Pool
from tierstate.state.errors import AccessDenied, BrokerUnavailable
from tierstate.state.offsets import Offset

ANN = basic("PLAIN", base64.b64encode(b"ann:right").decode())


class Brokers(StandIn):  # type: ignore[misc]
    """Brokers that show each caller the groups that ``seen`` has for it."""

    def __init__(self, **seen: TopicGroups) -> None:
        self.seen, self.asked = seen, list[str]()

    def groups(self, who: Login | str | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
        if isinstance(who, Login) and who.secret != "right":
            raise AccessDenied("as a broker would")
        user = who.user if isinstance(who, Login) else who or "us"
        self.asked.append(user)
        return self.seen.get(user, TopicGroups(()))


def at(group: str, offset: int) -> GroupPosition:
    return GroupPosition(group, 0, Offset(offset))


def standings(brokers: Brokers, clock: ManualClock, *, by_kafka: bool = True) -> GroupStandings:
    return GroupStandings(brokers, Pool("test-groups", 1), clock, 5.0, by_kafka=by_kafka)


def seen(asked: GroupStandings, caller: Caller) -> list[str]:
    return [place.group for place in asyncio.run(asked.of(caller, "t", 1)).positions]


def test_one_callers_answer_is_not_shown_to_another() -> None:
    brokers = Brokers(ann=TopicGroups((at("anns", 1),)), us=TopicGroups((at("ours", 1),)))
    groups = standings(brokers, ManualClock())
    assert seen(groups, ANN) == ["anns"]
    assert seen(groups, named("bob")) == []
    assert seen(groups, ANYBODY) == ["ours"]
    assert brokers.asked == ["ann", "bob", "us"]


def test_with_the_gateways_own_rights_every_caller_sees_its_groups() -> None:
    groups = standings(Brokers(us=TopicGroups((at("ours", 1),))), ManualClock(), by_kafka=False)
    assert seen(groups, ANN) == seen(groups, ANYBODY) == ["ours"]


def test_brokers_are_asked_once_in_the_time_that_rights_are_remembered() -> None:
    clock, brokers = ManualClock(), Brokers()
    groups = standings(brokers, clock)
    for _ in range(3):
        seen(groups, ANN)
    assert brokers.asked == ["ann"]
    clock.advance(5.1)
    seen(groups, ANN)
    assert brokers.asked == ["ann", "ann"]


def test_an_answer_larger_than_all_that_may_be_kept_is_given_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "MAX_CACHED_POSITIONS", 3)
    brokers = Brokers(ann=TopicGroups(tuple(at(f"g{number}", 1) for number in range(5))))
    groups = standings(brokers, ManualClock())
    assert len(seen(groups, ANN)) == len(seen(groups, ANN)) == 5
    assert brokers.asked == ["ann", "ann"]


def test_a_password_that_the_brokers_refuse_is_refused_here() -> None:
    wrong = basic("PLAIN", base64.b64encode(b"ann:wrong").decode())
    with pytest.raises(NotAuthenticated):
        seen(standings(Brokers(), ManualClock()), wrong)


@pytest.fixture
def reader() -> MemoryReader:
    """Return twenty records, of which the broker has the last ten."""
    records = MemoryReader()
    for number in range(20):
        records.append(None, b"%d" % number)
    records.local_start = 10
    return records


def answered(reader: MemoryReader, brokers: Brokers | None) -> dict[str, object]:
    service = FetchService(reader, Gateway(), ManualClock(), groups=brokers)
    answer: dict[str, object] = asgi_call(create_app(service))("/v1/topics/t/groups").json()
    service.close()
    return answer


def test_each_group_has_its_tier_and_the_one_furthest_behind_is_first(reader: MemoryReader) -> None:
    positions = at("done", 20), at("far", 3), at("near", 15)
    answer = answered(reader, Brokers(us=TopicGroups(positions, (GroupProblem(None, "broker 9 did not answer"),))))
    assert answer == {
        "topic": "t",
        "groups": [
            {
                "group_id": "far",
                "partition": 0,
                "committed_offset": 3,
                "behind": 17,
                "in_remote_tier": True,
                "said": "stands in the remote tier: the broker has the next 7 of its 17 offsets no more",
            },
            {
                "group_id": "near",
                "partition": 0,
                "committed_offset": 15,
                "behind": 5,
                "in_remote_tier": False,
                "said": "stands in the local tier, 5 offsets behind the end",
            },
            {
                "group_id": "done",
                "partition": 0,
                "committed_offset": 20,
                "behind": 0,
                "in_remote_tier": False,
                "said": "stands at the end",
            },
        ],
        "left_out": 0,
        "unknown": ["broker 9 did not answer"],
    }


def test_a_gateway_that_asks_no_broker_says_that_groups_are_unknown(reader: MemoryReader) -> None:
    assert answered(reader, None)["unknown"] == ["this gateway asks no broker about groups"]


def test_a_thousand_standings_are_answered_and_the_rest_counted(reader: MemoryReader) -> None:
    answer = answered(reader, Brokers(us=TopicGroups(tuple(at(f"g{number}", 1) for number in range(1200)))))
    assert isinstance(answer["groups"], list)
    assert (len(answer["groups"]), answer["left_out"]) == (1000, 200)


def test_where_a_partitions_bounds_are_unknown_no_tier_is_guessed() -> None:
    class Away(MemoryReader):
        def bounds(self, topic: str, partition: int) -> LogicalBounds:
            raise BrokerUnavailable("it is away")

    answer = answered(Away(), Brokers(us=TopicGroups((at("far", 3),))))
    assert isinstance(answer["groups"], list)
    assert (answer["groups"][0]["in_remote_tier"], answer["groups"][0]["behind"]) == (None, None)
