"""The agent as a service: it ends within ten seconds of SIGTERM whatever it does, and reports its state."""

from __future__ import annotations

import json
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from confluent_kafka.admin import AdminClient
from moto.server import ThreadedMotoServer

from tests.scenarios.house import House, Running, eventually, get, run
from tests.servers.frozen_broker import freeze, thaw
from tests.storage.faulty_proxy import FaultyProxy
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
SECONDS = 10.0
"""The time that an operator, a unit file and a container engine give it."""
ABANDONED = "services did not stop and are abandoned"
BUCKET = "service"


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    yield from opened(kafka, tmp_path, request.node.name)


@pytest.fixture
def house_own(kafka_own: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    """A house with a broker of its own that may be frozen and killed."""
    yield from opened(kafka_own, tmp_path, request.node.name)


def opened(kafka: KafkaSandbox, folder: Path, test: str) -> Iterator[House]:
    name = "".join(letter if letter.isalnum() else "-" for letter in test.removeprefix("test_"))[-50:].strip("-")
    house = House(kafka, folder / "house", name)
    try:
        house.run("init")
        yield house
    finally:
        house.close()


def address(agent: Running) -> str:
    return f"http://{agent.says('agent ready')['management']}"


def becomes_ready(agent: Running) -> None:
    """Wait until the agent is ready. Fails the test with the last answer of `/readyz`."""
    answers = [(0, b"")]

    def ready() -> bool:
        answers[0] = get(f"{address(agent)}/readyz")
        return answers[0][0] == 200

    try:
        eventually(ready)
    except AssertionError as error:
        raise AssertionError(f"it does not become ready: {answers[0]}") from error


def value(agent: Running, name: str) -> float:
    """Return the sum of a metric's samples."""
    lines = [line for line in agent.metrics().splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_an_agent_that_waits_for_its_quota_stops_and_leaves_nothing_half_copied(house: House) -> None:
    topic = house.create("t")
    house.append(topic, 3_000)
    agent = house.start("agent", "--set", "copy.quota=20000", "--set", "format.compression=none")
    agent.says("agent ready")
    eventually(lambda: value(agent, "tierstate_copy_quota_waited_seconds_total") > 0)
    assert agent.stop(seconds=SECONDS) == 0
    assert not agent.events(ABANDONED)
    assert len(house.manifests()) * 3 == len(house.objects()), "a part of a segment is left"
    with house.agent():
        eventually(lambda: len(house.logs(topic)) == 1)
    assert house.holds(topic, 3_000)


class Bucket:
    """An S3 store that can be made to leave some requests unanswered; `urls` has the waiting ones."""

    def __init__(self, upstream: str) -> None:
        self.silent: Callable[[str, str], bool] = lambda method, path: False
        self.waiting: list[str] = []
        self._over = threading.Event()
        self.proxy = FaultyProxy(upstream)
        self.proxy.fault = self._fault

    def _fault(self, method: str, path: str) -> None:
        if self.silent(method, path):
            self.waiting.append(path)
            self._over.wait(120)

    @property
    def flags(self) -> list[str]:
        place = ["--store", f"s3://{BUCKET}/some", "--set", f"store.endpoint={self.proxy.endpoint}"]
        return [*place, "--set", "store.region=us-east-1", "--set", "store.path_style=true"]

    def close(self) -> None:
        self._over.set()
        self.proxy.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    made = Bucket(f"http://{host}:{port}")
    yield made
    made.close()
    client.close()
    server.stop()


@pytest.mark.parametrize(
    "part", [".log", *(pytest.param(each, marks=pytest.mark.slow) for each in (".rsm-manifest", "/checkpoint/"))]
)
def test_an_agent_whose_store_never_answers_stops_and_the_next_one_goes_on(
    house: House, bucket: Bucket, part: str
) -> None:
    """The store hangs while a log is uploaded, a manifest is written, or a checkpoint is."""
    topic = house.create("t")
    house.append(topic, 2_000)
    bucket.silent = lambda method, path: method == "PUT" and part in path
    agent = house.start("agent", *bucket.flags)
    agent.says("agent ready")
    eventually(lambda: bucket.waiting)
    assert agent.stop(seconds=SECONDS) == 0
    assert agent.events(ABANDONED)
    bucket.silent = lambda method, path: False
    again = house.start("agent", *bucket.flags)
    again.says("agent ready")
    eventually(lambda: len(house.logs(topic)) == 1)
    assert again.stop(seconds=SECONDS) == 0
    assert not again.events(ABANDONED)


def test_an_agent_whose_broker_froze_stops(house_own: House) -> None:
    """Metadata, a listing of groups, an append: no request gets an answer."""
    topic = house_own.create("t")
    house_own.append(topic, 2_000)
    agent = house_own.start("agent")
    eventually(lambda: len(house_own.logs(topic)) == 1)
    freeze(house_own.kafka, 0)
    try:
        eventually(lambda: get(f"{address(agent)}/readyz")[0] == 503)
        assert agent.stop(seconds=SECONDS) == 0
    finally:
        thaw(house_own.kafka, 0)


def test_a_gateway_stops_as_fast(house: House) -> None:
    gateway, url = house.gateway()
    assert get(f"{url}/v1/topics")[0] == 200
    assert gateway.stop(seconds=SECONDS) == 0
    assert not gateway.events(ABANDONED)


def test_an_interrupted_agent_has_its_own_exit_code(house: House) -> None:
    agent = house.start("agent")
    agent.says("agent ready")
    assert agent.stop(signal.SIGINT, seconds=SECONDS) == 130


# --- how it is -------------------------------------------------------------------------------------------------------


def test_a_store_that_is_away_makes_an_agent_not_ready_and_not_unhealthy(house: House) -> None:
    with house.agent() as agent:
        becomes_ready(agent)
        away = house.store.rename(house.folder / "away")
        answer = eventually(lambda: refused(agent, "the object store is away"))
        assert "gone, not mounted" in answer
        assert get(f"{address(agent)}/healthz") == (200, b"healthy\n")
        away.rename(house.store)
        becomes_ready(agent)


def test_an_agent_that_starts_while_the_store_is_away_waits_for_it_and_makes_no_other(house: House) -> None:
    away = house.store.rename(house.folder / "away")
    with house.agent() as agent:
        assert eventually(lambda: refused(agent, "the object store is away"))
        assert not house.store.exists()
        away.rename(house.store)
        becomes_ready(agent)


def refused(agent: Running, reason: str) -> str | None:
    status, body = get(f"{address(agent)}/readyz")
    return body.decode() if status == 503 and reason in body.decode() else None


@pytest.mark.slow
def test_a_tier_state_topic_that_is_away_makes_an_agent_not_ready_and_not_unhealthy(house_own: House) -> None:
    with house_own.agent() as agent:
        becomes_ready(agent)
        house_own.kafka.kill(0)
        try:
            eventually(lambda: refused(agent, "the tier-state topic is away"))
            assert get(f"{address(agent)}/healthz")[0] == 200
            assert value(agent, "tierstate_view_age_seconds") > 0
        finally:
            house_own.kafka.start(0)
        becomes_ready(agent)


# --- a disk without room ---------------------------------------------------------------------------------------------

ROOM = 16 * 1024
"""The largest size of a file: less than the view writes about the segments that come."""


@pytest.mark.slow
def test_a_state_folder_without_room_stops_all_decisions_and_is_reported(house: House, bucket: Bucket) -> None:
    topic = house.create("t")
    house.append(topic, 1_500)
    agent = house.start("agent", *bucket.flags)
    agent.says("agent ready")
    eventually(lambda: len(house.logs(topic)) == 1)
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
    house.append(topic, 30_000, first=1_500)
    answer = eventually(lambda: refused(agent, "the view makes no progress"), 90)
    assert "no room left" in answer
    assert get(f"{address(agent)}/healthz")[0] == 200, "a restart would not help"
    kept = len(house.logs(topic))
    assert kept > 1
    assert agent.stop(seconds=SECONDS) == 0

    full = house.start("agent", *bucket.flags, file_bytes=1024)
    assert full.process.wait(60) == 3, full.err.read_text()
    assert "no room" in full.err.read_text()
    assert len(house.logs(topic)) == kept, "something was trimmed"

    again = house.start("agent", *bucket.flags)
    eventually(lambda: len(house.logs(topic)) == 1, 90)
    assert again.stop(seconds=SECONDS) == 0
    read = house.run("digest", topic, *bucket.flags, "--json")
    assert json.loads(read.stdout)["partitions"][0]["records"] == 31_500


# --- what it says ----------------------------------------------------------------------------------------------------


def test_no_secret_of_the_settings_is_ever_printed_even_when_debugging(
    house: House, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERSTATE_DEBUG", "1")
    secrets = {"HUSH_KAFKA": "hush-of-kafka", "HUSH_STORE": "hush-of-the-store"}
    for name, secret in secrets.items():
        monkeypatch.setenv(name, secret)
    text = house.config.read_text().replace("[store]", '[store]\nsecret_access_key = { env = "HUSH_STORE" }')
    house.config.write_text(text.replace("[kafka]", '[kafka]\n"sasl.password" = { env = "HUSH_KAFKA" }'))
    flags = [*bucket.flags, "--set", "store.access_key_id=test"]
    topic = house.create("t")
    house.append(topic, 1_500)
    agent = house.start("agent", *flags)
    eventually(lambda: len(house.logs(topic)) == 1)
    assert agent.events("facts applied"), "it does not debug"
    assert agent.stop(seconds=SECONDS) == 0

    refused_by_kafka = '"security.protocol" = "SASL_PLAINTEXT"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "app"\n'
    refused_by_kafka += '"debug" = "all"\n"sasl.password" = { env = "HUSH_KAFKA" }'
    house.config.write_text(text.replace("[kafka]", f"[kafka]\n{refused_by_kafka}"))
    failed = house.start("agent", *flags)
    assert failed.process.wait(90) == 5
    sentence = "".join(each.read_text() for running in (agent, failed) for each in (running.out, running.err))
    assert not [secret for secret in secrets.values() if secret in sentence]


def test_a_pause_reaches_an_agent_that_reigns_at_once(house: House) -> None:
    """The order is in the view that the agent tails: no captured end is waited for."""
    topic = house.create("t")
    house.append(topic, 1_500)
    with house.agent() as agent:
        eventually(lambda: len(house.logs(topic)) == 1)
        house.run("pause", topic)
        status = f"{address(agent)}/v1/status/{topic}/0"
        eventually(lambda: "pause" in str(json.loads(get(status)[1])["not_copied"]), 10)
        house.run("resume", topic)
        eventually(lambda: "pause" not in str(json.loads(get(status)[1])["not_copied"]), 10)


@pytest.mark.essential
def test_a_supervisor_hears_that_the_agent_runs_and_that_nothing_hangs(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with house.agent() as agent:
            assert [supervisor.recv(100), supervisor.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
            assert 'tierstate_hung_threads{loop="start"} 0.0' in agent.metrics()
            assert get(f"{address(agent)}/healthz") == (200, b"healthy\n")


@pytest.mark.slow
def test_agent_and_gateway_end_when_another_tier_state_topic_has_the_name(house: House) -> None:
    agent = house.start("agent")
    agent.says("agent ready")
    gateway, _ = house.gateway()
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    admin.delete_topics([house.tier_topic], operation_timeout=30)[house.tier_topic].result(30)
    eventually(lambda: run("init", "--config", str(house.config)).returncode == 0)
    eventually(lambda: None not in (agent.process.poll(), gateway.process.poll()), 60.0)
    for each in (agent, gateway):
        assert each.process.returncode == 5
        assert "re-created" in each.err.read_text()


def test_recover_looks_for_agents_at_the_brokers_if_no_archive_names_them(house: House) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"management.listen=127.0.0.1:{free.getsockname()[1]}"
    fresh = ("--set", f"tier_state.topic={house.tier_topic}-fresh", "--set", listen)
    house.append(house.create("t"), 2_000)
    house.run("agent", "--once", "--set", "archive.partial_after=1h")
    house.run("init", *fresh)
    assert "--agents-are-stopped" in house.run("recover", "--execute", *fresh, code=2).stderr
    with house.agent("--set", listen):
        refused = house.run("recover", "--execute", "--agents-are-stopped", *fresh, code=5).stderr
        assert "an agent still runs" in refused
    house.run("recover", "--execute", "--agents-are-stopped", *fresh)


def test_describe_asks_an_agent_where_it_says_that_others_reach_it(house: House) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    everywhere = ("--set", f"management.listen=0.0.0.0:{port}")
    topic = house.create("t")
    house.append(topic, 2_000)
    assert "management.advertised" in house.run("agent", "--once", *everywhere, code=2).stderr
    with house.agent(*everywhere, "--set", f"management.advertised=127.0.0.1:{port}"):
        eventually(lambda: isinstance(house.json("describe", topic)[0]["agent"], dict))
    elected = [each for each in house.lines("facts", topic) if each["fact"] == "LeaderElected"]
    assert {each["management_address"] for each in elected} == {f"127.0.0.1:{port}"}


def test_describe_says_as_check_does_how_the_agent_proves_objects_before_a_trim(house: House) -> None:
    """This store, a folder, has no checksums of its own."""
    topic = house.create("t")
    house.append(topic, 2_000)
    with house.agent():
        eventually(lambda: "  trim.proof    read\n" in house.run("describe", topic).stdout)
        assert house.json("describe", topic)[0]["agent"]["trim_proof"] == "read"


def test_an_agent_is_asked_by_the_names_that_its_settings_give_it(house: House) -> None:
    with house.agent("--set", "management.hosts=tier.example") as agent:
        url = f"http://{agent.says('agent ready')['management']}/metrics"
        for host, status in (("tier.example:9404", 200), ("other.example", 421)):
            assert httpx.get(url, headers={"host": host}).status_code == status


def test_describe_says_that_an_object_is_lost_and_ends_with_4(house: House) -> None:
    topic = house.create("t")
    house.append(topic, 2_000)
    with house.agent("--set", "sweep.grace=1s") as agent:
        eventually(lambda: house.manifests(topic))
        house.manifests(topic)[0].with_suffix(".indexes").unlink()
        eventually(lambda: f'tierstate_missing_objects{{partition="0",topic="{topic}"}} 1.0' in agent.metrics())
        described = house.run("describe", topic, code=4)
        assert "MISSING  1 object of readable segments" in described.stdout
        # the agent publishes what it found before its next pass decides what is trimmed
        eventually(lambda: house.json("describe", topic, code=4)[0]["agent"]["not_trimmed_reason"] == "objects-missing")
