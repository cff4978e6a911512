"""Every reading command against one partitioned topic that is half trimmed: their outputs fit together."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.scenarios.house import TIERSTATE, House, Running, eventually, get, opened_house, run, side_by_side
from tierstate.app.looking.partition_facts import silent
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

RECORDS = 2_500
SILENT = silent(1, "ADDRESS")
Digests = list[tuple[int, int, str]]


@dataclass
class Tiered:
    """Two partitions, copied and trimmed by an agent that has ended since. ``middle``: ms between the two halves."""

    house: House
    topic: str
    gateway: Running
    url: str
    before: Digests
    middle: int

    @property
    def local_start(self) -> int:
        return int(self.house.logs(self.topic)[0].stem)


@pytest.fixture(scope="module")
def tiered(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    house = House(kafka, tmp_path_factory.mktemp("commands") / "house", "commands")
    try:
        house.run("init")
        topic = house.create("t", partitions=2)
        house.append(topic, RECORDS // 2)
        middle = int(time.time() * 1000) + 1
        time.sleep(0.005)
        house.append(topic, RECORDS // 2, first=RECORDS // 2)
        house.append(topic, RECORDS, 1)
        before = house.digests(topic, "--via", "broker")
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(topic)) == len(house.logs(topic, 1)) == 1)
        gateway, url = house.gateway()
        yield Tiered(house, topic, gateway, url, before, middle)
    finally:
        house.close()


def at_once(house: House, *commands: tuple[str, ...]) -> list[str]:
    """Run the commands at once; return the stdout of each."""
    calls = [partial(house.run, *command) for command in commands]
    return [done.stdout for done in side_by_side(calls)]


@pytest.mark.essential
@pytest.mark.parametrize("via", ["consumer", "gateway"])
def test_digests_of_both_tiers_equal_the_brokers_before_the_trim(tiered: Tiered, via: str) -> None:
    assert tiered.before[0][1] == tiered.before[1][1] == RECORDS
    flags = ["--gateway", tiered.url] if via == "gateway" else ["--via", via]
    assert tiered.house.digests(tiered.topic, *flags) == tiered.before


@pytest.mark.essential
def test_consume_ranges_and_tiers_fit_together(tiered: Tiered) -> None:
    middle, local = RECORDS // 2, tiered.local_start
    assert 0 < local < RECORDS
    expected: dict[tuple[str, ...], Sequence[int]] = {
        ("--to", f"@{tiered.middle}"): range(middle),
        ("--from", f"@{tiered.middle}", "-n", "700"): range(middle, middle + 700),
        ("--from", "-3"): range(RECORDS - 3, RECORDS),
        ("--tier", "remote"): range(local),
        ("--tier", "local"): range(local, RECORDS),
        ("-n", "0"): (),
    }
    commands = [("consume", f"{tiered.topic}:0", "--format", "%o\\n", *flags) for flags in expected]
    for printed, (flags, offsets) in zip(at_once(tiered.house, *commands), expected.items(), strict=True):
        assert [int(line) for line in printed.split()] == list(offsets), flags


@pytest.mark.parametrize("command", ["consume", "describe", "digest", "verify"])
def test_the_name_of_a_partitions_folder_gets_a_hint_in_the_notation_of_commands(tiered: Tiered, command: str) -> None:
    output = tiered.house.run(command, f"{tiered.topic}-1", code=2).stderr
    assert f"(did you mean {tiered.topic}:1?)" in output


def test_a_topic_that_is_not_there_gets_no_hint(tiered: Tiered) -> None:
    assert "did you mean" not in tiered.house.run("consume", "orders", code=2).stderr
    through = tiered.house.run("consume", "orders-0", "--gateway", tiered.url, code=2).stderr
    assert "(did you mean orders:0?)" in through


def test_consume_through_a_gateway_reads_the_same_records(tiered: Tiered) -> None:
    topic = f"{tiered.topic}:1"
    command = ("consume", topic, "--json", "--from", "-900")
    direct, through = at_once(tiered.house, command, (*command, "--gateway", tiered.url))
    assert len(direct.splitlines()) == 900
    assert direct == through


def test_a_reader_that_leaves_ends_consume_quietly(tiered: Tiered) -> None:
    command = [*TIERSTATE, "consume", tiered.topic, "--config", str(tiered.house.config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()  # as `head -1` does
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_ctrl_c_ends_a_follower_with_130(tiered: Tiered) -> None:
    running = tiered.house.start("consume", f"{tiered.topic}:0", "--from", "-2", "--follow")
    eventually(lambda: len(running.out.read_text().splitlines()) == 2)
    tiered.house.append(tiered.topic, 1, 0, first=RECORDS)
    eventually(lambda: len(running.out.read_text().splitlines()) == 3)
    assert running.stop(signal.SIGINT) == 130
    assert "Traceback" not in running.err.read_text()


def test_json_is_one_document_or_one_object_a_line(tiered: Tiered) -> None:
    house, topic = tiered.house, tiered.topic
    commands = [("topics",), ("segments", f"{topic}:0"), ("describe", topic)]
    topics, segments, described = map(json.loads, at_once(house, *((*each, "--json") for each in commands)))
    mine = next(each for each in topics if each["topic"] == topic)
    assert (mine["partitions"], mine["partitions_in_trouble"]) == (2, 2), "its agent has ended"
    assert [each["state"] for each in segments] == ["COPY_SEGMENT_FINISHED"] * len(segments)
    assert mine["remote_segments"] == len(house.manifests()) > len(segments) > 0
    agents = [(each["partition"], re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", each["agent"])) for each in described]
    assert agents == [(0, SILENT), (1, SILENT)]
    assert described[0]["local_log_start_offset"] == tiered.local_start
    assert mine["remote_records"] == sum(each["local_log_start_offset"] for each in described)
    of_one, of_all = at_once(house, ("facts", f"{topic}:0", "--json"), ("facts", "--json"))
    facts = [json.loads(line) for line in of_one.splitlines()]
    kinds = [each["fact"] for each in facts]
    assert kinds.count("SegmentCopyFinished") == len(segments)
    assert {"LeaderElected", "LocalTrimIntended"} <= set(kinds)
    assert set(of_one.splitlines()) < set(of_all.splitlines())


@pytest.mark.parametrize("through", ["brokers", "gateway"])
def test_topics_and_status_count_the_partitions_of_a_silent_agent_alike(tiered: Tiered, through: str) -> None:
    flags = ["--gateway", tiered.url] if through == "gateway" else []

    def in_trouble(command: str) -> dict[str, int]:
        return {each["topic"]: each["partitions_in_trouble"] for each in tiered.house.json(command, *flags)}

    eventually(lambda: in_trouble("status")[tiered.topic] == 2)  # a gateway asks agents in the background
    assert in_trouble("topics") == in_trouble("status")


@pytest.mark.essential
def test_a_replayed_view_is_equal_until_a_fact_is_withheld(tiered: Tiered, tmp_path: Path) -> None:
    house = tiered.house
    whole = house.json("replay", "--out", str(tmp_path / "view"))
    assert house.json("replay") == whole
    assert len(whole["partitions"]) == 2
    key = next(each["key"] for each in house.lines("facts") if each["fact"] == "SegmentCopyFinished")
    house.run("replay", "--out", str(tmp_path / "damaged"), "--without", key)
    equal = house.json("diff", str(tmp_path / "view"), "topic")
    assert (equal["equal"], equal["digest_one"]) == (True, whole["live_set_digest"])
    differing = house.json("diff", str(tmp_path / "view"), str(tmp_path / "damaged"), code=1)
    assert [each["key"] for each in differing["differences"]] == [key]


def test_replay_to_a_position_is_the_view_of_that_time(tiered: Tiered) -> None:
    house, topic = tiered.house, f"{tiered.topic}:0"
    positions = sorted(each["position"] for each in house.lines("facts", topic))
    replay = ("replay", topic, "--json")
    calls = [(*replay, "--to-position", str(positions[2])), (*replay, "--to-position", str(positions[-1] + 1)), replay]
    early, late, now = map(json.loads, at_once(house, *calls))
    assert early["facts"] < late["facts"]
    assert late["live_set_digest"] == now["live_set_digest"]
    assert "name T:P" in house.run("replay", "--to-position", "1", code=2).stderr


def test_describe_says_of_an_agent_what_its_state_means(kafka: KafkaSandbox, tmp_path: Path) -> None:
    """The agent is stopped, and started again with nothing to do."""
    house = House(kafka, tmp_path / "house", "commands-agent")
    house.run("init")
    topic = house.create("t")
    house.append(topic, RECORDS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ("agent", "--set", f"management.listen={address}")
    agent = house.start(*command)
    eventually(lambda: len(house.logs(topic)) == 1)
    agent.stop()
    stopped = house.run("describe", topic).stdout
    assert "did not answer: it is stopped or cannot be reached; reads go on, copies and trims wait for it" in stopped
    agent = house.start(*command)
    idle = "not erased    no term is held now: the next copy, trim or expiry begins one, and erasing follows"
    eventually(lambda: idle in house.run("describe", topic).stdout)
    agent.stop()
    house.close()


def test_init_shows_then_creates_then_finds_it_and_check_agrees(kafka: KafkaSandbox, tmp_path: Path) -> None:
    house = House(kafka, tmp_path / "house", "commands-init")
    assert house.json("init", "--dry-run")["would_create"] is True
    assert "tierstate init" in house.run("topics", code=2).stderr
    checked = house.json("check", code=1)
    assert [each["check"] for each in checked if not each["ok"]] == ["object store", "tier-state topic"]
    assert house.json("init")["created"] is True
    assert house.json("init")["created"] is False
    assert house.json("init", "--dry-run")["would_create"] is False
    assert all(each["ok"] for each in house.json("check"))


def test_init_makes_no_empty_folder_in_the_place_of_a_store_that_agents_have_used(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    house = House(kafka, tmp_path / "house", "commands-away")
    house.run("init")
    house.append(topic := house.create("t"), 2_000)
    logged = [json.loads(line) for line in house.run("agent", "--once", "--json").stderr.splitlines()]
    (left,) = [line for line in logged if line["event"] == "left undone"]
    assert (left["partition"], bool(left["not_copied"]), bool(left["not_trimmed"])) == (f"{topic}-0", True, True)
    away = house.store.rename(house.store.with_name("not-mounted"))
    assert "gone, not mounted" in house.run("init", code=3).stderr
    checked = {each["check"]: each["state"] for each in house.json("check", code=1)}
    assert (checked["object store"], checked["facts"]) == ("wrong", "-")
    house.store.mkdir()  # the place where a disk is mounted
    assert "gone, not mounted" in house.run("init", code=3).stderr
    house.store.rmdir()
    away.rename(house.store)
    house.run("init")


def test_config_says_where_it_is_from_and_hides_secrets(tmp_path: Path) -> None:
    settings = tmp_path / "t.toml"
    (tmp_path / "password").write_text("hunter2")
    secret = f'{{ file = "{tmp_path / "password"}" }}'
    settings.write_text(f'[kafka]\n"sasl.password" = {secret}\n[copy]\nlag = "90s"\n')
    done = run("config", "--config", str(settings), "--json")
    shown = json.loads(done.stdout)
    assert "hunter2" not in done.stdout
    assert shown["copy.lag"] == {"value": "90s", "origin": str(settings)}
    assert "hidden" in shown["kafka.sasl.password"]["value"]


def test_services_end_on_sigterm_with_exit_code_0(tiered: Tiered, tmp_path: Path) -> None:
    agent = tiered.house.start("agent")
    agent.says("agent ready")
    assert agent.stop() == 0
    gateway, url = tiered.house.gateway("--set", f"state_dir={tmp_path}")
    assert get(url + "/v1/topics")[0] == 200
    assert gateway.stop() == 0


def test_a_sandbox_comes_up_answers_and_goes(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path / "sandbox"), "--json")
    try:
        up = json.loads(run("sandbox", "up", *where).stdout)
        status = json.loads(run("sandbox", "status", *where).stdout)
        assert status == up
        assert status["brokers"][0]["answers"] is True
    finally:
        down = run("sandbox", "down", *where)
    assert json.loads(down.stdout)["stopped"] is True
    assert run("sandbox", "status", *where).returncode == 3
    assert not (tmp_path / "sandbox").exists() or not list((tmp_path / "sandbox").iterdir())


def test_check_warns_of_patterns_without_topics_and_of_topics_that_are_never_tiered(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    with opened_house(kafka, tmp_path / "house", "commands-topics") as house:
        topics = ("--set", f'tiering.include=["{house.name}-.*", "no-such-topic"]')
        compacted = house.create("compacted", cleanup_policy="compact")
        house.create("orders")
        (row,) = [each for each in house.json("check", *topics) if each["check"] == "topics"]
        assert (row["ok"], row["state"]) == (True, "warning")
        assert row["detail"].startswith("1 topic is tiered; tiering.include 'no-such-topic' matches no topic; ")
        assert f"{compacted} is not tiered: compacted topic" in row["detail"]
