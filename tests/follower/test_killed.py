"""A real follower process is killed with SIGKILL at random points: the next process has the whole truth.

Rounds take turns: killed while it applies, while it rebuilds (the log was truncated), while it writes checkpoints.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.follower.file_topic import PARTITIONS, FileTopic, follow, objects_of
from tests.follower.said import attempt, elected, finished, log_start, partition
from tierstate.follower.digests import ViewDigests, digests_of
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import Fact, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.keys import key_of, tier_partition_of

USERS = 6
RECORDS = 400
LONGEST_S = 0.35
ROOT = Path(__file__).parents[2]


class Round:
    """One log, one state folder, and the processes that are killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.file, self.state = folder / "topic", folder / "state"
        self.state.mkdir()
        self.topic = FileTopic(self.file)
        self.live: list[tuple[int, str]] = []
        self.said = 0

    def speak(self) -> None:
        """Write facts of six partitions, and erase some of them again."""
        records: list[tuple[int, str, bytes | None]] = []
        for _ in range(RECORDS):
            self.said += 1
            if self.live and self.rnd.random() < 0.4:
                number, key = self.live.pop(self.rnd.randrange(len(self.live)))
                records.append((number, key, None))
                continue
            user = self.rnd.randrange(USERS)
            leader = elected(user, 1, user + 1)
            copy = attempt(user, 100 * (self.said // 2), leader, 0)
            kinds: list[Fact] = [
                leader,
                log_start(user, self.said, leader, 0, self.said),
                SegmentCopyStarted(copy),
                SegmentCopyFinished(finished(copy)),
            ]
            fact = self.rnd.choice(kinds)
            place = tier_partition_of(partition(user), PARTITIONS), key_of(fact)
            self.live.append(place)
            records.append((*place, encode_fact(fact)))
        self.topic.say(records)

    def truncate(self) -> None:
        for number in range(PARTITIONS):
            self.topic.truncate(number, max(0, self.topic.end(number) - self.rnd.randrange(1, 50)))

    def kill_one(self, mode: str) -> bool:
        """Run a process that does ``mode``, and kill it soon. Return whether it had begun."""
        command = [sys.executable, "-m", "tests.follower.file_topic", mode, str(self.file), str(self.state)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                begun = process.stdout.readline() == b"begin\n"
                SystemClock().sleep(self.rnd.uniform(0, LONGEST_S))
                assert process.poll() is None, "it ended before it was killed"
            finally:
                process.kill()
        return begun

    def truth(self) -> ViewDigests:
        return self.digests(open_view(self.topic, "cluster", SystemClock(), Following(tail=False)))

    def restarted(self) -> ViewDigests:
        return self.digests(follow(self.topic, self.state, tail=False))

    def from_checkpoints(self) -> ViewDigests:
        fresh = self.state / f"fresh-{self.said}"
        return self.digests(follow(self.topic, fresh, tail=False, objects=objects_of(self.state)))

    def digests(self, follower: Follower) -> ViewDigests:
        try:
            for number in range(PARTITIONS):
                follower.require_fresh(number, 0)
            return digests_of(follower.store)
        finally:
            follower.close()

    def run(self, number: int) -> None:
        kind = ("apply", "rebuild", "checkpoint")[number % 3]
        if kind == "rebuild":
            self.truncate()
        self.speak()
        assert self.kill_one("checkpoint" if kind == "checkpoint" else "follow")
        self.topic.refresh()
        truth = self.truth()
        assert self.restarted() == truth, f"round {number}, {kind}"
        if kind == "checkpoint":
            assert self.from_checkpoints() == truth, f"round {number}, {kind}"


@pytest.fixture
def killed(tmp_path: Path) -> Round:
    return Round(tmp_path, seed=1)


def test_a_follower_that_is_killed_now_and_then_loses_and_invents_nothing(killed: Round) -> None:
    for number in range(6):
        killed.run(number)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_follower_that_is_killed_two_hundred_times_loses_and_invents_nothing(tmp_path: Path) -> None:
    for nth in range(20):
        (tmp_path / str(nth)).mkdir()
        killed = Round(tmp_path / str(nth), seed=nth)
        for number in range(10):
            killed.run(number)
