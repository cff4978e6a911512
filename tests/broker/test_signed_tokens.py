"""Bearer tokens that the broker checks by the keys of their signer (JWKS), as with an identity provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.broker.guarded import PASSWORDS, binding, guarded_sandbox, unsigned_token
from tierstate.broker.callers import NONE, Callers, Rights
from tierstate.broker.sasl import Login
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied

pytestmark = pytest.mark.kafka

VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ISSUER, AUDIENCE, KID = "https://who.example", "kafka", "one"
CLAIMS = {"sub": "guest", "iss": ISSUER, "aud": AUDIENCE, "iat": 1_700_000_000, "exp": 4_000_000_000}
OURS, ANOTHERS = (rsa.generate_private_key(65537, 2048) for _ in range(2))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    folder = tmp_path_factory.mktemp("signed")
    keys = _keys(folder)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
        settings = {"jwks_endpoint_url": keys, "expected_issuer": ISSUER, "expected_audience": AUDIENCE}
        with guarded_sandbox(
            folder,
            oauthbearer_sasl_server_callback_handler_class=VALIDATOR,
            **{f"sasl_oauthbearer_{name}": value for name, value in settings.items()},
        ) as opened:
            admin = AdminClient(opened.client_config)
            futures = admin.create_topics([NewTopic(name, 1, 1) for name in ("hers", "other")])
            futures |= admin.create_acls([binding("guest", ResourceType.TOPIC, "hers", AclOperation.READ)])
            for future in futures.values():
                future.result(30)
            yield opened


def _keys(folder: Path) -> str:
    path = folder / "keys.json"
    key = RSAAlgorithm.to_jwk(OURS.public_key(), as_dict=True) | {"kid": KID, "use": "sig", "alg": "RS256"}
    path.write_text(json.dumps({"keys": [key]}))
    return path.as_uri()


def signed(key: rsa.RSAPrivateKey = OURS, kid: str = KID, **claims: object) -> str:
    payload = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(payload, key, "RS256", headers={"kid": kid})


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
