"""A folder that was damaged, or is another's: a typed error from the view, a rebuild by the follower."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.follower.said import PARTITIONS, Topic, elected, identity, log_start, partition
from tests.twins.manual_clock import ManualClock
from tierstate.follower.digests import digests_of
from tierstate.follower.following import Following
from tierstate.follower.generations import ViewFolder
from tierstate.follower.open import open_view
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView, ViewIdentity
from tierstate.runtime.listener import Event, ViewRebuilt
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import CorruptData, Unavailable
from tierstate.state.keys import tier_partition_of
from tierstate.state.view import MemoryView

USERS = 40


@pytest.fixture
def full(said: Topic, tmp_path: Path) -> Topic:
    """Return a topic with a view on disk whose facts are in a table, not only in the write-ahead log."""
    for user in range(USERS):
        leader = elected(user, 1, user + 1)
        at = said.say(leader)
        for counter in range(50):
            said.say(log_start(user, counter, leader, at, counter))
    follower = open_view(said.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path)
    for number in range(PARTITIONS):
        follower.require_fresh(number, 0)
    follower.close()
    open_view(
        said.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path
    ).close()  # opening writes the table
    assert list(files(tmp_path, "*.sst"))
    return said


def files(state: Path, pattern: str) -> list[Path]:
    folder = ViewFolder(state / "view", identity()).current()
    assert folder is not None
    return sorted((folder / "rocksdb").glob(pattern), key=lambda file: file.stat().st_size)


def flip(file: Path, at: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * at)] ^= 0x40
    file.write_bytes(data)


def garbage(file: Path) -> None:
    file.write_bytes(b"nonsense\n")


def names(state: Path, pattern: str) -> Path:
    return files(state, pattern)[-1]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def upwards(file: Path) -> None:
    file.write_text("../..")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "table flipped at 0.1": lambda s: flip(names(s, "*.sst"), 0.1),
    "table flipped at 0.3": lambda s: flip(names(s, "*.sst"), 0.3),
    "table flipped at 0.5": lambda s: flip(names(s, "*.sst"), 0.5),
    "table flipped at 0.7": lambda s: flip(names(s, "*.sst"), 0.7),
    "table flipped at its end": lambda s: flip(names(s, "*.sst"), 0.99),
    "table cut": lambda s: cut(names(s, "*.sst")),
    "table gone": lambda s: names(s, "*.sst").unlink(),
    "manifest gone": lambda s: names(s, "MANIFEST-*").unlink(),
    "manifest flipped": lambda s: flip(names(s, "MANIFEST-*"), 0.5),
    "manifest empty": lambda s: empty(names(s, "MANIFEST-*")),
    "pointer gone": lambda s: names(s, "CURRENT").unlink(),
    "pointer nonsense": lambda s: garbage(names(s, "CURRENT")),
    "options nonsense": lambda s: garbage(names(s, "OPTIONS-*")),
    "log gone": lambda s: names(s, "*.log").unlink(),
    "all files gone": lambda s: shutil.rmtree(names(s, "*.sst").parent),
    "generation's pointer nonsense": lambda s: garbage(s / "view" / "CURRENT"),
    "generation's pointer empty": lambda s: empty(s / "view" / "CURRENT"),
    "generation's pointer upwards": lambda s: upwards(s / "view" / "CURRENT"),
}


@pytest.mark.extended
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_view_ends_up_equal_to_the_topic(full: Topic, tmp_path: Path, what: str) -> None:
    DAMAGE[what](tmp_path)
    follower = open_view(full.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path)
    oracle = open_view(full.topic, "cluster", ManualClock(), Following(tail=False))
    for view in (follower, oracle):
        for number in range(PARTITIONS):
            view.require_fresh(number, 0)
    for user in range(USERS):
        try:
            partition_view = follower.partition(partition(user))
        except Unavailable:  # found damaged just now
            follower.require_fresh(tier_partition_of(partition(user), PARTITIONS), 0)
            partition_view = follower.partition(partition(user))
        assert partition_view == oracle.partition(partition(user))
    assert digests_of(follower.store) == digests_of(oracle.store)
    follower.close()


@pytest.mark.parametrize("what", ["pointer gone", "all files gone", "manifest gone"])
def test_a_view_that_lost_everything_is_rebuilt_before_anybody_can_ask_it(
    full: Topic, tmp_path: Path, what: str
) -> None:
    DAMAGE[what](tmp_path)
    follower = open_view(full.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path)
    assert all(follower.partition(partition(user)).log_start == 49 for user in range(USERS))
    follower.close()


def test_a_scan_over_a_damaged_block_raises_instead_of_ending_early(full: Topic, tmp_path: Path) -> None:
    generation = ViewFolder(tmp_path / "view", identity()).current()
    assert generation is not None
    flip(names(tmp_path, "*.sst"), 0.3)
    with pytest.raises(CorruptData):
        list(RocksView(generation, identity(full.topic.topic_id), decode_fact, create=False).entries())


OTHERS = {
    "cluster": ViewIdentity("another", "AAAAAAAAAAAAAAAAAAAAAg", PARTITIONS),
    "topic": ViewIdentity("cluster", "AAAAAAAAAAAAAAAAAAAAAw", PARTITIONS),
    "mapping": ViewIdentity("cluster", "AAAAAAAAAAAAAAAAAAAAAg", PARTITIONS + 1),
    "format": ViewIdentity("cluster", "AAAAAAAAAAAAAAAAAAAAAg", PARTITIONS, format=1),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_view_of_something_else_is_rebuilt(said: Topic, tmp_path: Path, what: str) -> None:
    leader = elected(0, 1, 1)
    said.say(leader)
    folder = ViewFolder(tmp_path / "view", OTHERS[what])
    other = folder.fresh()
    folder.install(other)
    other.close()
    events: list[Event] = []
    follower = open_view(
        said.topic, "cluster", ManualClock(), Following(tail=False, listener=events.append), state_dir=tmp_path
    )
    assert "another tier-state topic" in next(event for event in events if isinstance(event, ViewRebuilt)).reason
    assert follower.partition(partition(0)).leader == leader
    follower.close()


def test_a_view_that_another_process_follows_into_is_neither_opened_nor_rebuilt(said: Topic, tmp_path: Path) -> None:
    first = open_view(said.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path)
    with pytest.raises(Unavailable, match="another process"):
        open_view(said.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path)
    said.say(elected(0, 1, 1))
    first.require_fresh(tier_partition_of(partition(0), PARTITIONS), 0)
    first.close()
    open_view(said.topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path).close()


def test_damage_that_is_met_while_reading_rebuilds_a_running_view(full: Topic, tmp_path: Path) -> None:
    events: list[Event] = []
    flip(names(tmp_path, "*.sst"), 0.3)
    follower = open_view(
        full.topic, "cluster", ManualClock(), Following(tail=False, listener=events.append), state_dir=tmp_path
    )
    for user in range(USERS):
        try:
            follower.partition(partition(user))
        except Unavailable:
            break
    for number in range(PARTITIONS):
        follower.require_fresh(number, 0)
    assert [event for event in events if isinstance(event, ViewRebuilt)]
    oracle = MemoryView(decode_fact, PARTITIONS)
    catch_up(full.topic, oracle, {number: full.topic.end(number) for number in range(PARTITIONS)})
    assert digests_of(follower.store) == digests_of(oracle)
    follower.close()
