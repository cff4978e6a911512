"""A caller's rights on topics are those that the broker gives to exactly this caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jwt
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from kafka.protocol.admin import CreateAclsRequest

from tests.broker.guarded import PASSWORDS, allow, denied, guarded_sandbox, set_password, unsigned_token
from tests.leader.real import eventually
from tests.topics import create
from tierstate.broker.callers import NONE, Callers, Rights
from tierstate.broker.client_config import bootstrap_addresses
from tierstate.broker.framed_socket import FramedSocket, tls_context
from tierstate.broker.kafka_access import own_login
from tierstate.broker.raw_connection import RawConnection
from tierstate.broker.sasl import Login
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied, BrokerUnavailable, InvalidRequest

pytestmark = pytest.mark.kafka

TOPICS = ["literal", "by-prefix-1", "described", "written", "denied", "other", "not-there"]
EXPECTED = {
    "literal": Rights(describe=True, read=True),
    "by-prefix-1": Rights(describe=True, read=True),
    "described": Rights(describe=True, read=False),
    "written": Rights(describe=True, read=False),
    "denied": NONE,
    "other": NONE,
    "not-there": NONE,
}
ODD = "a=b,r=c"
"""A name with SCRAM's own signs: without quoting it would be another user's name with an extension."""
USER, CREATE_TOKENS = 7, 13


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    with guarded_sandbox(tmp_path_factory.mktemp("guarded")) as sandbox:
        create(AdminClient(sandbox.client_config), *(NewTopic(name, 1, 1) for name in TOPICS[:-1]))
        for name in (ODD, "scrammed"):
            set_password(sandbox, name, b"secret")
        for name in ("guest", ODD, "scrammed"):
            bind(sandbox, name)
        yield sandbox


def bind(sandbox: KafkaSandbox, user: str) -> None:
    principal, topic = f"User:{user}", ResourceType.TOPIC
    literal, by_prefix = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    allowed, refused = AclPermissionType.ALLOW, AclPermissionType.DENY
    bindings = [
        AclBinding(topic, "literal", literal, principal, "*", AclOperation.READ, allowed),
        AclBinding(topic, "by-prefix-", by_prefix, principal, "*", AclOperation.READ, allowed),
        AclBinding(topic, "described", literal, principal, "*", AclOperation.DESCRIBE, allowed),
        AclBinding(topic, "written", literal, principal, "*", AclOperation.WRITE, allowed),
        AclBinding(topic, "denied", literal, principal, "*", AclOperation.READ, allowed),
        AclBinding(topic, "denied", literal, principal, "*", AclOperation.ALL, refused),
        AclBinding(topic, "not-there", literal, principal, "*", AclOperation.READ, allowed),
    ]
    allow(sandbox, bindings)


def callers(sandbox: KafkaSandbox, user: str = "admin") -> Callers:
    own = {"sasl.username": user, "sasl.password": PASSWORDS[user]}
    return Callers({**sandbox.client_config, **own}, SystemClock())


@pytest.mark.parametrize(
    "login",
    [
        Login("PLAIN", "guest", PASSWORDS["guest"]),
        Login("SCRAM-SHA-256", "scrammed", "secret"),
        Login("SCRAM-SHA-256", ODD, "secret"),
        Login("OAUTHBEARER", "", unsigned_token("guest")),
    ],
    ids=["plain", "scram", "odd-name", "bearer"],
)
def test_a_login_has_the_rights_that_the_broker_reports(guarded: KafkaSandbox, login: Login) -> None:
    assert callers(guarded).rights(login, TOPICS) == EXPECTED


@pytest.mark.parametrize("user", ["guest", "scrammed", ODD, "nobody-knows-this-one"])
def test_rights_of_other_logins_are_asked_for_by_a_delegation_token(guarded: KafkaSandbox, user: str) -> None:
    client = callers(guarded)
    expected = EXPECTED if user != "nobody-knows-this-one" else dict.fromkeys(TOPICS, NONE)
    assert client.rights(user, TOPICS) == expected
    assert client.rights(user, TOPICS) == expected  # by the same token


def test_a_super_user_may_everything_that_is_there(guarded: KafkaSandbox) -> None:
    everything = dict.fromkeys(TOPICS[:-1], Rights(describe=True, read=True)) | {"not-there": NONE}
    assert callers(guarded).rights(Login("PLAIN", "admin", PASSWORDS["admin"]), TOPICS) == everything
    assert callers(guarded).rights("admin", TOPICS) == everything


def test_a_right_that_is_taken_away_is_gone_with_the_next_question(guarded: KafkaSandbox) -> None:
    client, login = callers(guarded), Login("PLAIN", "guest", PASSWORDS["guest"])
    refusing = AclBinding(
        ResourceType.TOPIC,
        "literal",
        ResourcePatternType.LITERAL,
        "User:guest",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    ways: list[Callable[[], dict[str, Rights]]] = [
        lambda: client.rights(login, ["literal"]),
        lambda: client.rights("guest", ["literal"]),
    ]
    for ask in ways:
        assert ask()["literal"].read
        with denied(guarded, refusing):
            assert not ask()["literal"].read
        assert ask()["literal"].read


@pytest.mark.parametrize(
    "login",
    [
        Login("PLAIN", "guest", "wrong"),
        Login("PLAIN", "nobody", "g"),
        Login("PLAIN", "", ""),
        Login("SCRAM-SHA-256", "scrammed", "wrong"),
        Login("SCRAM-SHA-256", "a", "secret"),
        Login("SCRAM-SHA-256", "nobody", "secret"),
        Login("SCRAM-SHA-256", "scrammed", "secret", by_token=True),
        Login("OAUTHBEARER", "", unsigned_token("guest", exp=1_700_000_000)),
        Login("OAUTHBEARER", "", unsigned_token("guest", exp=None)),
        Login("OAUTHBEARER", "", jwt.encode({"sub": "guest", "exp": 4_000_000_000}, "k" * 32)),
        Login("OAUTHBEARER", "", "rubbish"),
    ],
)
def test_a_login_that_the_broker_refuses_is_refused(guarded: KafkaSandbox, login: Login) -> None:
    with pytest.raises(AccessDenied):
        callers(guarded).rights(login, TOPICS)


def test_a_user_who_was_deleted_is_refused_with_the_next_question(guarded: KafkaSandbox) -> None:
    admin, acls, login = AdminClient(guarded.client_config), callers(guarded), Login("SCRAM-SHA-256", "gone", "secret")

    def is_accepted() -> bool:
        try:
            return acls.rights(login, ["literal"]) == {"literal": NONE}
        except AccessDenied:
            return False

    set_password(guarded, "gone", b"secret")
    eventually(is_accepted)
    deletion = UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(30)
    eventually(lambda: not is_accepted())


@pytest.mark.parametrize("name", ["a\0b", "\0guest\0g"])
def test_a_name_that_would_become_another_message_is_not_sent(guarded: KafkaSandbox, name: str) -> None:
    with pytest.raises(InvalidRequest):
        callers(guarded).rights(Login("PLAIN", name, "g"), TOPICS)


@pytest.mark.parametrize("more", ["\1", "\1auth=Bearer x", " ", "\n", "ä", "\0"])
def test_a_bearer_token_that_would_become_another_message_is_not_sent(guarded: KafkaSandbox, more: str) -> None:
    with pytest.raises(InvalidRequest):
        callers(guarded).rights(Login("OAUTHBEARER", "", unsigned_token("guest") + more), TOPICS)


def test_a_token_is_made_only_for_users_that_we_may_make_it_for(guarded: KafkaSandbox) -> None:
    client = callers(guarded, "reader")
    with pytest.raises(AccessDenied, match="no delegation token"):
        client.rights("guest", TOPICS)
    allow_tokens(guarded, "reader", "guest")
    assert client.rights("guest", TOPICS) == EXPECTED
    with pytest.raises(AccessDenied, match="no delegation token"):
        client.rights("scrammed", TOPICS)


def allow_tokens(sandbox: KafkaSandbox, principal: str, user: str) -> None:
    """Grant as ``kafka-acls --add --allow-principal User:… --operation CreateTokens --user-principal User:…``."""
    kafka, clock = sandbox.client_config, SystemClock()
    deadline = clock.monotonic() + 30
    frames = FramedSocket(bootstrap_addresses(kafka)[0], tls_context(kafka), clock, deadline)
    connection = RawConnection(frames, own_login(kafka), clock, deadline)
    kind = CreateAclsRequest.AclCreation
    creation = kind(
        resource_type=USER,
        resource_name=f"User:{user}",
        resource_pattern_type=3,
        principal=f"User:{principal}",
        host="*",
        operation=CREATE_TOKENS,
        permission_type=3,
    )
    try:
        answer = connection.ask(CreateAclsRequest(creations=[creation], min_version=3, max_version=3), deadline)
        assert [result.error_code for result in answer.results] == [0]
    finally:
        connection.close()


def test_brokers_that_do_not_answer_are_not_a_no(guarded: KafkaSandbox) -> None:
    nobody = Callers({**guarded.client_config, "bootstrap.servers": "127.0.0.1:1"}, SystemClock())
    with pytest.raises(BrokerUnavailable):
        nobody.rights(Login("PLAIN", "guest", "g"), TOPICS)
