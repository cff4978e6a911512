"""A view whose disk is full at any write raises DiskFull and nothing else, and is whole again once there is room."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.follower.file_topic import PARTITIONS, FileTopic
from tests.follower.said import attempt, elected, finished, log_start, partition
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import Fact, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.keys import key_of, tier_partition_of

AT_EVERY_WRITE = """
import json, resource, sys
from pathlib import Path
from tests.follower.file_topic import FileTopic, PARTITIONS
from tierstate.follower.digests import digests_of
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tests.twins.manual_clock import ManualClock
from tierstate.state.errors import DiskFull

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def follow(folder, use):
    follower = open_view(topic, "cluster", ManualClock(), Following(tail=False), state_dir=folder)
    try:
        for number in range(PARTITIONS):
            follower.require_fresh(number, 0)
        return use(follower)
    finally:
        follower.close()

def said(follower):
    return digests_of(follower.store).live_set, len(list(follower.store.entries()))

topic, results = FileTopic(Path(sys.argv[1])), []
for at, size in enumerate(json.loads(sys.argv[3])):
    folder = Path(sys.argv[2]) / str(at)
    room(size)
    try:
        follow(folder, lambda follower: None)
        full = False
    except DiskFull:
        full = True
    finally:
        room(resource.RLIM_INFINITY)
    results.append((full, *follow(folder, said)))
print(json.dumps(results))
"""


@pytest.mark.extended
def test_a_full_disk_at_any_write_is_reported_and_the_view_is_whole_once_there_is_room(tmp_path: Path) -> None:
    topic = FileTopic(tmp_path / "topic")
    leader = elected(0, 3, 1)
    facts: list[Fact] = [leader, log_start(0, 0, leader, 0)]
    for base in range(0, 8_000, 100):
        copy = attempt(0, base, leader, 0)
        facts += [SegmentCopyStarted(copy), SegmentCopyFinished(finished(copy))]
    number = tier_partition_of(partition(0), PARTITIONS)
    topic.say([(number, key_of(fact), encode_fact(fact)) for fact in facts])
    sizes = [0, *range(1, 200, 50), *range(200, 4_000, 1_000), *range(4_000, 96_000, 8_000), 10_000_000]
    code = [sys.executable, "-c", AT_EVERY_WRITE, str(tmp_path / "topic"), str(tmp_path / "views"), json.dumps(sizes)]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [full for full, _, _ in results].count(True) > 10
    assert results[-1] == [False, results[-1][1], len(facts)], "there was room from the start"
    assert {tuple(state) for _, *state in results} == {tuple(results[-1][1:])}


READS_GO_ON = """
import resource, signal, sys, threading
from pathlib import Path
from tierstate.follower.rocksdb import Database
from tierstate.state.errors import DiskFull

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def write(number):
    batch = database.batch()
    batch.put("live", b"%05d" % number, b"x" * 1_000)
    database.write(batch)

def refused():
    try:
        write(90_000)
    except DiskFull:
        return True
    return False

def reader():
    try:
        while not done.is_set():
            assert database.get("live", b"00003") == b"x" * 1_000
            assert len(list(database.scan("live", b"0000"))) == 10
            counted.append(1)
    except BaseException as error:
        problems.append(repr(error))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
database = Database(Path(sys.argv[1]), ("live", "meta"), create=True)
for number in range(10):
    write(number)
done, counted, problems = threading.Event(), [], []
thread = threading.Thread(target=reader, daemon=True)
thread.start()
for cycle in range(3):
    scan = database.scan("live", b"")
    next(scan)
    room(1_024)
    assert all([refused() for _ in range(5)]), "an unfinished scan"
    assert len(list(scan)) == 9 + cycle
    assert all([refused() for _ in range(5)])
    room(resource.RLIM_INFINITY)
    while refused():  # a scan of the other thread has the lock
        pass
    write(10_000 + cycle)
    assert database.get("live", b"%05d" % (10_000 + cycle)) is not None
    batch = database.batch()
    batch.delete("live", b"90000")
    database.write(batch)
done.set()
thread.join()
database.close()
assert not problems and len(counted) > 10, (problems, len(counted))
database = Database(Path(sys.argv[1]), ("live", "meta"), create=False)
assert len(list(database.scan("live", b""))) == 13
"""


def test_reads_go_on_while_the_disk_is_full_and_writes_once_there_is_room(tmp_path: Path) -> None:
    code = [sys.executable, "-c", READS_GO_ON, str(tmp_path / "rocksdb")]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
