"""A caller sees the groups that the brokers show to exactly this caller: those that it may not describe are absent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient, NewTopic, ResourceType

from tests.broker.guarded import PASSWORDS, allow, binding, denied, guarded_sandbox
from tests.broker.test_callers import allow_tokens
from tests.commits import commit
from tests.topics import create
from tierstate.broker.answers import Address
from tierstate.broker.callers import Callers
from tierstate.broker.groups import TopicGroups, read_groups_as
from tierstate.broker.kafka_access import own_login
from tierstate.broker.raw_connection import RawConnection
from tierstate.broker.sasl import Login
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied, BrokerUnavailable

pytestmark = pytest.mark.kafka

DESCRIBE, GROUP, TOPIC = AclOperation.DESCRIBE, ResourceType.GROUP, ResourceType.TOPIC
GUEST = Login("PLAIN", "guest", PASSWORDS["guest"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """Groups ``seen`` and ``hidden`` stand on both topics; guest may describe the first of each."""
    with guarded_sandbox(tmp_path_factory.mktemp("groups")) as sandbox:
        create(AdminClient(sandbox.client_config), *(NewTopic(name, 2, 1) for name in ("orders", "secrets")))
        for group in ("seen", "hidden"):
            commit(sandbox.client_config, group, "orders", 1, 7)
            commit(sandbox.client_config, group, "secrets", 1, 3)
        allow(sandbox, [binding("guest", TOPIC, "orders", DESCRIBE), binding("guest", GROUP, "seen", DESCRIBE)])
        yield sandbox


def callers(sandbox: KafkaSandbox, user: str = "admin") -> Callers:
    own = {"sasl.username": user, "sasl.password": PASSWORDS[user]}
    return Callers({**sandbox.client_config, **own}, SystemClock())


def standing(found: TopicGroups) -> list[tuple[str, int, int | None]]:
    assert found.problems == ()
    return [(position.group, position.partition, position.committed) for position in found.positions]


def test_a_caller_is_shown_the_groups_that_it_may_describe_and_no_other(guarded: KafkaSandbox) -> None:
    assert standing(callers(guarded).groups(GUEST, "orders", range(2))) == [("seen", 1, 7)]
    assert standing(callers(guarded).groups(None, "orders", range(2))) == [("hidden", 1, 7), ("seen", 1, 7)]
    assert standing(callers(guarded).groups(None, "orders", [0])) == []


def test_a_topic_that_the_caller_may_not_describe_has_no_groups_for_it(guarded: KafkaSandbox) -> None:
    groups = callers(guarded).groups(GUEST, "secrets", range(2))
    assert groups.positions == ()
    assert [problem.group for problem in groups.problems] in ([], ["seen"] * 2)


def test_rights_of_other_logins_are_asked_for_by_a_delegation_token(guarded: KafkaSandbox) -> None:
    allow_tokens(guarded, "admin", "guest")
    assert standing(callers(guarded).groups("guest", "orders", range(2))) == [("seen", 1, 7)]


def test_a_right_that_is_taken_away_is_gone_with_the_next_question(guarded: KafkaSandbox) -> None:
    client, refusing = callers(guarded), binding("guest", GROUP, "seen", AclOperation.ALL, AclPermissionType.DENY)
    with denied(guarded, refusing):
        assert standing(client.groups(GUEST, "orders", range(2))) == []
    assert standing(client.groups(GUEST, "orders", range(2))) == [("seen", 1, 7)]


def test_a_login_that_the_broker_refuses_is_refused(guarded: KafkaSandbox) -> None:
    with pytest.raises(AccessDenied):
        callers(guarded).groups(Login("PLAIN", "guest", "wrong"), "orders", range(2))


def test_a_broker_that_is_away_is_named_and_it_is_an_error_if_all_are_away(guarded: KafkaSandbox) -> None:
    client = callers(guarded)

    def first_alone(addresses: Sequence[Address] | None) -> tuple[RawConnection, float]:
        if addresses is not None:
            raise BrokerUnavailable("it has just gone", broker=addresses)
        return client._connected(own_login(guarded.client_config), None)

    groups = read_groups_as(first_alone, "orders", range(2))
    assert groups.positions == ()
    (problem,) = groups.problems
    assert "did not answer" in problem.why
    nobody = Callers({**guarded.client_config, "bootstrap.servers": "127.0.0.1:1"}, SystemClock())
    with pytest.raises(BrokerUnavailable):
        nobody.groups(None, "orders", range(2))
