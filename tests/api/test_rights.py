"""A user without read access at the broker gets no byte of a topic from the gateway, by any call or any login."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import jwt
import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.api.certificates import certificates
from tests.api.gateways import write_keys
from tests.broker.guarded import PASSWORDS, allow, binding, denied, unsigned_token
from tests.broker.roles import READER
from tests.broker.test_callers import allow_tokens
from tests.commits import commit
from tests.docs.http_world import app
from tests.scenarios import forked
from tests.scenarios.bound_topics import RECORDS, copy_bound_topics
from tests.scenarios.house import TIERSTATE, House, Running, eventually
from tests.scenarios.test_acls import permit
from tierstate import connect
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied

pytestmark = pytest.mark.kafka

READ, DESCRIBE, WRITE, DENY = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.WRITE, AclPermissionType.DENY
TOPIC, ALLOW = ResourceType.TOPIC, AclPermissionType.ALLOW
BINDINGS: dict[str, tuple[list[tuple[AclOperation, AclPermissionType]], str]] = {
    "may-read": ([(READ, ALLOW)], "reads"),
    "by-prefix": ([], "reads"),
    "may-describe": ([(DESCRIBE, ALLOW)], "knows"),
    "may-write": ([(WRITE, ALLOW)], "knows"),
    "is-denied": ([(READ, ALLOW), (AclOperation.ALL, DENY)], "nothing"),
    "has-none": ([], "nothing"),
}
"""The bindings of ``guest``, and what they allow."""
DESCRIBING = [
    "",
    "/partitions/0",
    "/partitions?partition=0",
    "/partitions/0/offsets?timestamp=0",
    "/summary",
    "/times",
    "/groups",
]
READING = [
    "/facts",
    "/partitions/0/segments",
    "/partitions/0/agent",
    "/partitions/0/records?offset=0",
    "/partitions/0/records?offset=0&tier=remote",
    "/partitions/0/records?offset=0&contains=0",
]
OF_A_SEGMENT = ["grant", "log", "manifest", "indexes"]
RECORDS_PATH = "/partitions/0/records?offset=0"
WAYS = ["basic", "token", "provider", "certificate", "relayed"]
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Guarded:
    house: House
    running: Running
    url: str
    relaying: str
    """The URL of a gateway that takes Kafka's own bearer tokens, and may make no delegation token."""
    authority: Path
    clients: Path

    def topic(self, name: str) -> str:
        return f"{self.house.name}-{name}"

    def client(self, way: str, user: str = "guest") -> httpx.Client:
        headers, context = {}, ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.clients.with_name(f"{user if way == 'certificate' else 'nobody'}.pem"))
        if way == "basic":
            headers = basic(user, PASSWORDS[user])
        elif way == "token":
            headers = {"authorization": f"Bearer token-of-{user}"}
        elif way == "provider":
            now = datetime.datetime.now(datetime.UTC)
            claims = {"iss": "https://who.example", "aud": "t", "sub": user, "exp": now + datetime.timedelta(hours=1)}
            headers = {"authorization": f"Bearer {jwt.encode(claims, KEY, 'RS256', headers={'kid': 'one'})}"}
        elif way == "relayed":
            headers = {"authorization": f"Bearer {unsigned_token(user)}"}
        url = self.relaying if way == "relayed" else self.url
        return httpx.Client(base_url=url, verify=context, headers=headers, timeout=60)


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture(scope="module")
def guarded(tls_kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Yield the gateway ``reader``, with a reader's rights and CreateTokens, and a tiered topic for each binding.
    All topics are copied and trimmed. The gateway takes every kind of login, and keeps no answer about a user."""
    folder = tmp_path_factory.mktemp("rights")
    house = House(tls_kafka, folder / "house", "http")
    authority = Path(tls_kafka.client_config["ssl.ca.location"])
    try:
        house.run("init")
        copy_bound_topics(house, {name: bound for name, (bound, _) in BINDINGS.items()})
        for user in ("guest", "admin"):
            allow_tokens(tls_kafka, "reader", user)
        clients = certificates(folder, "guest", "admin", "nobody")
        running, url = house.as_user("reader", PASSWORDS["reader"]).gateway(*flags(folder, authority, clients))
        for name in BINDINGS:
            permit(house, "operator", READER, f"{house.name}-{name}")
        _, relaying = house.as_user("operator", PASSWORDS["operator"]).gateway(*relaying_flags(authority))
        yield Guarded(house, running, url, relaying, authority, clients)
    finally:
        house.close()


def flags(folder: Path, authority: Path, clients: Path) -> list[str]:
    tokens = folder / "tokens"
    digests = {user: hashlib.sha256(f"token-of-{user}".encode()).hexdigest() for user in ("guest", "admin")}
    tokens.write_text("".join(f"sha256:{digest} {user}\n" for user, digest in digests.items()))
    tokens.chmod(0o600)
    write_keys(folder / "keys.json", ("one", RSAAlgorithm.to_jwk(KEY.public_key())))
    identity = authority.with_name("broker.pem")
    sets = {
        "listen": "127.0.0.1:0",
        "tls.certificate": identity,
        "tls.key": identity,
        "tls.client_ca": clients,
        "auth.tokens": tokens,
        "auth.basic": "true",
        "auth.certificates": "cn",
        "auth.cache": "0s",
        "auth.jwt.issuer": "https://who.example",
        "auth.jwt.audience": "t",
        "auth.jwt.keys": folder / "keys.json",
    }
    return [flag for name, value in sets.items() for flag in ("--set", f"gateway.{name}={value}")]


def relaying_flags(authority: Path) -> list[str]:
    identity = authority.with_name("broker.pem")
    sets = {"listen": "127.0.0.1:0", "tls.certificate": identity, "tls.key": identity}
    sets |= {"auth.oauthbearer": "true", "auth.cache": "0s"}
    return [flag for name, value in sets.items() for flag in ("--set", f"gateway.{name}={value}")]


def test_no_call_is_left_out_here() -> None:
    below = [*DESCRIBING, *READING, *(f"/partitions/0/segments/x/{name}" for name in OF_A_SEGMENT)]
    whole = ["/v1/plans", "/v1/plans/x", "/v1/tables", "/v1/topics"]
    paths = [*whole, *(f"/v1/topics/t{path.partition('?')[0]}" for path in below)]
    for path in app().openapi()["paths"]:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        assert any(re.fullmatch(pattern, path) for path in paths), path


@pytest.mark.parametrize("name", BINDINGS)
@pytest.mark.parametrize("way", WAYS)
def test_each_call_gives_what_kafka_lets_the_caller_have(guarded: Guarded, way: str, name: str) -> None:
    may, topic = BINDINGS[name][1], guarded.topic(name)
    with guarded.client(way) as client:
        for paths, needed in ((DESCRIBING, ("reads", "knows")), (READING, ("reads",))):
            for path in paths:
                answer = client.get(f"/v1/topics/{topic}{path}")
                expected = 200 if may in needed else 403 if may == "knows" else 404
                assert answer.status_code == expected, (path, answer.text)
                if expected != 200:
                    assert "0" * 100 not in answer.text
                    assert answer.headers["content-length"] == str(len(answer.content))
        listed = {row["topic"] for row in client.get("/v1/topics").json()["topics"]}
    assert (topic in listed) == (may != "nothing")


@pytest.mark.parametrize("name", BINDINGS)
@pytest.mark.parametrize("way", WAYS)
def test_only_users_who_may_read_get_plans_and_segments(guarded: Guarded, way: str, name: str) -> None:
    may, topic = BINDINGS[name][1], guarded.topic(name)
    with guarded.client("basic", "admin") as admin:
        segments = admin.get(f"/v1/topics/{topic}/partitions/0/segments").json()["segments"]
    expected = {"reads": 200, "knows": 403, "nothing": 404}[may]
    with guarded.client(way) as client:
        ranges = [{"topic": name, "partition": 0} for name in (topic, guarded.topic("is-denied"))]
        answers = [client.post("/v1/plans", json={"ranges": ranges[:1], "lease_seconds": 0})]
        both = client.post("/v1/plans", json={"ranges": ranges, "lease_seconds": 0})
        assert both.status_code in (400, 403, 404), "one of two is not enough"
        for what in OF_A_SEGMENT:
            path = f"/v1/topics/{topic}/partitions/0/segments/{segments[0]['segment_id']}/{what}"
            answers.append(client.get(path, headers={"range": "bytes=0-99"}))
        # of a topic that may be read, a segment of another topic
        path = f"/v1/topics/{guarded.topic('may-read')}/partitions/0/segments/{segments[0]['segment_id']}/log"
        over = client.delete(f"/v1/plans/{'a' * 32}-60", params={"topic": topic})
        assert over.status_code == (403 if may == "knows" else 404)
        assert ("no such plan" in over.text) == (may == "reads")
        assert client.get(path).status_code == (200 if name == "may-read" else 410)
    assert [answer.status_code for answer in answers] == [
        expected,
        expected,
        *[206 if may == "reads" else expected] * 3,
    ]
    assert all(may == "reads" or b"0" * 100 not in answer.content for answer in answers)


@pytest.mark.parametrize("way", WAYS)
def test_a_topic_that_one_may_not_know_of_looks_like_one_that_is_not_there(guarded: Guarded, way: str) -> None:
    for path in DESCRIBING + READING:
        with guarded.client(way) as client:  # a connection's wrong calls wait for longer and longer
            forbidden = client.get(f"/v1/topics/{guarded.topic('has-none')}{path}")
            missing = client.get(f"/v1/topics/{guarded.topic('not-here')}{path}")
            text = forbidden.text.replace("has-none", "not-here")
            assert (forbidden.status_code, text) == (missing.status_code, missing.text)


@pytest.mark.parametrize("way", WAYS)
def test_a_caller_is_shown_those_groups_alone_that_it_may_describe(
    guarded: Guarded, tls_kafka: KafkaSandbox, way: str
) -> None:
    topic, seen, hidden = guarded.topic("may-read"), f"seen-{way}", f"hidden-{way}"
    for group in (seen, hidden):
        commit(tls_kafka.client_config, group, topic, 0, 7)
    allow(tls_kafka, [binding("guest", ResourceType.GROUP, seen, DESCRIBE)])
    with guarded.client(way) as client:
        answer = client.get(f"/v1/topics/{topic}/groups")
    assert seen in {group["group_id"] for group in answer.json()["groups"]}
    assert "hidden" not in answer.text
    with guarded.client(way, "admin") as client:
        groups = {group["group_id"]: group for group in client.get(f"/v1/topics/{topic}/groups").json()["groups"]}
    assert groups.keys() >= {seen, hidden}
    assert (groups[seen]["committed_offset"], groups[seen]["in_remote_tier"]) == (7, True)


@pytest.mark.parametrize("way", WAYS)
def test_a_super_user_reads_every_tiered_topic(guarded: Guarded, way: str) -> None:
    with guarded.client(way, "admin") as client:
        for name in BINDINGS:
            assert client.get(f"/v1/topics/{guarded.topic(name)}{RECORDS_PATH}").status_code == 200
        assert client.get(f"/v1/topics/{guarded.house.tier_topic}").status_code == 404


def test_python_reads_as_a_kafka_user_what_that_user_may(guarded: Guarded, tmp_path: Path) -> None:
    authority, identity = str(guarded.authority), guarded.authority.with_name("broker.pem")
    sets = {"gateway.tls.certificate": identity, "gateway.tls.key": identity, "gateway.auth.basic": "true"}
    more = [flag for name, value in {**sets, "state_dir": tmp_path}.items() for flag in ("--set", f"{name}={value}")]
    running, url = guarded.house.as_user("reader", PASSWORDS["reader"]).gateway(*more)
    with connect(gateway=url, user="guest", password=PASSWORDS["guest"], ca_file=authority) as log:
        assert sorted(log.topics()) == sorted(
            guarded.topic(name) for name, (_, may) in BINDINGS.items() if may != "nothing"
        )
        count = pa.table(log.topic(guarded.topic("may-read")).read(columns=["offset"])).num_rows
        assert count == guarded.house.json("digest", guarded.topic("may-read"))["records"] >= RECORDS
        with pytest.raises(AccessDenied):
            list(log.topic(guarded.topic("may-describe")).read().to_batches())
    running.stop()


def test_a_topic_that_is_not_tiered_is_not_served(guarded: Guarded) -> None:
    untiered = guarded.house.create("untiered")  # no agent runs now
    with guarded.client("basic", "admin") as client:
        for path in DESCRIBING + READING:
            assert client.get(f"/v1/topics/{untiered}{path}").status_code == 404
        assert untiered not in client.get("/v1/topics").text


@pytest.mark.parametrize(
    "headers",
    [{}, basic("guest", "wrong"), basic("nobody", "g"), {"authorization": "Bearer of-nobody"}, basic("admin", "")],
)
def test_a_caller_without_a_proof_gets_nothing(guarded: Guarded, headers: dict[str, str]) -> None:
    with guarded.client("none") as client:
        for path in ["", f"/{guarded.topic('may-read')}{RECORDS_PATH}", f"/{guarded.topic('not-here')}"]:
            answer = client.get(f"/v1/topics{path}", headers=headers)
            # the certificate of ``nobody`` is one of ours, for whose user we may make no token
            assert answer.status_code == (403 if not headers else 401), answer.text
            assert "topics" not in answer.json()


@pytest.mark.parametrize(
    "token",
    [
        unsigned_token("guest", exp=1_700_000_000),
        unsigned_token("guest", exp=None),
        unsigned_token(""),
        jwt.encode({"sub": "guest", "exp": 4_000_000_000}, KEY, "RS256"),
        unsigned_token("guest").replace(".", "\N{NO-BREAK SPACE}."),
        "opaque",
    ],
    ids="expired endless nobody signed odd opaque".split(),
)
def test_a_token_that_the_brokers_refuse_gets_nothing(guarded: Guarded, token: str) -> None:
    with guarded.client("relayed") as client:
        for path in ["", f"/{guarded.topic('may-read')}{RECORDS_PATH}", f"/{guarded.topic('not-here')}"]:
            answer = client.get(f"/v1/topics{path}", headers={b"authorization": f"Bearer {token}".encode("latin-1")})
            assert answer.status_code == 401, answer.text
            assert "topics" not in answer.json()


def test_a_token_reads_until_it_expires(guarded: Guarded) -> None:
    path, clock = f"/v1/topics/{guarded.topic('may-read')}{RECORDS_PATH}", SystemClock()
    ends = clock.now_ms() / 1000 + 5
    headers = {"authorization": f"Bearer {unsigned_token('guest', exp=ends)}"}
    with guarded.client("relayed") as client:
        assert client.get(path, headers=headers).status_code == 200
        eventually(lambda: clock.now_ms() > ends * 1000)
        assert client.get(path, headers=headers).status_code == 401


@pytest.mark.parametrize("way", ["basic", "relayed"])
def test_a_right_that_is_taken_away_between_two_pages_ends_the_loop(
    guarded: Guarded, tls_kafka: KafkaSandbox, way: str
) -> None:
    topic = guarded.topic("may-read")
    path = f"/v1/topics/{topic}/partitions/0/records?max_records=10"
    with guarded.client(way) as client:
        answer = client.get(f"{path}&offset=0")
        assert answer.status_code == 200
        following = answer.headers["x-next-offset"]
        with denied(tls_kafka, binding("guest", TOPIC, topic, READ, DENY)):
            assert client.get(f"{path}&offset={following}").status_code == 403
        assert client.get(f"{path}&offset={following}").status_code == 200


@pytest.mark.parametrize("way", ["basic", "relayed"])
def test_a_right_that_is_taken_away_during_a_long_poll_gives_no_record(
    guarded: Guarded, tls_kafka: KafkaSandbox, way: str
) -> None:
    topic = guarded.topic("may-read")
    with guarded.client("basic", "admin") as admin:
        end = admin.get(f"/v1/topics/{topic}/partitions/0").json()["high_watermark"]
    path = f"/v1/topics/{topic}/partitions/0/records?timeout_ms=60000"
    answers: list[httpx.Response] = []
    with guarded.client(way) as client:

        def poll() -> None:
            answers.append(client.get(f"{path}&offset={end}"))

        polling = threading.Thread(target=poll)
        polling.start()
        try:
            with denied(tls_kafka, binding("guest", TOPIC, topic, READ, DENY)):
                guarded.house.append(topic, 5, first=end)
                polling.join(60)
        finally:
            polling.join(60)
        assert [answer.status_code for answer in answers] == [403]
        assert client.get(f"{path}&offset={end}").status_code == 200


@dataclass
class Asked:
    """A gateway that takes tokens and passwords, without certificates, and a command line that asks it."""

    guarded: Guarded
    url: str
    token: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        config = ("--config", str(self.guarded.house.config))
        command = [*arguments, *config, "--gateway", self.url, "--ca-file", str(self.guarded.authority)]
        return forked.command(command, {**os.environ, **environment}, 60)


@pytest.fixture(scope="module")
def asked(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("asked")
    options = flags(folder, guarded.authority, guarded.clients)
    kept = [text for text in options if text != "--set" and "client_ca" not in text and "certificates" not in text]
    sets = [flag for setting in [*kept, f"state_dir={folder / 'state'}"] for flag in ("--set", setting)]
    _, url = guarded.house.as_user("reader", PASSWORDS["reader"]).gateway(*sets)
    (folder / "token").write_text("token-of-guest\n")
    return Asked(guarded, url, folder / "token")


READERS = [
    ("segments", "{}:0", "--json"),
    ("digest", "{}", "--via", "gateway", "--json"),
    ("consume", "{}", "-n", "5"),
    ("consume", "{}", "--contains", "0", "-n", "5"),
    ("describe", "{}:0"),
    ("describe", "{}", "--json"),
]


@pytest.mark.parametrize("command", READERS, ids=lambda command: str(command[0]))
def test_commands_that_read_ask_a_gateway_as_a_user(asked: Asked, command: tuple[str, ...]) -> None:
    allowed, refused = (
        [word.format(asked.guarded.topic(name)) for word in command] for name in ("may-read", "has-none")
    )
    by_token, by_name = ("--token-file", str(asked.token)), ("--user", "guest")
    first = asked.run(*allowed, *by_token)
    assert (first.returncode, bool(first.stdout)) == (0, True), first.stderr
    assert asked.run(*allowed, TIERSTATE_TOKEN="token-of-guest").stdout == first.stdout
    assert asked.run(*allowed, *by_name, TIERSTATE_PASSWORD=PASSWORDS["guest"]).stdout == first.stdout
    direct = asked.guarded.house.run(*(word for word in allowed if word not in ("--via", "gateway"))).stdout
    assert (first.stdout == direct) or command[0] == "digest"
    assert command[0] != "digest" or json.loads(first.stdout)["partitions"] == json.loads(direct)["partitions"]
    for arguments, environment in (
        ((*refused, *by_token), {}),
        (allowed, {}),
        ((*allowed, *by_name), {"TIERSTATE_PASSWORD": "wrong"}),
    ):
        done = asked.run(*arguments, **environment)
        assert done.returncode not in (0, 70), done.stderr
        assert "0" * 100 not in done.stdout


@pytest.mark.parametrize("apart", [False, True])
def test_a_command_proves_its_user_by_a_certificate(guarded: Guarded, tmp_path: Path, apart: bool) -> None:
    """The gateway demands a certificate of every client, and asks Kafka for the rights of its user."""
    whole = guarded.clients.with_name("guest.pem").read_text()
    private, begin, chain = whole.partition("-----BEGIN CERTIFICATE-----")
    (tmp_path / "cert").write_text(begin + chain if apart else whole)
    (tmp_path / "key").write_text(private)
    shown = ["--cert-file", str(tmp_path / "cert"), *(["--key-file", str(tmp_path / "key")] if apart else [])]
    caller = Asked(guarded, guarded.url, tmp_path)
    for name, (_, may) in BINDINGS.items():
        done = caller.run("consume", guarded.topic(name), "-n", "5", *shown)
        assert (done.returncode == 0, len(done.stdout.splitlines())) == ((True, 5) if may == "reads" else (False, 0))
    assert caller.run("topics").returncode not in (0, 70)
    assert caller.run("topics", *shown[:1], str(tmp_path / "none")).returncode == 2
    assert caller.run("topics", "--key-file", str(tmp_path / "key")).returncode == 2
    authority, cert = str(guarded.authority), str(tmp_path / "cert")
    key = str(tmp_path / "key") if apart else None
    with connect(gateway=guarded.url, ca_file=authority, cert_file=cert, key_file=key) as log:
        count = pa.table(log.topic(guarded.topic("may-read")).read(columns=["offset"])).num_rows
        assert count == guarded.house.json("digest", guarded.topic("may-read"))["records"] >= RECORDS
        with pytest.raises(AccessDenied):
            list(log.topic(guarded.topic("may-describe")).read().to_batches())


def test_a_user_who_may_only_describe_gets_all_but_the_agents_status(asked: Asked) -> None:
    done = asked.run("describe", asked.guarded.topic("may-describe"), "--token-file", str(asked.token))
    assert done.returncode == 0, done.stderr
    assert "agent         is not asked: this user may not read the topic" in done.stdout


def test_topics_are_those_that_the_caller_may_know_of(asked: Asked) -> None:
    topics = json.loads(asked.run("topics", "--json", "--token-file", str(asked.token)).stdout)
    mine = [row for row in asked.guarded.house.json("topics") if row["topic"] in {row["topic"] for row in topics}]
    for topic in (*topics, *mine):
        del topic["partitions_in_trouble"]  # of agents, which a gateway asks after its answers
    assert topics == mine
    visible = {asked.guarded.topic(name) for name, (_, may) in BINDINGS.items() if may != "nothing"}
    assert {topic["topic"] for topic in topics} == visible


@pytest.mark.parametrize("command", [("verify", "t"), ("check",), ("facts",), ("pause", "t")])
def test_a_command_that_asks_no_gateway_says_so(asked: Asked, command: tuple[str, ...]) -> None:
    done = asked.run(*command)
    assert done.returncode == 2
    assert f"tierstate {command[0]} asks no gateway" in done.stderr


def test_a_command_takes_exactly_one_complete_login(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for flags, word in (
        (("--user", "guest"), "TIERSTATE_PASSWORD"),
        (("--user", "guest", "--token-file", str(asked.token)), "not both"),
        (("--token-file", str(tmp_path / "none")), "cannot be read"),
        (("--token-file", str(tmp_path / "empty")), "no token"),
    ):
        done = asked.run("topics", *flags)
        assert (done.returncode, word in done.stderr) == (2, True), done.stderr


def test_a_gateway_that_does_not_answer_is_named_with_its_cause(asked: Asked) -> None:
    command = [*TIERSTATE, "topics", "--config", str(asked.guarded.house.config), "--gateway", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "127.0.0.1:1" in done.stderr
    assert "refused" in done.stderr
