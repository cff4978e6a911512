"""Common mistakes: each gets a clear line and its exit code, no stack trace, nothing that hangs, nothing lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import Done, House, get, run, side_by_side
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

CUT = 100
RECORDS = 300
COMMANDS = (
    ("init",),
    ("init", "--dry-run"),
    ("agent",),  # once: two agents of one broker refuse each other
    ("gateway",),
    ("topics",),
    ("describe", "t"),
    ("segments", "t:0"),
    ("pause", "t", "--dry-run"),
    ("delete-records", "t:0", "--before", "1"),
    ("digest", "t"),
    ("digest", "t", "--via", "broker"),
    ("consume", "t:0"),
    ("facts",),
    ("facts", "t"),
    ("replay",),
    ("diff", "topic", "topic"),
)


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(kafka, tmp_path_factory.mktemp("bad-input") / "house", "bad-input")
    made.run("init")
    yield made
    made.close()


@pytest.fixture(scope="module")
def topic(house: House) -> str:
    """Return a topic that is not copied yet; an operator has deleted its first records."""
    name = house.create("t")
    house.append(name, RECORDS)
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    place = TopicPartition(name, 0, CUT)
    admin.delete_records([place])[place].result(30)
    return name


@pytest.fixture
def nobody() -> Iterator[str]:
    """Yield an address where connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield an address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def called(*arguments: str, seconds: float = 30.0) -> Callable[[], Done]:
    return lambda: run(*arguments, seconds=seconds)


def test_every_command_says_within_seconds_that_a_broker_does_not_answer(house: House, nobody: str) -> None:
    where = ("--config", str(house.config), "--bootstrap-server", nobody)
    for command, done in zip(COMMANDS, side_by_side([called(*each, *where) for each in COMMANDS]), strict=True):
        assert done.returncode == 3, (command, done.stderr)
        assert done.stdout == "", command
        assert done.stderr.startswith("tierstate: "), command
        assert f"address={nobody}" in done.stderr, command
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_broker_that_is_silent_is_given_no_more_than_the_timeout(house: House, silent: str) -> None:
    where = ("--config", str(house.config), "--bootstrap-server", silent, "--timeout", "1500ms")
    commands = [("check",), ("topics",), ("consume", "t"), ("agent", "--once"), ("gateway",)]
    calls = [called(*each, *where, seconds=20) for each in commands]
    for command, done in zip(commands, side_by_side(calls, at_once=len(calls)), strict=True):
        assert (done.returncode, done.stderr) == (3, "tierstate: not done in time. seconds=1.5\n"), command


def test_a_silent_broker_is_named_without_a_timeout_too(house: House, silent: str) -> None:
    done = run("topics", "--config", str(house.config), "--bootstrap-server", silent, seconds=30)
    assert done.returncode == 3
    assert f"address={silent}" in done.stderr


def test_a_gateway_that_is_not_there_is_named(house: House, nobody: str, silent: str) -> None:
    dead, mute = side_by_side(
        [
            called("consume", "t", "--config", str(house.config), "--gateway", f"http://{nobody}"),
            called("digest", "t", "--via", "gateway", "--gateway", f"http://{silent}", "--timeout", "2s"),
        ]
    )
    assert dead.returncode == 3
    assert nobody in dead.stderr
    assert mute.returncode == 3


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://x", "write file://…, s3://…"),
        ("store", "write file://…, s3://…"),
        ("/var/store", "write file://…, s3://…"),
        ("file://host/x", "full path"),
        ("s3://", "the bucket is missing"),
        ("s3://key:secret@bucket", "credentials do not belong in a URL"),
        ("", "store.url: needed here and not set (--store URL)"),
    ],
)
def test_a_url_that_is_no_store_is_a_wrong_setting(house: House, url: str, reason: str) -> None:
    done = house.run("agent", "--set", f"store.url={url}", code=2)
    assert done.stderr.startswith("tierstate: settings are wrong:\n  store.url: ")
    assert reason in done.stderr
    assert "secret" not in done.stderr


def test_a_store_that_cannot_be_opened_ends_agent_and_gateway_with_its_reason(house: House, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    urls = {
        (tmp_path / "missing" / "store").as_uri(): "the parent of the store's folder does not exist",
        (tmp_path / "file").as_uri(): "the store's folder is not a folder",
        (tmp_path / "file" / "store").as_uri(): "does not exist",
    }
    commands = ("agent", "gateway")  # by turns: two agents of one broker refuse each other
    calls = [called(commands[at % 2], "--config", str(house.config), "--store", url) for at, url in enumerate(urls)]
    ended = [done for at in range(0, len(calls), 2) for done in side_by_side(calls[at : at + 2])]
    for (url, reason), done in zip(urls.items(), ended, strict=True):
        assert (done.returncode, done.stdout) == (2, ""), (url, done.stderr)
        assert reason in done.stderr, url
        assert url.removeprefix("file://") in done.stderr


def test_an_unknown_topic_or_partition_is_named(house: House, topic: str) -> None:
    commands = [
        (command, *where.split())
        for command in ("describe", "segments", "consume", "digest", "facts")
        for where in ("no-such-topic:0", f"{topic}:7")
    ]
    commands += [("digest", "no-such-topic", "--via", "broker"), ("replay", "no-such-topic")]
    calls = [called(*each, "--config", str(house.config)) for each in commands]
    for command, done in zip(commands, side_by_side(calls), strict=True):
        assert (done.returncode, done.stdout) == (2, ""), (command, done.stderr)
        assert "topic=no-such-topic" in done.stderr or f"partition={topic}-7" in done.stderr, (command, done.stderr)


def test_every_wrong_setting_is_reported_at_once_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('stor = 1\n[copy]\nlga = "1s"\n[trim]\ndelay = "soon"\n[agent]\nlog_dir = "x"\n')
    done = run("agent", "--config", str(tmp_path / "t.toml"))
    assert done.returncode == 2
    for hint in ("did you mean store?", "did you mean copy.lag?", "trim.delay: ", "did you mean agent.log_dirs?"):
        assert hint in done.stderr
    assert run("config", "--config", str(tmp_path / "missing.toml")).returncode == 2


def test_an_agent_needs_the_log_folders_of_a_broker_of_this_cluster(house: House, tmp_path: Path) -> None:
    text = (house.log_dir / "meta.properties").read_text().replace(house.kafka.cluster_id, "A" * 22)
    (tmp_path / "meta.properties").write_text(text)
    assert "agent.log_dirs: needed here" in house.run("agent", "--set", "agent.log_dirs=[]", code=2).stderr
    no_log_dir = f'agent.log_dirs=["{house.folder}"]'
    assert "not a log folder of a broker" in house.run("agent", "--set", no_log_dir, code=2).stderr
    other = house.run("agent", "--set", f'agent.log_dirs=["{tmp_path}"]', code=2).stderr
    assert "belong to another cluster" in other
    assert "A" * 22 in other
    assert house.kafka.cluster_id in other


def test_a_second_agent_beside_one_broker_is_refused(house: House, tmp_path: Path) -> None:
    with house.agent("--set", "tiering.include=[]"):
        done = house.run("agent", "--once", "--set", f'state_dir="{tmp_path}"', code=3)
    assert "another agent works beside this broker" in done.stderr


def test_a_tier_state_topic_that_is_missing_or_unsafe_is_refused(house: House) -> None:
    missing = house.run("agent", "--set", "tier_state.topic=_nowhere", code=2).stderr
    assert "_nowhere does not exist: tierstate init makes it, and if it was lost: " in missing
    unsafe = house.create("unsafe", partitions=2, cleanup_policy="delete")
    for command in ("init", "agent", "topics"):
        output = house.run(command, "--set", f"tier_state.topic={unsafe}", code=2).stderr
        assert "the tier-state topic is not safe to use" in output
        assert "cleanup.policy is delete, compact is wanted" in output
        assert "message.timestamp.type is CreateTime" in output


def test_check_tells_all_that_is_wrong_at_once(house: House, tmp_path: Path, nobody: str) -> None:
    nowhere = (tmp_path / "missing" / "store").as_uri()
    wrong = ("--store", nowhere, "--set", f'agent.log_dirs=["{tmp_path}"]', "--set", "tier_state.topic=_nowhere")
    rows = house.json("check", *wrong, code=1)
    assert {each["check"] for each in rows if not each["ok"]} == {"log folders", "object store", "tier-state topic"}
    alone = house.run("check", "--bootstrap-server", nobody, code=1)
    assert "wrong=broker,log folders,tier-state topic" in alone.stderr
    assert "object store      ok" in alone.stdout
    assert all(each["ok"] for each in house.json("check"))


def test_the_gateway_answers_every_wrong_call_with_a_code_and_the_valid_range(house: House, topic: str) -> None:
    running, url = house.gateway("--set", f"gateway.topics={house.name}-.*")
    records = f"/v1/topics/{topic}/partitions/0/records"
    for path, code in (
        (f"{records}?offset=-1", 40051),
        (f"{records}?offset=now", 40051),
        (f"{records}?offset={2**63}", 40051),
        (records, 40050),
        (f"{records}?offset={RECORDS + 1}", 41650),
        (f"{records}?offset={CUT - 1}", 41650),
        (f"{records}?offset={CUT}&tier=cold", 40051),
        (f"/v1/topics/{topic}/partitions/7/records?offset=0", 40402),
        ("/v1/topics/no-such-topic", 40401),
        (f"/v1/topics/{house.tier_topic}/partitions/0/records?offset=0", 40401),
        ("/v1/topics/..%2f..%2fetc%2fpasswd", 40450),
        ("/v1/topics/%2e%2e", 40050),
        ("/console/..%2f..%2fpyproject.toml", 40450),
        ("/../../etc/passwd", 40450),
    ):
        status, body = get(url + path)
        document = json.loads(body)
        assert (status, document["error_code"]) == (code // 100, code), (path, document)
        assert document["message"]
        assert b"Traceback" not in body
        if code == 41650:
            assert (document["valid_start"], document["valid_end"]) == (CUT, RECORDS)
    status, body = get(f"{url}{records}?offset={CUT}", accept="image/png")
    assert (status, json.loads(body)["error_code"] // 100) == (406, 406)
    assert get(f"{url}{records}?offset={CUT}")[0] == 200
    assert running.stop() == 0
    assert "Traceback" not in running.err.read_text()
