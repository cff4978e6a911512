"""Several commands that run alone, at once: one goes through, and the others name the process that does."""

from __future__ import annotations

import fcntl
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.scenarios.house import Done, House, eventually, run, side_by_side
from tierstate.app.opening.connection import Connection
from tierstate.app.operating.prefix_lock import locked
from tierstate.follower.object_names import LOCK
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings import Settings
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

RECORDS = 4_000
AT_ONCE = 3


class Copied:
    """A topic that is copied and trimmed; ``digests``: what a reader has of it. No agent runs."""

    def __init__(self, house: House) -> None:
        self.house = house
        house.run("init")
        self.topic = house.create("t")
        house.append(self.topic, RECORDS)
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(self.topic)) == 1)
        self.digests = house.digests(self.topic)

    @property
    def lock(self) -> Path:
        return self.house.store / LOCK

    def objects(self) -> set[str]:
        """The names of all objects, without the lock and what is being written: the lock is, now and then."""
        files = (each for each in self.house.store.rglob("*") if each.is_file() and each != self.lock)
        return {str(each) for each in files if ".tierstate-tmp" not in each.parts}

    def fresh(self, name: str) -> tuple[str, str]:
        """Create another, empty tier-state topic, where every fact is lost, and return its flag."""
        flag = ("--set", f"tier_state.topic={self.house.name}-{name}")
        self.house.run("init", *flag)
        return flag

    def is_in_order(self, *flags: str) -> bool:
        """Return whether readers get the same records. Fails on a GAP, CONTRADICTION or FACTS LOST (by exit codes)."""
        self.house.run("describe", self.topic, *flags)
        assert self.house.json("verify", self.topic, *flags)["findings"] == []
        return self.house.digests(self.topic, *flags) == self.digests


@pytest.fixture(scope="module")
def copied(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    house = House(kafka, tmp_path_factory.mktemp("at-once") / "house", "at-once")
    try:
        yield Copied(house)
    finally:
        house.close()


def at_once(house: House, *arguments: str) -> list[Done]:
    command = partial(run, "recover", *arguments, "--execute", "--config", str(house.config))
    return side_by_side([command] * AT_ONCE, AT_ONCE)


@pytest.mark.parametrize("way", ["whole", "named"])
def test_one_of_several_recoveries_goes_through(copied: Copied, way: str) -> None:
    fresh = copied.fresh(way)
    arguments = ("--agents-are-stopped",) if way == "whole" else (f"{copied.topic}:0",)
    done = at_once(copied.house, *arguments, *fresh)
    assert sum("1 of 1 partition written" in each.stdout for each in done if not already_done(each)) == 1
    for each in done:
        if each.returncode:
            assert each.returncode == 5
            assert "another command has the lock of this bucket prefix" in each.stderr
            assert re.search(r"holder=\S+@\S+, process \d+, tierstate recover since ", each.stderr)
            assert "an agent runs" not in each.stderr
    assert copied.is_in_order(*fresh)


def already_done(done: Done) -> bool:
    """A process that started when the first one had ended finds everything there."""
    return "already recovered" in done.stderr or "0 of 1 partition written" in done.stdout


@pytest.mark.parametrize("command", [("recover", "--begin-history"), ("keep-prefix",)], ids=" ".join)
def test_a_decision_about_the_prefix_waits_for_the_recovery_that_runs(copied: Copied, command: tuple[str, ...]) -> None:
    """It is refused before it looks at anything, for a recovery changes what it would decide about."""
    settings = Settings.model_validate({"prefix": {"heartbeat": 1.0}, "store": {"url": copied.house.store.as_uri()}})
    with closing(Connection(settings, SystemClock())) as connection:
        with locked(connection, "recover"):
            before = copied.objects()
            done = copied.house.run(*command, "--execute", "--set", "prefix.heartbeat=1s", code=5)
            assert copied.objects() == before
    assert "another command has the lock of this bucket prefix" in done.stderr
    assert re.search(r"holder=\S+@\S+, process \d+, tierstate recover since ", done.stderr)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_next_recovery_takes_over_from_one_that_died_or_hangs(copied: Copied, number: signal.Signals) -> None:
    """One that hangs and goes on later writes nothing more."""
    fresh, house = copied.fresh(number.name), copied.house
    before = copied.lock.read_bytes() if copied.lock.exists() else b""
    first = house.start("recover", "--execute", "--agents-are-stopped", *fresh)
    while not copied.lock.exists() or copied.lock.read_bytes() == before:
        assert first.process.poll() is None, first.err.read_text()
    with copied.lock.open("rb") as written:  # the store has it locked until its folder is on the disk
        fcntl.flock(written, fcntl.LOCK_SH)
        first.process.send_signal(number)
    house.run("recover", "--execute", "--agents-are-stopped", "--resume", *fresh)
    assert copied.is_in_order(*fresh)
    facts = house.run("facts", "--json", *fresh).stdout
    if number == signal.SIGSTOP:
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(60) == 5
        assert "another command has the lock of this bucket prefix" in first.err.read_text()
        assert house.run("facts", "--json", *fresh).stdout == facts
