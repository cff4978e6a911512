"""The command line and Python read from a gateway what their Kafka user is allowed to read."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests.api.guarded_gateway import BINDINGS, Guarded, flags
from tests.broker.guarded import PASSWORDS
from tests.scenarios import forked
from tests.scenarios.bound_topics import RECORDS
from tests.scenarios.house import TIERSTATE
from tierstate import connect
from tierstate.state.errors import AccessDenied

pytestmark = pytest.mark.kafka


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
    for login, word in (
        (("--user", "guest"), "TIERSTATE_PASSWORD"),
        (("--user", "guest", "--token-file", str(asked.token)), "not both"),
        (("--token-file", str(tmp_path / "none")), "cannot be read"),
        (("--token-file", str(tmp_path / "empty")), "no token"),
    ):
        done = asked.run("topics", *login)
        assert (done.returncode, word in done.stderr) == (2, True), done.stderr


def test_a_gateway_that_does_not_answer_is_named_with_its_cause(asked: Asked) -> None:
    command = [*TIERSTATE, "topics", "--config", str(asked.guarded.house.config), "--gateway", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "127.0.0.1:1" in done.stderr
    assert "refused" in done.stderr
