"""Bearer tokens that the broker checks by the keys of their signer (JWKS), as with an identity provider."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from tests.broker.guarded import PASSWORDS, allow, binding, unsigned_token
from tests.broker.signed import ANOTHERS, AUDIENCE, ISSUER, signed, signed_sandbox
from tests.topics import create
from tierstate.broker.callers import NONE, Callers, Rights
from tierstate.broker.sasl import Login
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    with signed_sandbox(tmp_path_factory.mktemp("signed")) as opened:
        create(AdminClient(opened.client_config), *(NewTopic(name, 1, 1) for name in ("hers", "other")))
        allow(opened, [binding("guest", ResourceType.TOPIC, "hers", AclOperation.READ)])
        yield opened


def rights(sandbox: KafkaSandbox, token: str) -> dict[str, Rights]:
    own = {"sasl.username": "admin", "sasl.password": PASSWORDS["admin"]}
    return Callers({**sandbox.client_config, **own}, SystemClock()).rights(
        Login("OAUTHBEARER", "", token), ["hers", "other"]
    )


def test_a_signed_token_has_the_rights_that_the_broker_reports(sandbox: KafkaSandbox) -> None:
    assert rights(sandbox, signed()) == {"hers": Rights(describe=True, read=True), "other": NONE}
    assert rights(sandbox, signed(sub="somebody")) == {"hers": NONE, "other": NONE}


@pytest.mark.parametrize(
    "token",
    [
        signed(ANOTHERS),
        signed(kid="unknown"),
        signed(exp=1_700_000_001),
        signed(exp=None),
        signed(aud="another"),
        signed(iss="https://another.example"),
        signed()[:-8] + "AAAAAAAA",
        unsigned_token("guest", iss=ISSUER, aud=AUDIENCE, iat=1_700_000_000),
    ],
    ids=["another's", "unknown", "over", "endless", "not-for-us", "not-by-them", "damaged", "unsigned"],
)
def test_a_token_that_the_keys_do_not_prove_gives_nothing(sandbox: KafkaSandbox, token: str) -> None:
    with pytest.raises(AccessDenied):
        rights(sandbox, token)
