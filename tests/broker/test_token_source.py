"""The source of our bearer tokens, without a broker: when it asks, whom, and what a refusal says."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.broker.signed import CLIENT, SECRET, TokenEndpoint, lasting, signed
from tests.twins.manual_clock import ManualClock
from tierstate.broker.client_config import admin_config
from tierstate.broker.kafka_access import KafkaAccess, own_login
from tierstate.broker.live_client import LiveClient
from tierstate.broker.oauth import AGAIN_S, Token, TokenSource, token_source
from tierstate.broker.sasl import exchange_of
from tierstate.consumer.consumer_config import consumer_config
from tierstate.runtime.live_secret import LiveSecret, Reference
from tierstate.runtime.settings_keys import is_secret
from tierstate.spark.kafka_properties import kafka_properties
from tierstate.state.errors import AccessDenied, BrokerUnavailable, InvalidRequest, MissingExtra, TierstateError

MSK = {
    "bootstrap.servers": "b-1.one.abc123.c2.kafka.eu-west-1.amazonaws.com:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "aws_msk_iam",
}
signer = pytest.mark.skipif(find_spec("aws_msk_iam_sasl_signer") is None, reason="aws-msk-iam-sasl-signer-python")


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with closing(TokenEndpoint()) as opened:
        yield opened


class Issuer:
    """Issues tokens of 100 s by a clock that the test advances."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.count = clock, 0
        self.refusal: TierstateError | None = None

    def ask(self) -> Token:
        if self.refusal is not None:
            raise self.refusal
        self.count += 1
        now = self.clock.now_ms() / 1000
        return Token(f"token-{self.count}", now + 100, "issuer", now + 75)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer(ManualClock())


def test_a_token_is_kept_until_shortly_before_it_expires(issuer: Issuer) -> None:
    source = TokenSource(issuer.ask, issuer.clock)
    assert source.now().value == "token-1"
    issuer.clock.advance(74)
    assert source.now().value == "token-1"
    issuer.clock.advance(1)
    assert source.now().value == "token-2"


def test_a_failed_renewal_keeps_the_token_while_it_is_valid(issuer: Issuer) -> None:
    source = TokenSource(issuer.ask, issuer.clock)
    source.now()
    issuer.refusal = BrokerUnavailable("away")
    issuer.clock.advance(99)
    assert source.now().value == "token-1"
    issuer.clock.advance(2)
    with pytest.raises(BrokerUnavailable, match="away"):
        source.now()
    issuer.refusal = None
    issuer.clock.advance(AGAIN_S)
    assert source.now().value == "token-2"


def test_a_refused_token_is_replaced_and_the_issuer_is_not_hammered(issuer: Issuer) -> None:
    source = TokenSource(issuer.ask, issuer.clock)
    for _ in range(10):
        source.now()
        source.refused()
    assert (issuer.count, source.replaced) == (1, 0)
    issuer.clock.advance(AGAIN_S)
    assert source.now().value == "token-2"
    assert source.replaced == 1


def test_threads_share_one_request(endpoint: TokenEndpoint) -> None:
    source = token_source(endpoint.properties)
    threads = [threading.Thread(target=source.now) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(endpoint.forms) == 1


def test_a_token_is_requested_as_librdkafka_does(endpoint: TokenEndpoint) -> None:
    more = {"sasl.oauthbearer.scope": "kafka read", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,poolId=p=2"}
    kafka = KafkaAccess({"security.protocol": "sasl_ssl"} | endpoint.properties | more)
    login = own_login(kafka)
    assert login is not None
    assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka read"]}]
    said = next(exchange_of(login))
    assert said == f"n,,\1auth=Bearer {login.secret}\1logicalCluster=lkc-1\1poolId=p=2\1\1".encode()
    config = admin_config(kafka)
    value, expires_at, principal, extensions = config["oauth_cb"](None)
    assert (value, principal, extensions) == (login.secret, "", {"logicalCluster": "lkc-1", "poolId": "p=2"})
    assert expires_at == pytest.approx(time.time() + 3600, abs=60)
    assert [name for name in config if name.startswith("sasl.oauthbearer")] == []
    assert login.secret not in repr(login)


def test_the_newer_names_of_client_and_secret_are_understood(endpoint: TokenEndpoint) -> None:
    old = "sasl.oauthbearer.client."
    kafka = {n.replace(old, "sasl.oauthbearer.client.credentials.client."): v for n, v in endpoint.properties.items()}
    assert token_source(kafka).now().value


def test_a_changed_secret_is_used_for_the_next_token(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    live = {"sasl.oauthbearer.client.secret": LiveSecret(Reference("file", (str(file),)), "old")}
    kafka = KafkaAccess({"security.protocol": "sasl_ssl"} | endpoint.properties, live)
    with pytest.raises(AccessDenied):
        own_login(kafka)
    file.write_text(SECRET)
    time.sleep(AGAIN_S)
    assert own_login(kafka) is not None


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((401, {"error": "invalid_client"}), AccessDenied, "401 invalid_client"),
        (
            (400, {"error": "invalid_scope", "error_description": "no such scope"}),
            AccessDenied,
            "invalid_scope no such",
        ),
        ((503, "<html>"), BrokerUnavailable, "answer=503"),
        ((429, ""), BrokerUnavailable, "answer=429"),
        ((200, "<html>"), AccessDenied, "200 no JSON with a token"),
        ((302, ""), AccessDenied, "answer=302"),
    ],
)
def test_a_refusal_names_the_endpoint_and_its_answer(
    endpoint: TokenEndpoint, answer: tuple[int, str], kind: type[TierstateError], words: str
) -> None:
    endpoint.answer = answer
    with pytest.raises(kind) as caught:
        token_source(endpoint.properties).now()
    assert f"endpoint={endpoint.url} client={CLIENT}" in str(caught.value)
    assert words in str(caught.value)


def test_a_refusal_never_repeats_the_secret(endpoint: TokenEndpoint) -> None:
    endpoint.answer = 400, {"error": "invalid_request", "error_description": f"the secret {SECRET} is old"}
    with pytest.raises(AccessDenied, match=r"the secret \(hidden\) is old"):
        token_source(endpoint.properties).now()
    wrong = endpoint.properties | {"sasl.oauthbearer.client.secret": "wrong-one"}
    endpoint.answer = None
    with pytest.raises(AccessDenied) as caught:
        token_source(wrong).now()
    assert "invalid_client" in str(caught.value)
    assert base64.b64encode(f"{CLIENT}:wrong-one".encode()).decode() not in str(caught.value)


def test_an_endpoint_that_is_away_is_named(endpoint: TokenEndpoint) -> None:
    endpoint.close()
    with pytest.raises(BrokerUnavailable, match=rf"does not answer\. endpoint={endpoint.url} reason=.*refused"):
        token_source(endpoint.properties).now()


def test_an_expired_token_is_no_token(endpoint: TokenEndpoint) -> None:
    endpoint.lifetime_s = -5
    with pytest.raises(AccessDenied, match=f"has expired. origin={endpoint.url}"):
        token_source(endpoint.properties).now()


def test_a_client_stays_in_use_while_its_successor_gets_no_token(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """A producer asks for its successor while a fact is on its way: an error would say that it was not sent."""
    authorities = tmp_path / "ca.pem"
    authorities.write_text("one")
    endpoint.lifetime_s = 1
    kafka = endpoint.properties | {"security.protocol": "sasl_ssl", "ssl.ca.location": str(authorities)}
    client = LiveClient(kafka, lambda config: object(), admin_config)
    first = client.now()
    time.sleep(1.1)
    endpoint.answer = 503, ""
    authorities.write_text("other")
    assert client.now() is first
    endpoint.answer = None
    time.sleep(AGAIN_S)
    assert client.now() is not first


@pytest.mark.parametrize(
    "name", ["client.secret", "client.credentials.client.secret", "assertion.private.key.passphrase"]
)
def test_secrets_of_oauth_are_hidden_by_their_name(name: str) -> None:
    assert is_secret(("kafka", f"sasl.oauthbearer.{name}"))


def test_authorities_of_the_endpoint_reach_spark_and_python() -> None:
    kafka = {"bootstrap.servers": "host:1", "https.ca.location": "/ca.pem"}
    assert kafka_properties({f"kafka.{name}": value for name, value in kafka.items()}) == kafka
    settings = consumer_config({**kafka, "tierstate.store.url": "file:///nowhere"}).settings
    assert settings is not None
    assert settings.kafka == kafka


def test_a_file_is_read_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    kafka = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    with pytest.raises(BrokerUnavailable, match=r"file cannot be read\. endpoint=file://"):
        token_source(kafka).now()
    first, second = lasting(1000), lasting(2000)
    file.write_text(first + "\n")
    source = token_source(kafka)
    assert source.now().value == first
    file.write_text(second)
    assert source.now().value == second
    file.write_text("")
    assert source.now().value == second, "an empty file leaves the token as it was"
    time.sleep(AGAIN_S)
    file.write_text("opaque")
    assert source.now().expires_at == pytest.approx(time.time() + 300, abs=60)
    file.write_text(signed(exp=1_700_000_001))
    with pytest.raises(AccessDenied, match="has expired"):
        token_source(kafka).now()


def test_a_refused_file_counts_as_replaced_once_it_has_another_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    source = token_source({"sasl.oauthbearer.token.endpoint.url": file.as_uri()})
    source.now()
    source.refused()
    source.now()
    assert source.replaced == 0
    file.write_text("two")
    assert (source.now().value, source.replaced) == ("two", 1)


@pytest.mark.parametrize(
    ("kafka", "words"),
    [
        ({}, "aws_msk_iam, or oidc with sasl.oauthbearer.token.endpoint.url"),
        ({"method": "default"}, "method=default"),
        ({"token.endpoint.url": "http://127.0.0.1:1/"}, "client.id and sasl.oauthbearer.client.secret must be set"),
        ({"grant.type": "jwt-bearer"}, "property=sasl.oauthbearer.grant.type"),
        ({"token.endpoint.url": "file:///etc/hostname", "extensions": "a b"}, "name=value,name=value"),
        ({"token.endpoint.url": "file:///etc/hostname", "extensions": "auth=x"}, "name=value,name=value"),
        ({"method": "aws_msk_iam"}, "names no AWS region: set sasl.oauthbearer.aws.region"),
    ],
)
def test_properties_that_give_no_token_are_refused_by_name(kafka: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        token_source({f"sasl.oauthbearer.{name}": value for name, value in kafka.items()}).now()


@signer
def test_the_signer_of_msk_signs_with_these_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    kafka = KafkaAccess(MSK)
    login = own_login(kafka)
    assert login is not None
    next(exchange_of(login))  # raises for a character that SASL cannot carry
    url = urlsplit(base64.urlsafe_b64decode(login.secret + "=" * (-len(login.secret) % 4)).decode())
    query = parse_qs(url.query)
    assert (url.hostname, query["Action"]) == ("kafka.eu-west-1.amazonaws.com", ["kafka-cluster:Connect"])
    assert query["X-Amz-Credential"][0].startswith("AKIAIOSFODNN7EXAMPLE/")
    value, expires_at, _, _ = admin_config(kafka)["oauth_cb"](None)
    assert value == login.secret
    assert expires_at == pytest.approx(time.time() + int(query["X-Amz-Expires"][0]), abs=5)


@signer
def test_a_token_of_msk_is_signed_again_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one")
    clock = ManualClock(int(time.time() * 1000))
    source = token_source(MSK | {"sasl.oauthbearer.aws.region": "us-east-1"}, clock)
    first = source.now()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert source.now() == first
    clock.advance(0.76 * 900)
    assert source.now().value != first.value
    assert first.origin == "aws_msk_iam us-east-1"


@signer
def test_missing_aws_credentials_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(AccessDenied, match=r"no AWS credentials .* region=eu-west-1"):
        token_source(MSK).now()


def test_a_missing_signer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(MissingExtra, match=r"aws_msk_iam needs the extra \[msk\]"):
        token_source(MSK).now()
