"""SIGKILL while a checkpoint is written, and while a view is rebuilt from one: none is ever half there.

`test_killed.py` proves that views come back right. Here, in addition, every object that a killed process left is read
to its last byte, and no start may fall back to a replay because of one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.follower.file_topic import PARTITIONS, identity_of, objects_of
from tests.follower.test_killed import ROOT, Round
from tests.twins.manual_clock import ManualClock
from tierstate.follower.checkpoint import CheckpointSeed, read_checkpoint
from tierstate.follower.digests import live_set_digest
from tierstate.follower.following import Following
from tierstate.follower.live_set_object import apply_table, fetch_table
from tierstate.follower.object_names import PositionName, TierPlace
from tierstate.follower.open import open_view
from tierstate.follower.time_travel import Target, replay_topic
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import TierstateError
from tierstate.state.objects import TEMPORARY_FOLDER
from tierstate.state.offsets import Position
from tierstate.state.view import MemoryView, ViewStore

NOW = SystemClock().now_ms()
MOST_KIB = 64
"""The size of a few checkpoints of these topics."""


class Written:
    """Rounds of killed processes over one topic."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.round = Round(folder, seed)
        self.state = self.round.state
        self.seen: set[PositionName] = set()

    def names(self, number: int) -> list[PositionName]:
        place = TierPlace(self.round.topic.topic_id, number)
        return place.checkpoints(objects_of(self.state))

    def check(self, number: int, name: PositionName) -> None:
        """Check that a checkpoint is whole, and equal to the live set of the topic at its position."""
        topic, objects, folder = self.round.topic, objects_of(self.state), Path(mkdtemp(dir=self.state))
        stored, replayed = MemoryView(decode_fact, PARTITIONS), MemoryView(decode_fact, PARTITIONS)
        header, start = read_checkpoint(Shelf(objects, identity_of(topic), number), name, topic.end(number), NOW)
        apply_table(fetch_table(objects, name.key, header, start, folder), stored, folder)
        replay_topic(topic, number, replayed, NOW, Target(name.position))
        assert list(stored.entries()) == list(replayed.entries())
        assert live_set_digest(stored.entries()).hexdigest() == header.live_set_digest
        shutil.rmtree(folder)

    def start(self) -> None:
        """Start a new view from the newest checkpoint of each partition, and check that it is right."""
        used: dict[int, Position] = {}
        topic = self.round.topic

        def refused(key: str, error: TierstateError) -> None:
            raise AssertionError(f"{key}: {error}")

        newest_of = CheckpointSeed(topic, objects_of(self.state), identity_of(topic), ManualClock(NOW), refused)

        def seed(store: ViewStore, number: int, end: Position) -> None:
            header = newest_of(store, number, end)
            if header is not None:
                used[number] = header.position

        fresh = Path(mkdtemp(dir=self.state))
        view = open_view(topic, "cluster", SystemClock(), Following(tail=False, seed=seed), state_dir=fresh)
        assert self.round.digests(view) == self.round.truth()
        newest = {number: names[-1].position for number in range(PARTITIONS) if (names := self.names(number))}
        assert used == newest
        shutil.rmtree(fresh)

    def run(self, number: int) -> None:
        """Kill a process at any time, while a checkpoint is being put, or while a view is rebuilt from one, in turn."""
        self.round.speak()
        kind = ("soon", "putting", "seeded")[number % 3]
        if kind == "seeded":
            shutil.rmtree(self.state / "view", ignore_errors=True)
            assert self.round.kill_one("seeded")
            assert self.round.restarted() == self.round.truth()
        elif kind == "soon":
            assert self.round.kill_one("checkpoint")
        else:
            self.kill_while_it_puts(1 if number == 1 else self.round.rnd.randint(1, MOST_KIB))
        self.round.topic.refresh()
        for left in self.state.glob("tmp*"):
            shutil.rmtree(left)
        for at in range(PARTITIONS):
            for name in {*self.names(at)} - self.seen:
                self.check(at, name)
                self.seen.add(name)
        self.start()

    def kill_while_it_puts(self, kilobytes: int) -> None:
        """Kill it once it has put so many: a part of a checkpoint is in the store's folder for unfinished objects."""
        command = [sys.executable, "-m", "tests.follower.file_topic", "putting", str(self.round.file), str(self.state)]
        with subprocess.Popen([*command, str(kilobytes)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert "standing\n" in process.stdout, "it ended before it was killed"
            finally:
                process.kill()
        begun = (self.state / "objects" / TEMPORARY_FOLDER).iterdir()
        assert any(file.is_file() for file in begun)


@pytest.mark.extended
def test_a_checkpoint_is_there_whole_or_not_at_all_when_its_writer_is_killed(tmp_path: Path) -> None:
    written = Written(tmp_path, seed=1)
    for number in range(6):
        written.run(number)
    assert written.seen


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills_leave_only_whole_checkpoints(tmp_path: Path) -> None:
    for nth in range(20):
        (tmp_path / str(nth)).mkdir()
        written = Written(tmp_path / str(nth), seed=nth)
        for number in range(10):
            written.run(number)
        assert written.seen
