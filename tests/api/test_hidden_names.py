"""Agents and views name groups and users: a caller sees the names that Kafka lets it see."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from tests.api.gateways import Call, asgi_call
from tests.api.json_server import json_server
from tests.api.shop import Kept, Shop
from tests.api.test_group_standings import Brokers, at
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.rights import EVERYTHING
from tierstate.api.service import FetchService
from tierstate.app.operating.plans import user_of_plan
from tierstate.broker.callers import Rights
from tierstate.broker.groups import TopicGroups
from tierstate.broker.sasl import Login
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.state.errors import BrokerUnavailable

AGENT = "/v1/topics/orders/partitions/0/agent"
LEASED = "1 condemned segment keeps its objects; segment A: lease L of gateway plan P-60 of bob is on 0..9, until noon"
SAID = {
    "held_by": ["audit", "secret-merger"],
    "not_trimmed": "consumer group secret-merger still reads there, at offset 7, and 1 more group: 9 bytes below 9",
    "not_trimmed_reason": "group-holds",
    "not_expired": LEASED,
    "not_expired_reason": "leased",
    "not_copied": "all is copied",
}


class Asked(Brokers):
    """Brokers that let every caller read every topic."""

    def rights(self, who: Login | str, topics: Sequence[str]) -> dict[str, Rights]:
        return dict.fromkeys(topics, EVERYTHING)


@contextmanager
def asking(
    brokers: Asked, said: dict[str, Any] = SAID, rights: Literal["kafka", "gateway"] = "kafka"
) -> Iterator[Call]:
    """Yield a call by the user ann."""
    auth = GatewayAuth(basic=True, rights=rights)
    with json_server({"/v1/status/orders/0": said}) as agent:
        shop = Shop({"orders": Kept(lease=True)}, agent.address)
        service = FetchService(shop, Gateway(auth=auth), ManualClock(), callers=brokers, groups=brokers)
        call = asgi_call(create_app(service))
        headers = {"authorization": f"Basic {base64.b64encode(b'ann:right').decode()}"}
        yield lambda path: call(path, headers=headers)
        service.close()


def groups(*names: str) -> TopicGroups:
    return TopicGroups(tuple(at(name, 1) for name in names))


@pytest.mark.parametrize(
    ("may", "held_by", "said"),
    [
        (("audit", "secret-merger"), ["audit", "secret-merger"], SAID["not_trimmed"]),
        (("audit",), ["audit"], "held by audit, 1 consumer group that this user may not see"),
        ((), [], "held by 2 consumer groups that this user may not see"),
    ],
)
def test_an_agent_names_the_groups_alone_that_the_caller_may_describe(
    may: tuple[str, ...], held_by: list[str], said: str
) -> None:
    with asking(Asked(ann=groups(*may))) as call:
        status = call(AGENT).json()["status"]
    assert (status["held_by"], status["not_trimmed"]) == (held_by, said)
    assert status["not_copied"] == "all is copied"


def test_groups_that_could_not_be_listed_are_not_named() -> None:
    why = "consumer groups could not be listed completely: the offsets of group secret-merger are unknown"
    status = {**SAID, "held_by": [], "not_trimmed": why, "not_trimmed_reason": "groups-unknown"}
    with asking(Asked(ann=groups("secret-merger")), status) as call:
        assert "secret-merger" not in call(AGENT).text


def test_while_no_broker_says_which_groups_a_caller_may_know_it_knows_none() -> None:
    class Away(Asked):
        def groups(self, who: Login | str | None, topic: str, partitions: Sequence[int]) -> TopicGroups:
            raise BrokerUnavailable("no answer")

    with asking(Away()) as call:
        answer = call(AGENT)
    assert answer.status_code == 200
    assert "secret-merger" not in answer.text
    assert "audit" not in answer.text


def test_a_lease_names_its_user_to_no_other_caller() -> None:
    with asking(Asked()) as call:
        assert "bob" not in call(AGENT).text
        for path in ("", "/partitions"):
            (lease,) = call(f"/v1/topics/orders{path}").json()["partitions"][0]["leases"]
            assert lease["holder"] == "another reader"
        assert call("/v1/topics/orders/partitions/0").json()["leases"][0]["holder"] == "another reader"


def test_with_the_gateways_own_rights_all_names_are_shown() -> None:
    with asking(Asked(), rights="gateway") as call:
        assert call(AGENT).json()["status"] == SAID
        assert call("/v1/topics/orders").json()["partitions"][0]["leases"][0]["holder"] == "spark nightly-report"


@pytest.mark.parametrize(
    ("holder", "user"),
    [
        ("gateway plan P-60 of ann", "ann"),
        ("gateway plan P-60 of b of ann", "b of ann"),
        ("spark nightly-report of ann", None),
        ("gateway plan P-60 of ", None),
    ],
)
def test_a_lease_is_of_the_user_of_its_plan(holder: str, user: str | None) -> None:
    assert user_of_plan(holder) == user
