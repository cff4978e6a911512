"""Authentication: everything that shows data needs a caller, and a caller must prove its name in one of these ways."""

from __future__ import annotations

import base64
from pathlib import Path

import jwt
import pytest

from tests.api.gateways import RECORDS, Call, MemoryReader, Tokens, bearer, gateway_asking, token_line
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.credentials import basic, relayed, subject_of
from tierstate.api.open import open_gateway
from tierstate.api.problems import NotAuthenticated
from tierstate.api.service import FetchService
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth, GatewayJwt, GatewayTls
from tierstate.runtime.setting_types import Address
from tierstate.state.errors import InvalidSettings

EVERYWHERE = Address("0.0.0.0", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def guarded(tokens: Tokens, clock: ManualClock) -> Call:
    """Return a gateway with two principals, which may read 1 KiB a second each."""
    auth = tokens("# people\n\n" + token_line("secret-a", "ann") + token_line("secret-b", "bob"))
    return gateway_asking(auth, clock, quota=1024)


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


def test_two_authorization_headers_prove_no_caller(guarded: Call) -> None:
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
    ask = gateway_asking(
        tokens(token_line("secret", "ann 2023-11-15T00:00:00Z") + token_line("other", "bob 2023-11-16")), clock
    )
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 200
    clock.advance(3600 * 2)  # from 22:13 to the next day
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 401
    assert ask("/v1/topics", headers=bearer("other")).status_code == 200


def test_a_changed_file_is_read_again_and_a_broken_one_lets_no_caller_in(tokens: Tokens) -> None:
    ask = gateway_asking(tokens(token_line("secret", "ann")))
    assert ask("/v1/topics", headers=bearer("secret")).status_code == 200
    auth = tokens(token_line("another", "ann"))
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
        token_line("a", ""),
        token_line("a", "b soon"),
        token_line("a", "b 2027-01-01 c"),
    ],
)
def test_a_tokens_file_that_cannot_be_used_is_refused(tokens: Tokens, text: str) -> None:
    with pytest.raises(InvalidSettings):
        gateway_asking(tokens(text))


def test_a_tokens_file_that_others_can_read_or_that_is_missing_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    auth = tokens(token_line("secret", "ann"))
    (tmp_path / "tokens").chmod(0o604)
    with pytest.raises(InvalidSettings, match="others"):
        gateway_asking(auth)
    with pytest.raises(InvalidSettings):
        gateway_asking(GatewayAuth(tokens=tmp_path / "none", rights="gateway"))


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
    keys = {basic("PLAIN", base64.b64encode(pair).decode()).key for pair in (b"ann:a", b"ann:b", b"an:na", b"ann:a")}
    assert len(keys) == 3


# tokens of Kafka's


@pytest.mark.parametrize(
    "token",
    [
        jwt.encode({"exp": 4_000_000_000}, "", "none"),
        jwt.encode({"sub": ""}, "", "none"),
        jwt.encode({"sub": "an\nn"}, "", "none"),
        jwt.encode({"sub": ["ann"]}, "", "none"),
        "a.b.c",
        "opaque",
        ".".join([base64.urlsafe_b64encode(b"[" * 30_000).decode()] * 3),
    ],
    ids="nobody empty unprintable several rubbish opaque deep".split(),
)
def test_a_token_that_names_no_user_is_not_shown_to_the_brokers(token: str) -> None:
    with pytest.raises(NotAuthenticated):
        relayed(token, "sub")


def test_a_callers_token_is_in_nothing_that_is_printed_and_is_its_key_alone() -> None:
    one, other = (jwt.encode({"email": "ann", "exp": exp}, "", "none") for exp in (4_000_000_000, "never"))
    caller = relayed(one, "email")
    assert (caller.principal, caller.login and caller.login.secret, caller.until_ms) == ("ann", one, 4_000_000_000_000)
    assert one not in repr(caller)
    assert relayed(other, "email").until_ms == float("inf")
    assert len({relayed(token, "email").key for token in (one, other, one)}) == 2


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
        (Gateway(listen=EVERYWHERE, auth=GatewayAuth(oauthbearer=True)), "in the clear"),
        (Gateway(auth=GatewayAuth(oauthbearer=True, jwt=GatewayJwt(issuer="https://who.example"))), "not both"),
        (Gateway(auth=GatewayAuth(certificates="cn")), "client_ca"),
    ],
)
def test_settings_that_let_strangers_in_are_refused(settings: Gateway, word: str) -> None:
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
def test_settings_that_are_safe_or_open_on_purpose_are_accepted(settings: Gateway) -> None:
    create_app(FetchService(MemoryReader(), settings, ManualClock()))


@pytest.mark.parametrize(
    "auth",
    [
        GatewayAuth(basic=True),
        GatewayAuth(basic=True, rights="gateway"),
        GatewayAuth(oauthbearer=True, rights="gateway"),
    ],
)
def test_brokers_without_users_are_not_asked_for_rights(auth: GatewayAuth) -> None:
    with pytest.raises(InvalidSettings, match=r"gateway\.auth\.rights"):
        open_gateway(MemoryReader(), Gateway(listen=Address("127.0.0.1", 0), auth=auth), ManualClock())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""])
def test_a_web_page_that_calls_this_machine_by_its_own_name_reads_nothing(host: str) -> None:
    answer = gateway_asking(GatewayAuth())("/v1/topics", headers={"host": host})
    assert (answer.status_code, answer.json()["error_code"]) == (421, 42150)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "LOCALHOST"])
def test_this_machines_names_are_its_own(host: str) -> None:
    assert gateway_asking(GatewayAuth())("/v1/topics", headers={"host": host}).status_code == 200


def test_names_that_are_set_are_the_only_ones(tokens: Tokens) -> None:
    ask = gateway_asking(tokens(token_line("secret", "ann")), hosts=("tiers.example",))
    headers = {"host": "tiers.example:443"} | bearer("secret")
    assert ask("/v1/topics", headers=headers).status_code == 200
    assert ask("/v1/topics", headers=headers | {"host": "localhost"}).status_code == 421
