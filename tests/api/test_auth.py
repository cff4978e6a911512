"""Who is let in: everything that shows data needs a caller, and each way of being one is proven."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.api.gateways import RECORDS, Call, MemoryReader, Running, asgi_call
from tests.scenarios.house import eventually
from tierstate.api.access_log import AccessLog
from tierstate.api.app import create_app
from tierstate.api.credentials import ProviderTokens, basic, subject_of
from tierstate.api.open import open_gateway
from tierstate.api.problems import NotAuthenticated
from tierstate.api.service import FetchService
from tierstate.runtime.clock import ManualClock, SystemClock
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth, GatewayJwt, GatewayTls
from tierstate.runtime.listener import Event, GatewayAnswered
from tierstate.runtime.setting_types import Address
from tierstate.state.errors import InvalidSettings

ISSUER, AUDIENCE = "https://who.example", "tierstate"
EVERYWHERE = Address("0.0.0.0", 0)
Tokens = Callable[[str], GatewayAuth]


def line(token: str, rest: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {rest}\n"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    def made(text: str) -> GatewayAuth:
        path = tmp_path / "tokens"
        path.write_text(text)
        path.chmod(0o600)
        return GatewayAuth(tokens=path, rights="gateway")

    return made


def gateway(auth: GatewayAuth, clock: ManualClock | None = None, **settings: Any) -> Call:
    reader = MemoryReader()
    for _ in range(10):
        reader.append(None, b"x" * 1000)
    service = FetchService(reader, Gateway(auth=auth, **settings), clock or ManualClock())
    return asgi_call(create_app(service))


@pytest.fixture
def guarded(tokens: Tokens, clock: ManualClock) -> Call:
    """Two principals who may read 1 KiB a second each."""
    auth = tokens("# people\n\n" + line("secret-a", "ann") + line("secret-b", "bob"))
    return gateway(auth, clock, quota=1024)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "header", [None, "secret-a", "Bearer", "Bearer ", "Bearer wrong", "Bearer SECRET-A", "Basic secret-a", "Bearer ann"]
)
@pytest.mark.parametrize("path", ["/v1/topics", f"{RECORDS}?offset=0", "/v1/topics/t", "/v1/nothing", "/v1"])
def test_without_a_known_token_nothing_is_shown(guarded: Call, path: str, header: str | None) -> None:
    answer = guarded(path, headers={} if header is None else {"authorization": header})
    assert (answer.status_code, answer.json()["error_code"]) == (401, 40101)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_a_token_the_gateway_answers(guarded: Call) -> None:
    assert guarded("/v1/topics", headers=bearer("secret-a")).status_code == 200
    assert guarded("/v1/topics", headers={"authorization": "bearer secret-b"}).status_code == 200


def test_two_authorization_headers_are_nobodys(guarded: Call) -> None:
    both = [("authorization", "Bearer secret-a"), ("authorization", "Bearer secret-b")]
    answer = guarded("/v1/topics", headers=both)
    assert (answer.status_code, answer.json()["message"]) == (400, "more than one Authorization header")


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/console/console.js"])
def test_the_console_itself_needs_no_token(guarded: Call, path: str) -> None:
    assert guarded(path).status_code == 200


def test_a_quota_is_each_principals_own(guarded: Call, clock: ManualClock) -> None:
    ann, bob = bearer("secret-a"), bearer("secret-b")
    assert guarded(RECORDS, offset=0, headers=ann).status_code == 200
    throttled = guarded(RECORDS, offset=0, headers=ann)
    assert (throttled.status_code, throttled.json()["error_code"]) == (429, 42950)
    assert guarded(RECORDS, offset=0, headers=bob).status_code == 200
    clock.advance(float(throttled.headers["retry-after"]))
    assert guarded(RECORDS, offset=0, headers=ann).status_code == 200


def test_a_token_ends_when_its_line_says(tokens: Tokens, clock: ManualClock) -> None:
    ask = gateway(tokens(line("secret", "ann 2023-11-15T00:00:00Z") + line("other", "bob 2023-11-16")), clock)
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 200
    clock.advance(3600 * 2)  # from 22:13 to the next day
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 401
    assert ask("/v1/topics", headers=bearer("other")).status_code == 200


def test_the_file_is_read_again_when_it_changes_and_a_broken_one_lets_nobody_in(tokens: Tokens) -> None:
    ask = gateway(tokens(line("secret", "ann")))
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 200
    auth = tokens(line("another", "ann"))
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 401
    assert ask("/v1/topics", headers=bearer("another")).status_code == 200
    assert auth.tokens is not None
    auth.tokens.chmod(0o644)
    assert ask("/v1/topics", headers=bearer("another")).status_code == 503
    auth.tokens.chmod(0o600)
    assert ask("/v1/topics", headers=bearer("another")).status_code == 200
    auth.tokens.unlink()
    assert ask("/v1/topics", headers=bearer("another")).status_code == 503


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nobody\n",
        "token ann\n",
        "sha256:12 ann\n",
        line("a", ""),
        line("a", "b soon"),
        line("a", "b 2027-01-01 c"),
    ],
)
def test_a_tokens_file_that_cannot_be_used_is_refused(tokens: Tokens, text: str) -> None:
    with pytest.raises(InvalidSettings):
        gateway(tokens(text))


def test_a_tokens_file_that_others_can_read_or_that_is_missing_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    auth = tokens(line("secret", "ann"))
    (tmp_path / "tokens").chmod(0o604)
    with pytest.raises(InvalidSettings, match="others"):
        gateway(auth)
    with pytest.raises(InvalidSettings):
        gateway(GatewayAuth(tokens=tmp_path / "none", rights="gateway"))


# an identity provider's


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    write_keys(path, ("one", RSAAlgorithm.to_jwk(KEY.public_key())))
    return path


def write_keys(path: Path, *keys: tuple[str, str]) -> None:
    found = [{**json.loads(text), "kid": name, "use": "sig"} for name, text in keys]
    path.write_text(json.dumps({"keys": found}))


def provider(keys: Path | str, **settings: Any) -> GatewayAuth:
    made = GatewayJwt(issuer=ISSUER, audience=AUDIENCE, keys=str(keys), **settings)
    return GatewayAuth(jwt=made, rights="gateway")


def signed(kid: str = "one", key: Any = KEY, algorithm: str = "RS256", **claims: Any) -> str:
    now = SystemClock().now_ms() // 1000
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 600} | claims
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={"kid": kid})


def test_a_token_of_the_provider_for_this_audience_is_let_in(keys: Path) -> None:
    ask = gateway(provider(keys))
    assert ask("/v1/topics", headers=bearer(signed())).status_code == 200
    assert ProviderTokens(provider(keys).jwt).caller(signed()).principal == "ann"
    named = GatewayJwt(issuer=ISSUER, audience=AUDIENCE, keys=str(keys), principal="email")
    assert ProviderTokens(named).caller(signed(email="ann@example.com")).principal == "ann@example.com"


def by_hand(algorithm: str) -> str:
    """What no library makes: signed with the public key's own text, or not at all."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": 4_000_000_000}
    parts = [json.dumps(each).encode() for each in ({"alg": algorithm, "kid": "one", "typ": "JWT"}, claims)]
    text = b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in parts)
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
    assert gateway(provider(keys))("/v1/topics", headers=bearer(token)).status_code == 401


def test_keys_that_are_rotated_in_the_file_are_taken(keys: Path) -> None:
    ask = gateway(provider(keys))
    late = signed("two", OTHER_KEY, "ES256")
    assert ask("/v1/topics", headers=bearer(late)).status_code == 401
    write_keys(keys, ("two", ECAlgorithm.to_jwk(OTHER_KEY.public_key())))
    assert ask("/v1/topics", headers=bearer(late)).status_code == 200
    assert ask("/v1/topics", headers=bearer(signed())).status_code == 401


def test_a_provider_that_does_not_answer_is_not_a_no() -> None:
    ask = gateway(provider("http://127.0.0.1:1/keys"))
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
        """Quiet."""


def test_keys_by_url_are_kept_and_a_flood_of_unknown_ones_is_none_at_the_provider(keys: Path) -> None:
    Provider.asked, Provider.keys = 0, keys.read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask = gateway(provider(f"http://127.0.0.1:{server.server_address[1]}/keys"))
        for _ in range(5):
            assert ask("/v1/topics", headers=bearer(signed())).status_code == 200
        for number in range(20):
            assert ask("/v1/topics", headers=bearer(signed(f"unknown-{number}"))).status_code == 401
        server.shutdown()
    assert Provider.asked <= 2


@pytest.mark.parametrize("missing", ["audience", "keys"])
def test_a_provider_half_set_is_refused(keys: Path, missing: str) -> None:
    given = GatewayJwt(issuer=ISSUER, audience=AUDIENCE, keys=str(keys)).model_copy(update={missing: ""})
    with pytest.raises(InvalidSettings, match=missing):
        gateway(GatewayAuth(jwt=given, rights="gateway"))


def test_a_file_that_is_no_set_of_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    for path in (tmp_path / "keys.json", tmp_path / "none"):
        with pytest.raises(InvalidSettings, match=r"jwt\.keys"):
            gateway(provider(path))


# names and passwords


@pytest.mark.parametrize(
    "text", ["ann", ":secret", "a\0b:secret", "a\nb:secret", "ann:se\0cret", "a" * 1001 + ":b", "a:" + "b" * 1001]
)
def test_a_basic_header_without_a_name_that_can_be_one_is_refused(text: str) -> None:
    with pytest.raises(NotAuthenticated):
        basic("PLAIN", base64.b64encode(text.encode()).decode())


def test_a_callers_password_is_in_nothing_that_is_printed() -> None:
    caller = basic("PLAIN", base64.b64encode(b"ann:very-secret:colon").decode())
    assert (caller.principal, caller.login and caller.login.secret) == ("ann", "very-secret:colon")
    assert "very-secret" not in repr(caller)


def test_two_callers_have_one_key_only_with_one_password() -> None:
    keys = {basic("PLAIN", base64.b64encode(each).decode()).key for each in (b"ann:a", b"ann:b", b"an:na", b"ann:a")}
    assert len(keys) == 3


# certificates


def test_a_certificates_subject_is_written_as_kafka_writes_it() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", 'A, "B"'),), (("commonName", "ann"),))
    assert subject_of({"subject": subject}, "subject") == 'CN=ann,O=A\\, \\"B\\",C=DE'
    assert subject_of({"subject": subject}, "cn") == "ann"
    for without in ((), ((("organizationName", "A"),),), ((("commonName", "a"),), (("commonName", "b"),))):
        with pytest.raises(NotAuthenticated):
            subject_of({"subject": without}, "cn")


# what would be open


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (Gateway(listen=EVERYWHERE), "anonymous"),
        (Gateway(listen=Address("gateway.example", 0)), "anonymous"),
        (Gateway(listen=EVERYWHERE, auth=GatewayAuth(basic=True)), "in the clear"),
        (Gateway(auth=GatewayAuth(certificates="cn")), "client_ca"),
    ],
)
def test_what_would_be_open_to_strangers_is_refused(settings: Gateway, word: str) -> None:
    with pytest.raises(InvalidSettings, match=word):
        create_app(FetchService(MemoryReader(), settings, ManualClock()))


@pytest.mark.parametrize(
    "settings",
    [
        Gateway(),
        Gateway(listen=Address("::1", 0)),
        Gateway(listen=EVERYWHERE, auth=GatewayAuth(anonymous=True)),
        Gateway(listen=EVERYWHERE, auth=GatewayAuth(basic=True, behind_tls=True)),
        Gateway(auth=GatewayAuth(certificates="cn"), tls=GatewayTls(client_ca=Path("ca.pem"))),
    ],
)
def test_what_was_said_by_name_is_not(settings: Gateway) -> None:
    create_app(FetchService(MemoryReader(), settings, ManualClock()))


@pytest.mark.parametrize("auth", [GatewayAuth(basic=True), GatewayAuth(basic=True, rights="gateway")])
def test_brokers_without_users_are_not_asked_for_rights(auth: GatewayAuth) -> None:
    with pytest.raises(InvalidSettings, match=r"gateway\.auth\.rights"):
        open_gateway(MemoryReader(), Gateway(listen=Address("127.0.0.1", 0), auth=auth), ManualClock())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""])
def test_a_web_page_that_calls_this_machine_by_its_own_name_reads_nothing(host: str) -> None:
    answer = gateway(GatewayAuth())("/v1/topics", headers={"host": host})
    assert (answer.status_code, answer.json()["error_code"]) == (421, 42150)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "LOCALHOST"])
def test_this_machines_names_are_its_own(host: str) -> None:
    assert gateway(GatewayAuth())("/v1/topics", headers={"host": host}).status_code == 200


def test_names_that_are_set_are_the_only_ones(tokens: Tokens) -> None:
    ask = gateway(tokens(line("secret", "ann")), hosts=("tiers.example",))
    asked = {"host": "tiers.example:443"} | bearer("secret")
    assert ask("/v1/topics", headers=asked).status_code == 200
    assert ask("/v1/topics", headers=asked | {"host": "localhost"}).status_code == 421


def test_each_call_is_logged_with_who_read_what_and_no_secret(tokens: Tokens) -> None:
    lines: list[str] = []
    told: list[Event] = []
    reader = MemoryReader()
    reader.append(b"k", b"private words")
    settings = Gateway(auth=tokens(line("secret", "ann")))
    service = FetchService(reader, settings, ManualClock())
    ask = asgi_call(create_app(service, log=AccessLog(ManualClock(), told.append, lines.append)))
    answer = ask(RECORDS, offset=0, headers=bearer("secret"))
    for path in ("/v1/topics", "/", "/v1/topics/none"):
        ask(path, headers=bearer("secret"))
    ask("/v1/topics", headers=bearer("guessed"))
    found = [json.loads(each) for each in lines]
    assert [(each["user"], each["path"], each["status"]) for each in found] == [
        ("ann", RECORDS, 200),
        ("ann", "/v1/topics", 200),
        ("ann", "/v1/topics/none", 404),
        ("", "/v1/topics", 401),
    ]
    read = {name: found[0][name] for name in ("bytes", "tier", "first_offset", "next_offset", "client", "time")}
    assert read == {
        "bytes": len(answer.content),
        "tier": "local",
        "first_offset": 0,
        "next_offset": 1,
        "client": "127.0.0.1",
        "time": "2023-11-14T22:13:20Z",
    }
    assert [type(event) for event in told] == [GatewayAnswered] * 4
    assert told[0] == GatewayAnswered(200, len(answer.content), 0.0)
    assert not any(word in text for text in lines for word in ("secret", "guessed", "private"))


def test_an_access_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    settings = Gateway(listen=Address("127.0.0.1", 0), access_log=tmp_path / "none" / "access.log")
    with pytest.raises(InvalidSettings, match=r"gateway\.access_log"):
        open_gateway(MemoryReader(), settings, ManualClock())


def test_the_access_log_of_a_gateway_is_its_file(serve: Callable[..., Running], tmp_path: Path) -> None:
    running = serve(MemoryReader(), access_log=tmp_path / "access.log")
    assert running.client.get("/v1/topics").status_code == 200
    eventually(lambda: (tmp_path / "access.log").read_text().count("\n") == 1)
    assert json.loads((tmp_path / "access.log").read_text())["path"] == "/v1/topics"
