"""Secrets are changed while agents and gateways run: nothing restarts, no read fails, and a refused user is named.

docs/rotation.md describes the same steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import TopicPartition

from tests.broker.guarded import guarded_sandbox, self_signed, set_password
from tests.scenarios.house import House, Running, eventually, get, opened_house
from tests.servers.needs import needs
from tests.servers.store_programs import VERSITYGW, store_program
from tests.servers.store_server import StoreServer
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

RECORDS = 2_000
SESSION_MS = "15000"
"""Brokers end each session by then: every client has to log in again."""


@contextmanager
def reading(url: str) -> Iterator[list[str]]:
    """Read from a gateway without a pause; yields the failures, which must stay empty, after at least ten reads."""
    failed: list[str] = []
    count, stop = [0], threading.Event()

    def read() -> None:
        while not stop.is_set():
            status, body = get(url, "application/vnd.kafka.binary.v2+json")
            count[0] += 1
            if status != 200:
                failed.append(f"{status} {body[:300]!r}")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield failed
        before = count[0]
        eventually(lambda: count[0] > before + 10)
    finally:
        stop.set()
        thread.join(60)


def management(running: Running) -> str:
    """Return the address of the management port of a gateway, or of an agent."""
    lines = running.out.read_text().splitlines()
    return str(running.said()["management"] if lines else running.says("agent ready")["management"])


def asked(running: Running, path: str) -> tuple[int, str]:
    """Status and body of its management port. A busy machine may let it answer too late: then the status is 0."""
    try:
        status, body = get(f"http://{management(running)}{path}")
    except OSError as error:
        return 0, str(error)
    return status, body.decode()


def ready(running: Running) -> str:
    status, body = asked(running, "/readyz")
    return "" if status == 200 else body


def counted(running: Running) -> bool:
    body = asked(running, "/metrics")[1]
    return re.search(r"^tierstate_logins_refused_total\{.*\} [1-9]", body, re.MULTILINE) is not None


def named(running: Running, *words: str) -> bool:
    """Return whether it is named: in `/readyz`, in a metric, and in the log by one line for each server."""
    events_heard = running.events("login refused")
    if not (events_heard and counted(running)):
        return False
    servers = [(each["service"], each["server"], each["user"]) for each in events_heard if not each["again"]]
    back = len(running.events("login accepted"))
    assert len(servers) <= len(set(servers)) * (back + 1), events_heard
    return all(word in ready(running) and word.rpartition("=")[2] in str(events_heard) for word in words)


def records_url(gateway: str, topic: str, offset: int = 0) -> str:
    return f"{gateway}/v1/topics/{topic}/partitions/0/records?offset={offset}&max_bytes=20000"


# --- a password --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """A broker behind SASL_SSL at which no login lasts long."""
    more = {"scram-sha-256.connections_max_reauth_ms": SESSION_MS}
    with guarded_sandbox(tmp_path_factory.mktemp("tls"), **more) as sandbox:
        set_password(sandbox, "admin", b"first-password")
        yield sandbox


def by_scram(house: House) -> tuple[House, Path]:
    """Return the house with a SCRAM login, and the file with the password."""
    other = house.as_user("admin", "first-password")
    text = other.config.read_text().replace('"sasl.mechanisms" = "PLAIN"', '"sasl.mechanisms" = "SCRAM-SHA-256"')
    file = house.folder / "scram-password"
    text = re.sub(r'"sasl.password" = .*', f'"sasl.password" = {{ file = "{file}" }}', text)
    file.write_text("first-password")
    other.config = house.folder / "scram.toml"
    other.config.write_text(text)
    house.folder.joinpath("password-of-admin").write_text("a")  # the house's own, by PLAIN
    return other, file


def test_a_password_is_changed_and_a_wrong_one_is_named_until_corrected(scram: KafkaSandbox, tmp_path: Path) -> None:
    with opened_house(scram, tmp_path / "house", "scram") as house:
        topic = house.create("orders")
        house.append(topic, RECORDS)
        entered, file = by_scram(house)
        with entered.agent() as agent:
            eventually(lambda: len(house.logs(topic)) == 1)
            gateway, url = entered.gateway()
            eventually(lambda: not ready(gateway) and not ready(agent))
            with reading(records_url(url, topic)) as failed, reading(records_url(url, topic, RECORDS - 5)) as late:
                set_password(scram, "admin", b"second-password")
                file.write_text("second-password")
                time.sleep(2 * int(SESSION_MS) / 1000)
            assert not failed + late

            set_password(scram, "admin", b"third-password")
            server = scram.bootstrap
            eventually(lambda: named(agent, "user=admin", "SCRAM-SHA-256", server))
            eventually(lambda: named(gateway, "user=admin", "SCRAM-SHA-256", server))
            lacks = house.json("describe", f"{topic}:0")[0]["agent"]["rights_lacking"]
            assert any("the login at kafka fails" in each and "user=admin" in each for each in lacks), lacks

            house.append(topic, RECORDS, first=RECORDS)
            file.write_text("third-password")
            eventually(lambda: not ready(agent) and not ready(gateway))
            eventually(lambda: len(house.logs(topic)) == 1)
            assert house.holds(topic, 2 * RECORDS)
            status, _ = get(records_url(url, topic, 2 * RECORDS - 5), "application/vnd.kafka.binary.v2+json")
            assert status == 200
            text = agent.err.read_text() + gateway.err.read_text()
            assert not [each for each in ("first-password", "second-password", "third-password") if each in text]


def test_a_consumer_goes_on_with_the_password_that_it_is_given(scram: KafkaSandbox, tmp_path: Path) -> None:
    set_password(scram, "admin", b"first-password")
    with opened_house(scram, tmp_path / "house", "given") as house:
        topic = house.create("orders")
        house.append(topic, RECORDS)
        with house.agent():
            eventually(lambda: len(house.logs(topic)) == 1)
        config = scram.client_config | {"sasl.mechanisms": "SCRAM-SHA-256", "sasl.password": "first-password"}
        mine = {"group.id": "given", "tierstate.store.url": house.store.as_uri(), "log_level": 0}
        with closing(TieredConsumer({**config, **mine, "tierstate.tier_state.topic": house.tier_topic})) as consumer:

            def read(first: int, end: int) -> bool:
                """Read all of these, by a new assignment."""
                consumer.assign([TopicPartition(topic, 0, first)])
                offsets = list[int]()

                def more() -> bool:
                    offsets.extend(_offsets(consumer.consume(500, 1.0)))
                    return len(offsets) >= end - first

                eventually(more)
                return offsets == list(range(first, end))

            assert read(0, RECORDS)
            set_password(scram, "admin", b"given-password")
            consumer.set_sasl_credentials("admin", "given-password")
            time.sleep(2 * int(SESSION_MS) / 1000)
            house.append(topic, RECORDS, first=RECORDS)
            assert read(0, 2 * RECORDS)


def _offsets(messages: list[Any]) -> list[int]:
    assert not [each.error() for each in messages if each.error() and not each.error().retriable()]
    return [each.offset() for each in messages if each.error() is None]


# --- keys of S3 --------------------------------------------------------------------------------------------------


class Keys:
    """The accounts of one versitygw, and the folder from which a house takes its key."""

    def __init__(self, server: StoreServer, folder: Path) -> None:
        self._server, self._folder = server, folder

    def admin(self, *arguments: str) -> None:
        program = str(store_program(VERSITYGW))
        command = [program, "admin", "--access", "root", "--secret", "root-secret", "--endpoint-url", self._server.url]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def make(self, name: str) -> None:
        self.admin("create-user", "--access", name, "--secret", f"secret-of-{name}", "--role", "admin")

    def revoke(self, name: str) -> None:
        self.admin("delete-user", "--access", name)

    def use(self, name: str) -> None:
        """Replace both halves at one moment, as Kubernetes replaces a mounted secret: a link is moved."""
        halves = self._folder / f"of-{name}"
        halves.mkdir()
        (halves / "id").write_text(name)
        (halves / "secret").write_text(f"secret-of-{name}")
        link = self._folder / "next"
        link.symlink_to(halves)
        os.replace(link, self._folder / "current")


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[tuple[str, Keys]]:
    needs(VERSITYGW)

    def arguments(port: int, folder: Path) -> list[str]:
        for name in ("buckets", "iam"):
            (folder / name).mkdir(exist_ok=True)
        where = ["--port", f"127.0.0.1:{port}", "--iam-dir", str(folder / "iam"), "--iam-cache-disable"]
        return ["--quiet", "--keep-alive", *where, "posix", str(folder / "buckets")]

    secrets = {"ROOT_ACCESS_KEY": "root", "ROOT_SECRET_KEY": "root-secret"}
    (tmp_path / "keys").mkdir()
    with StoreServer(VERSITYGW, arguments, tmp_path / "versitygw", secrets) as server:
        root: Any = boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id="root",
            aws_secret_access_key="root-secret",
        )
        root.create_bucket(Bucket="tier")
        yield server.url, Keys(server, tmp_path / "keys")


def test_a_key_of_s3_is_changed_and_one_that_was_revoked_is_named_until_the_file_has_another(
    scram: KafkaSandbox, keys: tuple[str, Keys], tmp_path: Path
) -> None:
    endpoint, accounts = keys
    accounts.make("first")
    accounts.use("first")
    with opened_house(scram, tmp_path / "house", "keys") as house:
        folder = tmp_path / "keys" / "current"
        store = (
            f'[store]\nurl = "s3://tier"\nendpoint = "{endpoint}"\nregion = "us-east-1"\nmax_attempts = 2\n'
            f'access_key_id = {{ file = "{folder}/id" }}\nsecret_access_key = {{ file = "{folder}/secret" }}\n'
        )
        text = re.sub(r"\[store\]\nurl = .*\n", lambda _: store, house.config.read_text())
        house.config.write_text(text + "[cache]\nmemory = 0\n")
        topic = house.create("orders")
        house.append(topic, RECORDS)
        with house.agent() as agent:
            eventually(lambda: len(house.logs(topic)) == 1)
            gateway, url = house.gateway()
            eventually(lambda: not ready(gateway) and not ready(agent))
            ends = records_url(url, topic), records_url(url, topic, RECORDS // 2)  # two chunks: memory has room for one
            with reading(ends[0]) as failed, reading(ends[1]) as late:
                accounts.make("second")
                accounts.use("second")
                accounts.revoke("first")
            assert not failed + late

            accounts.revoke("second")
            eventually(lambda: named(agent, "second", "s3://tier"))
            house.append(topic, RECORDS, first=RECORDS)
            assert {get(each)[0] for each in ends} != {200}
            assert gateway.events("login refused")
            accounts.make("third")
            accounts.use("third")
            eventually(lambda: not ready(agent))
            eventually(lambda: len(house.logs(topic)) == 1)
            assert house.holds(topic, 2 * RECORDS)
            assert get(records_url(url, topic), "application/vnd.kafka.binary.v2+json")[0] == 200


# --- TLS to the brokers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certified:
    """A broker whose clients are identified by certificates, and the files of both ends, of three ages."""

    kafka: KafkaSandbox
    folder: Path

    def age(self, number: int) -> Path:
        return self.folder / f"age-{number}"

    def put(self, file: str, *sources: Path) -> None:
        """Replace a file in one step."""
        beside = self.folder / "beside"
        beside.write_bytes(b"".join(each.read_bytes() for each in sources))
        os.replace(beside, self.folder / file)


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[Certified]:
    folder = tmp_path / "tls"
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"age-{number}").mkdir()
        self_signed(folder / f"age-{number}", f"age-{number}")
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "trusted.pem"),
        "ssl.client.auth": "required",
    }
    client = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "own.pem"),
        "ssl.key.location": str(folder / "own.pem"),
    }
    made = Certified(KafkaSandbox(properties=properties, client=client), folder)
    made.put("broker.pem", made.age(1) / "broker.pem")
    made.put("own.pem", made.age(1) / "broker.pem")
    for file in ("trusted.pem", "ca.pem"):
        made.put(file, made.age(1) / "ca.pem", made.age(2) / "ca.pem")
    with made.kafka:
        yield made


def test_certificates_and_authorities_are_changed_on_both_ends(certified: Certified, tmp_path: Path) -> None:
    kafka = certified.kafka
    with opened_house(kafka, tmp_path / "house", "certified") as house:
        topic = house.create("orders")
        house.append(topic, RECORDS)
        with house.agent() as agent:
            eventually(lambda: len(house.logs(topic)) == 1)
            gateway, url = house.gateway()
            eventually(lambda: not ready(gateway) and not ready(agent))
            with reading(records_url(url, topic)) as failed, reading(records_url(url, topic, RECORDS - 5)) as late:
                certified.put("own.pem", certified.age(2) / "broker.pem")
            assert not failed + late

            kafka.stop(0)
            certified.put("broker.pem", certified.age(2) / "broker.pem")
            certified.put("trusted.pem", certified.age(2) / "ca.pem")
            certified.put("ca.pem", certified.age(2) / "ca.pem")
            kafka.start(0)
            house.append(topic, RECORDS, first=RECORDS)
            eventually(lambda: not ready(agent) and not ready(gateway))
            eventually(lambda: len(house.logs(topic)) == 1)
            assert house.holds(topic, 2 * RECORDS)

            certified.put("own.pem", certified.age(3) / "broker.pem")
            eventually(lambda: named(agent, "TLS", kafka.bootstrap, "own.pem"))
            certified.put("own.pem", certified.age(2) / "broker.pem")
            eventually(lambda: not ready(agent))
