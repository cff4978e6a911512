"""A broker that checks bearer tokens by the keys of their signer (JWKS), and an endpoint that issues such tokens."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.broker.guarded import guarded_sandbox
from tierstate.sandbox.kafka import KafkaSandbox

VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ISSUER, AUDIENCE, KID = "https://who.example", "kafka", "one"
CLAIMS = {"sub": "guest", "iss": ISSUER, "aud": AUDIENCE, "iat": 1_700_000_000, "exp": 4_000_000_000}
OURS, ANOTHERS = (rsa.generate_private_key(65537, 2048) for _ in range(2))
CLIENT, SECRET = "tierstate-agents", "not in any log"


@contextmanager
def signed_sandbox(folder: Path, **more: str) -> Iterator[KafkaSandbox]:
    """Yield a broker that accepts the tokens of `signed`. ``more``: properties of its listener."""
    keys = _keys(folder)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
        settings = {"jwks_endpoint_url": keys, "expected_issuer": ISSUER, "expected_audience": AUDIENCE}
        with guarded_sandbox(
            folder,
            oauthbearer_sasl_server_callback_handler_class=VALIDATOR,
            **{f"sasl_oauthbearer_{name}": value for name, value in settings.items()},
            **more,
        ) as opened:
            yield opened


def _keys(folder: Path) -> str:
    path = folder / "keys.json"
    key = RSAAlgorithm.to_jwk(OURS.public_key(), as_dict=True) | {"kid": KID, "use": "sig", "alg": "RS256"}
    path.write_text(json.dumps({"keys": [key]}))
    return path.as_uri()


def signed(key: rsa.RSAPrivateKey = OURS, kid: str = KID, **claims: object) -> str:
    payload = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(payload, key, "RS256", headers={"kid": kid})


def lasting(seconds: float, key: rsa.RSAPrivateKey = OURS) -> str:
    """Return a token of the broker's administrator that expires in so many seconds."""
    return signed(key, sub="admin", iat=int(time.time()) - 1, exp=time.time() + seconds)


class TokenEndpoint:
    """An identity provider on loopback. It issues tokens of the administrator to one client, for its secret."""

    def __init__(self, lifetime_s: float = 3600) -> None:
        self.lifetime_s, self.key = lifetime_s, OURS
        self.forms: list[dict[str, list[str]]] = []
        """The requests with the right secret."""
        self.answer: tuple[int, dict[str, Any] | str] | None = None
        """What is answered instead of a token."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, body = endpoint.answer or endpoint.issue(self.headers["Authorization"], form)
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/token"

    @property
    def properties(self) -> dict[str, str]:
        """librdkafka's properties of a client of this endpoint."""
        settings = {"method": "oidc", "token.endpoint.url": self.url, "client.id": CLIENT, "client.secret": SECRET}
        return {"sasl.mechanism": "OAUTHBEARER"} | {f"sasl.oauthbearer.{name}": each for name, each in settings.items()}

    def issue(self, login: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if login != "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode():
            return 401, {"error": "invalid_client", "error_description": f"not the secret: {login}"}
        self.forms.append(form)
        token = lasting(self.lifetime_s, self.key)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def by_token(sandbox: KafkaSandbox, properties: dict[str, str]) -> dict[str, str]:
    """Return the sandbox's properties with these in place of its password."""
    kept = {name: each for name, each in sandbox.client_config.items() if not name.startswith("sasl.")}
    return kept | properties
