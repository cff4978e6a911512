"""Tokens that an identity provider signed: those of our issuer, for us, now; and no others."""

from __future__ import annotations

import base64
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.api.gateways import bearer, gateway_asking, write_keys
from tierstate.api.credentials import ProviderTokens
from tierstate.api.problems import NotAuthenticated
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import GatewayAuth, GatewayJwt
from tierstate.state.errors import InvalidSettings

ISSUER, AUDIENCE = "https://who.example", "tierstate"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    write_keys(path, ("one", RSAAlgorithm.to_jwk(KEY.public_key())))
    return path


def provider(keys: Path | str, **settings: Any) -> GatewayAuth:
    jwt = GatewayJwt(issuer=ISSUER, audience=AUDIENCE, keys=str(keys), **settings)
    return GatewayAuth(jwt=jwt, rights="gateway")


def signed(kid: str = "one", key: Any = KEY, algorithm: str = "RS256", **claims: Any) -> str:
    now = SystemClock().now_ms() // 1000
    payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 600} | claims
    payload = {name: value for name, value in payload.items() if value is not None}
    return jwt.encode(payload, key, algorithm, headers={"kid": kid})


def test_a_token_of_the_provider_for_this_audience_is_let_in(keys: Path) -> None:
    ask = gateway_asking(provider(keys))
    assert ask("/v1/topics", headers=bearer(signed())).status_code == 200
    assert ProviderTokens(provider(keys).jwt).caller(signed()).principal == "ann"
    named = GatewayJwt(issuer=ISSUER, audience=AUDIENCE, keys=str(keys), principal="email")
    assert ProviderTokens(named).caller(signed(email="ann@example.com")).principal == "ann@example.com"


def by_hand(algorithm: str) -> str:
    """Return a token that no library makes: signed with the public key's own text, or not at all."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 4_000_000_000}
    parts = [json.dumps(part).encode() for part in ({"alg": algorithm, "kid": "one", "typ": "JWT"}, claims)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    mac = hmac.digest(KEY.public_key().public_bytes(*form), text, "sha256") if algorithm == "HS256" else b""
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


@pytest.mark.parametrize(
    "token",
    [
        signed(iss="https://else.example"),
        signed(aud="another"),
        signed(exp=1_700_000_000),
        signed(exp=None),
        signed(sub=None),
        signed(sub=""),
        signed(nbf=4_000_000_000),
        signed(kid="two"),
        signed(key=rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        by_hand("HS256"),
        by_hand("none"),
        signed()[:-3],
        "a.b.c",
    ],
    ids="issuer audience expired endless nobody empty early unknown-key other-key hmac unsigned cut rubbish".split(),
)
def test_any_other_token_is_not(keys: Path, token: str) -> None:
    assert gateway_asking(provider(keys))("/v1/topics", headers=bearer(token)).status_code == 401


def test_keys_that_are_rotated_in_the_file_are_taken(keys: Path) -> None:
    ask = gateway_asking(provider(keys))
    late = signed("two", OTHER_KEY, "ES256")
    assert ask("/v1/topics", headers=bearer(late)).status_code == 401
    write_keys(keys, ("two", ECAlgorithm.to_jwk(OTHER_KEY.public_key())))
    assert ask("/v1/topics", headers=bearer(late)).status_code == 200
    assert ask("/v1/topics", headers=bearer(signed())).status_code == 401


def test_a_provider_that_does_not_answer_is_not_a_no() -> None:
    ask = gateway_asking(provider("http://127.0.0.1:1/keys"))
    assert ask("/v1/topics", headers=bearer(signed())).status_code == 503


class Provider(BaseHTTPRequestHandler):
    asked = 0
    keys = b""

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.keys)

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for a request."""


def test_keys_that_are_rotated_at_the_provider_are_taken_and_the_old_ones_are_not(keys: Path) -> None:
    """Both count while the provider has both; the next unknown key makes the gateway fetch the keys of that moment."""
    one, two = RSAAlgorithm.to_jwk(KEY.public_key()), ECAlgorithm.to_jwk(OTHER_KEY.public_key())
    early, late = signed(), signed("two", OTHER_KEY, "ES256")
    Provider.keys = keys.read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        tokens = ProviderTokens(provider(url).jwt, again_s=0.0)
        assert tokens.caller(early).principal == "ann"
        with pytest.raises(NotAuthenticated):
            tokens.caller(late)
        write_keys(keys, ("one", one), ("two", two))
        Provider.keys = keys.read_bytes()
        assert [tokens.caller(token).principal for token in (late, early)] == ["ann", "ann"]
        write_keys(keys, ("two", two))
        Provider.keys = keys.read_bytes()
        with pytest.raises(NotAuthenticated):
            tokens.caller(signed("three"))
        with pytest.raises(NotAuthenticated):
            tokens.caller(early)
        assert tokens.caller(late).principal == "ann"
        server.shutdown()


def test_keys_by_url_are_kept_and_a_flood_of_unknown_ones_is_none_at_the_provider(keys: Path) -> None:
    Provider.asked, Provider.keys = 0, keys.read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask = gateway_asking(provider(f"http://127.0.0.1:{server.server_address[1]}/keys"))
        for _ in range(5):
            assert ask("/v1/topics", headers=bearer(signed())).status_code == 200
        for number in range(20):
            assert ask("/v1/topics", headers=bearer(signed(f"unknown-{number}"))).status_code == 401
        server.shutdown()
    assert Provider.asked <= 2


@pytest.mark.parametrize("missing", ["audience", "keys"])
def test_a_provider_half_set_is_refused(keys: Path, missing: str) -> None:
    settings = GatewayJwt(issuer=ISSUER, audience=AUDIENCE, keys=str(keys)).model_copy(update={missing: ""})
    with pytest.raises(InvalidSettings, match=missing):
        gateway_asking(GatewayAuth(jwt=settings, rights="gateway"))


def test_a_file_that_is_no_set_of_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    for path in (tmp_path / "keys.json", tmp_path / "none"):
        with pytest.raises(InvalidSettings, match=r"jwt\.keys"):
            gateway_asking(provider(path))
