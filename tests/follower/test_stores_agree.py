"""RocksDB and memory hold and mean the same after any records, in any batches, and with any restarts in between."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.follower.said import PARTITIONS, attempt, elected, finished, identity, log_start, partition
from tierstate.follower.digests import digests_of
from tierstate.follower.rocksdb_view import RocksView
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.facts import Fact, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.meaning import meaning
from tierstate.state.offsets import Position
from tierstate.state.view import Entry, MemoryView, ViewStore

USERS = 3


def said(user: int) -> list[Fact]:
    first, second = elected(user, 1, 10 * user + 1), elected(user, 2, 10 * user + 2)
    copies = [attempt(user, base, first, 0) for base in (0, 100)]
    return [
        first,
        second,
        log_start(user, 50, first, 0),
        log_start(user, 70, second, 1, counter=2),
        *(SegmentCopyStarted(copy) for copy in copies),
        *(SegmentCopyFinished(finished(copy)) for copy in copies),
    ]


FACTS = [(tier_partition_of(partition(user), PARTITIONS), fact) for user in range(USERS) for fact in said(user)]
RECORDS = [(number, key_of(fact), encode_fact(fact)) for number, fact in FACTS]
RECORDS += [(0, "foreign", b"a"), (1, "hex:ff", b"b"), (2, f"{partition(0).topic_id}/0/whatever", b"c")]
LANDS = st.tuples(st.sampled_from(RECORDS), st.sampled_from(["value", "value", "tombstone", "second value"]))
STEP = st.one_of(
    st.lists(LANDS, min_size=1, max_size=6),
    st.just("restart"),
    st.tuples(st.just("drop"), st.integers(0, USERS - 1)),
    st.tuples(st.just("take back"), st.integers(0, USERS - 1)),
    st.tuples(st.just("forget"), st.sampled_from(RECORDS)),
)


def look(store: ViewStore) -> tuple[object, ...]:
    numbers = range(PARTITIONS)
    users = [partition(user) for user in range(USERS)]
    for user in users:
        state = store.state(user)
        assert state.view() == meaning(user, state.facts())
    return (
        digests_of(store),
        store.partitions(),
        [store.state(user).view() for user in users],
        [store.second_values(user) for user in users],
        [store.foreign(number) for number in numbers],
        [frozenset(store.dropped(number)) for number in numbers],
        [(store.position(number), store.epoch(number), store.as_of(number)) for number in numbers],
    )


class Both:
    """One log, applied to both stores, and to a third one that drops nothing and gives dropped partitions back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.position = folder, 0
        self.memory, self.whole = MemoryView(decode_fact, PARTITIONS), MemoryView(decode_fact, PARTITIONS)
        self.disk = self.open()

    def open(self) -> RocksView:
        return RocksView(self.folder, identity(), decode_fact, remembered_facts=6)

    def land(self, number: int, entries: list[Entry]) -> None:
        following, epoch = Position(self.position), self.position // 10
        self.whole.apply(number, entries, following, epoch)
        lost = self.memory.dropped(number)
        kept = [
            entry for entry in entries if not entry.key.startswith(tuple(f"{p.topic_id}/{p.partition}/" for p in lost))
        ]
        assert self.memory.apply(number, kept, following, epoch, lost) == self.disk.apply(
            number, kept, following, epoch, lost
        )

    def take(self, step: object) -> None:
        match step:
            case "restart":
                self.disk.close()
                self.disk = self.open()
            case ("drop", int(user)):
                for store in (self.memory, self.disk):
                    store.drop(tier_partition_of(partition(user), PARTITIONS), partition(user))
            case ("take back", int(user)):
                number = tier_partition_of(partition(user), PARTITIONS)
                if partition(user) in self.memory.dropped(number):
                    for store in (self.memory, self.disk):
                        store.adopt(number, [partition(user)], self.whole)
            case ("forget", (int(), str(key), bytes())):
                for view in (self.memory, self.disk, self.whole):
                    for user in range(USERS):
                        if key.startswith(f"{partition(user).topic_id}/{user}/"):
                            view.forget_second_value(partition(user), key)
            case list(records):
                for number in range(PARTITIONS):
                    self.land(number, [self.entry(*record) for record in records if record[0][0] == number])

    def entry(self, record: tuple[int, str, bytes], what: str) -> Entry:
        self.position += 1
        value = {"value": record[2], "tombstone": None, "second value": record[2] + b"x"}[what]
        return Entry(record[1], Position(self.position - 1), value)


@settings(max_examples=60)
@given(st.lists(STEP, max_size=14))
def test_memory_and_rocksdb_agree_after_every_step(steps: list[object]) -> None:
    folder = Path(tempfile.mkdtemp())
    both = Both(folder)
    try:
        for step in steps:
            both.take(step)
            assert look(both.memory) == look(both.disk)
    finally:
        both.disk.close()
        shutil.rmtree(folder)
