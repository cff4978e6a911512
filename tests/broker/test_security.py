"""TLS, SASL and ACLs on a real broker: raw requests log in as librdkafka does, and report a refusal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourceType,
)

from tests.broker.guarded import allow, binding, guarded_sandbox, set_password
from tests.leader.real import eventually
from tests.topics import create
from tierstate.broker.client_config import admin_config
from tierstate.broker.control import BrokerControl
from tierstate.broker.open import open_broker
from tierstate.broker.raw import RawClient
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, UnknownTopic
from tierstate.state.ids import BrokerId

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """Yield a broker with the topic ``guarded``; admin has all rights, guest has none."""
    with guarded_sandbox(tmp_path_factory.mktemp("tls")) as sandbox:
        set_password(sandbox, "admin", b"scrambled")
        create(AdminClient(sandbox.client_config), NewTopic("guarded", 1, 1))  # brokers hear of changes in their order
        yield sandbox


def test_plain_and_scram_over_tls_get_in(guarded: KafkaSandbox) -> None:
    scram = guarded.client_config | {"sasl.mechanisms": "SCRAM-SHA-256", "sasl.password": "scrambled"}
    for config in (guarded.client_config, scram):
        with open_broker(config) as broker:
            assert broker.control.bounds("guarded", 0).high_watermark == 0
            assert broker.control.config("guarded").cleanup_policy == {"delete"}
            assert broker.control.groups("guarded").why_incomplete() is None


def test_asking_about_a_topic_does_not_create_it(guarded: KafkaSandbox) -> None:
    with open_broker(guarded.client_config) as broker:
        with pytest.raises(UnknownTopic):
            broker.control.topic("nobody-made-it")
        admin: Any = AdminClient(admin_config(guarded.client_config))
        admin.create_topics([NewTopic("made-later", 1, 1)])["made-later"].result(30)
        while "made-later" not in (names := [topic.name for topic in broker.control.topics()]):
            time.sleep(0.05)
        assert "nobody-made-it" not in names


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_denied(guarded: KafkaSandbox, mechanism: str) -> None:
    wrong = guarded.client_config | {"sasl.password": "wrong", "sasl.mechanisms": mechanism}
    with open_broker(wrong) as broker, pytest.raises(AccessDenied):
        broker.control.bounds("guarded", 0)


def test_an_unknown_mechanism_is_refused(guarded: KafkaSandbox) -> None:
    config = guarded.client_config | {"sasl.mechanisms": "GSSAPI"}
    with pytest.raises(InvalidRequest, match="PLAIN, SCRAM and OAUTHBEARER"):
        RawClient(config, SystemClock()).metadata()


def test_an_untrusted_certificate_is_denied(guarded: KafkaSandbox) -> None:
    untrusting = {name: value for name, value in guarded.client_config.items() if name != "ssl.ca.location"}
    with open_broker(untrusting) as broker, pytest.raises(AccessDenied, match="not trusted"):
        broker.control.cluster()


def test_speaking_plainly_to_a_tls_port_is_unavailable(guarded: KafkaSandbox) -> None:
    says_why = pytest.raises(BrokerUnavailable, match=r"TLS is spoken here: set security\.protocol")
    with open_broker({"bootstrap.servers": guarded.bootstrap}) as broker, says_why:
        broker.control.cluster()


def test_a_user_without_rights_sees_no_topic_and_knows_that_groups_are_hidden(guarded: KafkaSandbox) -> None:
    guest = guarded.client_config | {"sasl.username": "guest", "sasl.password": "g"}
    with open_broker(guest) as broker:
        for ask in (broker.control.topic, broker.control.config):
            with pytest.raises((AccessDenied, UnknownTopic)):
                ask("guarded")
        assert "DESCRIBE on the cluster" in (broker.control.groups("guarded").why_incomplete() or "")


def test_tls_files_that_cannot_be_read_are_named_at_once(tmp_path: Path) -> None:
    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "ssl",
        "ssl.ca.location": str(tmp_path / "no.pem"),
    }
    with pytest.raises(InvalidRequest, match="TLS files"):
        open_broker(config)


def allow_describe(sandbox: KafkaSandbox, name: str, permission: AclPermissionType = AclPermissionType.ALLOW) -> None:
    """Allow the guest to describe a topic, or deny it."""
    allow(sandbox, [binding("guest", ResourceType.TOPIC, name, AclOperation.DESCRIBE, permission)])


def test_users_who_may_read_a_topic_see_the_owners_of_open_transactions(guarded: KafkaSandbox) -> None:
    guest = guarded.client_config | {"sasl.username": "guest", "sasl.password": "g"}
    create(AdminClient(guarded.client_config), NewTopic("pinned", 1, 1))

    def transactions(control: BrokerControl) -> str:
        try:
            return str(control.open_transactions("pinned", 0, broker=BrokerId(1)))
        except AccessDenied:
            return "denied"

    with open_broker(guest) as theirs:
        for what in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE):
            allow(guarded, [binding("guest", ResourceType.TOPIC, "pinned", what)])
        eventually(lambda: sees(theirs.control, "pinned"))
        assert transactions(theirs.control) == "denied"
        allow(guarded, [binding("guest", ResourceType.TOPIC, "pinned", AclOperation.READ)])
        eventually(lambda: transactions(theirs.control) == "()")


def test_only_a_user_who_may_describe_every_topic_learns_that_one_is_gone(guarded: KafkaSandbox) -> None:
    guest = guarded.client_config | {"sasl.username": "guest", "sasl.password": "g"}
    me = BrokerId(1)
    with open_broker(guarded.client_config) as mine, open_broker(guest) as theirs:
        topic_id = mine.control.topic("guarded").topic_id
        assert mine.control.may_describe(["guarded", "gone"], broker=me)
        assert mine.control.topic_exists(topic_id, broker=me)
        # an existing id is never reported as missing, even to users who may not see it
        with pytest.raises(AccessDenied):
            theirs.control.topic_exists(topic_id, broker=me)
        assert not theirs.control.may_describe(["gone"], broker=me)
        allow_describe(guarded, "gone")
        eventually(lambda: is_unknown(theirs.control, "gone"))
        assert not theirs.control.may_describe(["gone"], broker=me)
        allow_describe(guarded, "*")
        eventually(lambda: theirs.control.may_describe(["gone", "guarded"], broker=me))
        assert theirs.control.topic_exists(topic_id, broker=me)
        allow_describe(guarded, "gone", AclPermissionType.DENY)
        eventually(lambda: not theirs.control.may_describe(["gone"], broker=me))
        assert theirs.control.may_describe(["guarded"], broker=me)


def sees(control: BrokerControl, topic: str) -> bool:
    try:
        return control.bounds(topic, 0).local_start == 0
    except (AccessDenied, UnknownTopic):
        return False


def is_unknown(control: BrokerControl, topic: str) -> bool:
    """Return whether the broker calls the topic unknown, and does not deny access to it."""
    try:
        control.topic(topic)
    except AccessDenied:
        return False
    except UnknownTopic:
        return True
    raise AssertionError("it exists")
