"""A gateway of two workers, as in production: one dies, all restart, the following process stops, or is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.scenarios.house import House, Running, eventually, opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 100_000
"""Records of 120 bytes: as JSON more than sockets hold, so that an answer lasts as long as its reader likes."""


@dataclass
class Two:
    """A gateway of two workers."""

    running: Running
    url: str

    @property
    def management(self) -> str:
        return f"http://{self.running.said()['management']}"

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the live workers."""
        gone = [line["pid"] for line in self.running.events("worker ended")]
        return [pid for each in self.running.events("worker started") if (pid := each["pid"]) not in gone]

    def not_ready(self) -> str:
        answer = httpx.get(f"{self.management}/readyz", timeout=60)
        return "" if answer.status_code == 200 else answer.text

    def counted(self, name: str) -> float:
        text = httpx.get(f"{self.management}/metrics", timeout=60).text
        return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(rf"{name}(\{{|\s)", line))


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened_house(kafka, tmp_path_factory.mktemp("workers") / "house", "workers") as made:
        yield made


@pytest.fixture(scope="module")
def records(house: House) -> str:
    """Return the path of a topic's records in both tiers."""
    topic = house.create("orders", internal_segment_bytes="4000000")
    house.append(topic, RECORDS)
    with house.agent():
        eventually(lambda: len(house.logs(topic)) == 1)
    return f"/v1/topics/{topic}/partitions/0/records"


@pytest.fixture
def two(house: House, tmp_path: Path) -> Iterator[Two]:
    with begun(house, tmp_path) as made:
        yield made


@contextmanager
def begun(house: House, folder: Path) -> Iterator[Two]:
    running, url = house.gateway(
        "--workers", "2", "--set", f"state_dir={folder}/state", "--set", f"gateway.access_log={folder}/access"
    )
    made = Two(running, url)
    try:
        eventually(lambda: not made.not_ready())
        yield made
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


class Answer:
    """An answer of 10 MB, of which the reader has taken the beginning."""

    def __init__(self, url: str, path: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self.socket.settimeout(30)
        self.socket.connect((host, int(port)))
        query = f"{path}?offset=0&tier=remote&max_bytes=16000000"
        self.socket.sendall(f"GET {query} HTTP/1.1\r\nhost: {host}\r\naccept: application/x-ndjson\r\n\r\n".encode())
        head, _, body = self.socket.recv(4096).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        (size,) = re.findall(rb"content-length: (\d+)", head)
        self.missing = int(size) - len(body)
        assert self.missing > 7_000_000

    @property
    def worker(self) -> int:
        """Return the process at the other end."""
        port = f":{self.socket.getsockname()[1]:04X}"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        (inode,) = [line[9] for line in lines if line[2].endswith(port)]
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if os.readlink(link) == f"socket:[{inode}]":
                    return int(link.parts[2])
            except OSError:  # the process ended in between
                continue
        raise AssertionError("nobody has the other end")

    def rest(self) -> bool:
        """Return whether all of the answer came."""
        with self.socket:
            try:
                while part := self.socket.recv(1 << 20):
                    self.missing -= len(part)
            except ConnectionResetError:
                pass
            return self.missing == 0


def test_a_worker_that_is_killed_in_an_answer_cuts_it_and_nothing_else(two: Two, records: str) -> None:
    for _ in range(8):  # each on a connection of its own
        assert httpx.get(f"{two.url}{records}?offset=0&tier=remote", timeout=60).status_code == 200
    assert two.counted("tierstate_gateway_answers_total") == 8
    cut, other = Answer(two.url, records), httpx.Client(base_url=two.url, timeout=60)
    os.kill(cut.worker, signal.SIGKILL)
    assert not cut.rest()
    for _ in range(20):
        assert httpx.get(f"{two.url}{records}?offset=0&tier=remote", timeout=60).status_code == 200
    assert other.get(f"{records}?offset=0").status_code == 200
    eventually(lambda: len(two.running.events("worker started")) == 3)
    eventually(lambda: not two.not_ready())
    assert len(two.pids) == 2
    assert two.counted("tierstate_gateway_answers_total") >= 8 + 21, "what a worker counted went with it"
    other.close()


def test_a_worker_that_is_away_makes_the_gateway_not_ready_and_not_unhealthy(two: Two) -> None:
    os.kill(two.pids[0], signal.SIGSTOP)
    assert "worker 1: it does not answer" in two.not_ready()
    assert httpx.get(f"{two.management}/healthz", timeout=60).status_code == 200
    os.kill(two.pids[0], signal.SIGCONT)
    eventually(lambda: not two.not_ready())


def test_while_the_one_that_follows_stands_still_no_worker_answers_by_its_view(two: Two, records: str) -> None:
    urls = [f"{two.url}{records}?offset=0&tier=remote", f"{two.url}{records}?offset={RECORDS - 1}"]
    assert [httpx.get(each, timeout=60).status_code for each in urls] == [200, 200]
    os.kill(two.running.process.pid, signal.SIGSTOP)
    try:
        # a route of a second ago may be used again; then the view itself is asked for
        eventually(lambda: httpx.get(urls[0], timeout=60).status_code == 503)
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(partial(httpx.get, timeout=60), urls))
        for answer in answers:
            assert (answer.status_code, answer.json()["error_code"]) == (503, 50351)
            assert "does not answer" in answer.json()["message"]
    finally:
        os.kill(two.running.process.pid, signal.SIGCONT)
    eventually(lambda: [httpx.get(each, timeout=60).status_code for each in urls] == [200, 200])


def test_records_copied_while_workers_read_are_read_by_each_of_them(two: Two, house: House) -> None:
    topic = house.create("growing", internal_segment_bytes="20000")
    house.append(topic, 600)
    with ThreadPoolExecutor(8) as pool, house.agent():
        eventually(lambda: len(house.logs(topic)) == 1)
        remote = f"{two.url}/v1/topics/{topic}/partitions/0/records?offset=0&tier=remote"
        # each has a connection of its own: the free one of the two workers takes it
        eventually(
            lambda: {each.status_code for each in pool.map(partial(httpx.get, timeout=60), [remote] * 16)} == {200}
        )


def test_all_are_restarted_one_after_the_other_and_no_call_fails(two: Two, records: str) -> None:
    before, over = two.pids, threading.Event()
    statuses: list[Any] = []

    def go_on() -> None:
        while not over.is_set():
            try:
                statuses.append(httpx.get(f"{two.url}{records}?offset=0", timeout=60).status_code)
            except httpx.HTTPError as error:
                statuses.append(repr(error))

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(go_on) for _ in range(2)]
        two.running.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(two.running.events("worker started")) == 4 and not two.not_ready())
        over.set()
        for call in calls:
            call.result()
    assert set(statuses) == {200}
    assert two.counted("tierstate_gateway_answers_total") == len(statuses), "what they counted went with them"
    assert len(two.pids) == 2
    assert not set(two.pids) & set(before)


def test_an_answer_in_progress_is_finished_before_they_end(two: Two, records: str) -> None:
    answer, pids = Answer(two.url, records), two.pids
    two.running.process.send_signal(signal.SIGTERM)
    assert answer.rest()
    assert two.running.process.wait(60) == 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not two.running.events("services did not stop and are abandoned")


@pytest.mark.parametrize("which", ["working", "stopped"])
def test_no_worker_outlives_the_one_that_follows(two: Two, which: str) -> None:
    pids = two.pids
    if which == "stopped":
        os.kill(pids[0], signal.SIGSTOP)
    two.running.process.kill()
    two.running.process.wait()
    eventually(lambda: not any(lives(pid) for pid in pids))


def lives(pid: int) -> bool:
    """Return whether the process lives; a zombie counts as dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_look_at_the_metrics_tells_of_both_and_no_line_of_the_access_log_is_torn(
    two: Two, records: str, tmp_path: Path
) -> None:
    paths = [f"/v1/topics/{'x' * 40}/{'y' * 15_000}{number}" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda path: httpx.get(f"{two.url}{path}", timeout=60).status_code, paths))
    assert set(statuses) == {404}
    assert two.counted("tierstate_gateway_answers_total") == 200
    lines = [json.loads(line) for line in (tmp_path / "access").read_text().splitlines()]
    assert sorted(line["path"] for line in lines) == sorted(paths)


def test_each_worker_takes_its_share_of_waiting_connections(two: Two) -> None:
    """Forty connections came while both were busy: a worker that took all waiting ones would hold them as long as
    they are open."""
    for pid in two.pids:
        os.kill(pid, signal.SIGSTOP)
    host, port = two.url.removeprefix("http://").split(":")
    waiting = [socket.create_connection((host, int(port))) for _ in range(40)]
    for pid in two.pids:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: sum(accepted(two)) == 40)
    assert min(accepted(two)) > 15
    for each in waiting:
        each.close()


def accepted(two: Two) -> list[int]:
    """Return the number of connections of each worker."""
    links = [[os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()] for pid in two.pids]
    ours = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if at(line, two.url)}
    return [sum(link.removeprefix("socket:[").rstrip("]") in ours for link in each) for each in links]


def at(line: str, url: str) -> bool:
    """Return whether a line of /proc/net/tcp is a connection that was accepted at this port."""
    local, state = line.split()[1], line.split()[3]
    return state == "01" and int(local.partition(":")[2], 16) == int(url.rpartition(":")[2])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("gateway.access_log=/none/at/all", "gateway.access_log: cannot be written"),
        ("gateway.memory=20MiB", "gateway.memory: each of 2 workers needs 16 MiB"),
        ("gateway.tls.certificate=none.pem", "gateway.tls: certificate and key are needed together"),
    ],
)
def test_a_worker_that_cannot_begin_ends_the_command_with_its_reason(house: House, wrong: str, said: str) -> None:
    assert said in house.run("gateway", "--workers", "2", "--set", wrong, code=2).stderr
