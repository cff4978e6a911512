"""Generated histories of a tier-state topic that is put back to older states and grows again.

Production's archives, checkpoints and views run over `MemoryTierTopic`, which is compacted and restored. Its epochs are
restored with it, and collide. Two promises hold: a fresh view holds exactly the topic's live records, and an archive
that is continued agrees with the topic wherever both have a record.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from tests.follower.archived import DAY_MS, OWNER
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.archive import archive
from tierstate.follower.archive_chain import chain_of, read_archive
from tierstate.follower.archives import Archives, begin_history, has_parted
from tierstate.follower.checkpoint import CheckpointSeed, checkpoint
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.operation import run
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import HistoryBroken, TierstateError, ViewBehind
from tierstate.state.ids import FactId
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import Entry, MemoryView, ViewStore
from tierstate.storage.memory import MemoryStore

STEPS = 60
KEYS = 12


def ignored(key: str, error: TierstateError) -> None:
    """Ignore the error of a checkpoint that is skipped."""


class RestoredWorld:
    """One tier-state partition, its archive and checkpoints, and two followers."""

    def __init__(self, seed: int) -> None:
        self.rnd, self.clock = Random(seed), ManualClock()
        self.seen: set[str] = set()
        self.topic = MemoryTierTopic(1, clock=self.clock)
        self.objects = MemoryStore(self.clock)
        self.history = 0
        self.said = 0
        self.followers = [self.follow(None), self.follow(None)]

    @property
    def identity(self) -> ViewIdentity:
        return ViewIdentity("cluster", self.topic.topic_id, 1, history=self.history)

    @property
    def shelf(self) -> Shelf[MemoryStore]:
        return Shelf(self.objects, self.identity, 0)

    def follow(self, store: ViewStore | None) -> Follower:
        memory = InMemory(1)
        seed = CheckpointSeed(self.topic, self.objects, self.identity, self.clock, ignored)
        lost = "no view"
        follower = Follower(self.topic, store, memory, self.clock, Following(seed=seed, tail=False), lost=lost)
        return follower.start()

    def run(self) -> None:
        """Run all steps. Raises AssertionError if a promise breaks."""
        for _ in range(STEPS):
            happen = self.rnd.choice(
                [self.speak] * 5
                + [self.archive, self.archive, self.checkpoint, self.look, self.look, self.stop]
                + [self.restore, self.clean, self.settle]
            )
            happen()
        for at in range(len(self.followers)):
            self.check(at)

    def speak(self) -> None:
        for _ in range(self.rnd.randint(1, 3)):
            self.said += 1
            key = f"{OWNER}/0/lease/{FactId.of(self.rnd.randrange(KEYS).to_bytes(16, 'big'))}"
            self.topic.append(0, key, None if self.rnd.random() < 0.3 else b"%d" % self.said)
        self.clock.advance(self.rnd.choice((0.001, 1, 40)))

    def restore(self) -> None:
        """Put the topic back to an older state, and append other records at a later time."""
        self.seen.add("put back")
        end = self.topic.end(0)
        self.topic.restore(0, self.rnd.randint(max(0, end - 6), end))
        self.clock.advance(self.rnd.choice((1, 60)))
        for _ in range(self.rnd.randint(0, 4)):
            self.speak()

    def clean(self) -> None:
        """Compact some records that are older than a day and superseded, after an agent has archived the topic."""
        self.archive()
        self.clock.advance(DAY_MS / 1000 if self.rnd.random() < 0.5 else 5)
        entries = self.entries()
        last = {entry.key: entry.position for entry in entries}
        young = self.topic.position_at(0, TimestampMs(self.clock.now_ms() - DAY_MS))
        for entry in entries:
            if last[entry.key] != entry.position and entry.position < young and self.rnd.random() < 0.7:
                self.topic.compacted.add((0, entry.position))

    def entries(self) -> list[Entry]:
        """Return all records of the topic."""
        return [entry for batch in self.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]

    def archive(self) -> None:
        """Check and extend the archive, as `app/operating/upkeep.py` does. It must agree with the topic."""
        try:
            Archives(self.topic, self.objects, self.identity, self.clock).check(0)
            run(archive(self.topic, self.shelf, self.clock.now_ms(), 0))
        except HistoryBroken:
            return
        chain = chain_of(self.objects, self.identity.place(0))
        now = {entry.position: entry for entry in self.entries()}
        for piece in read_archive(self.objects, chain):
            for each in piece.entries:
                there = now.get(each.position, each.entry)
                assert there == each.entry, f"the archive has {each.entry}, the topic {there}: two histories in one"

    def settle(self) -> None:
        """Begin a new history as a person does, if a divergence of the topic is recorded."""
        topic_id = self.topic.topic_id
        if has_parted(self.objects, topic_id, self.history) is not None:
            self.seen.add("another history begun")
            self.history += 1
            begin_history(self.objects, topic_id, self.history, self.clock.now_ms(), "restored", ())

    def checkpoint(self) -> None:
        with suppress(TierstateError):  # a diverged topic, before a person has decided
            Archives(self.topic, self.objects, self.identity, self.clock).check(0)
            run(checkpoint(self.topic, self.shelf, self.clock, 3, self.fresh, ignored))

    def fresh(self) -> ViewStore:
        return MemoryView(decode_fact, 1)

    def look(self) -> None:
        self.check(self.rnd.randrange(len(self.followers)))

    def stop(self) -> None:
        """End a process. The next one continues with its view, or without a view."""
        at = self.rnd.randrange(len(self.followers))
        store = self.followers[at].store
        self.followers[at] = self.follow(store if self.rnd.random() < 0.7 else None)

    def check(self, at: int) -> None:
        follower = self.followers[at]
        if follower.lost is None and self.rnd.random() < 0.5:
            self.clock.advance(31)  # else it may not have checked the topic's identity, which it does every 30 s
        else:
            follower = self.followers[at] = self.follow(follower.store)
        with suppress(ViewBehind):  # lost right after it was rebuilt: it is rebuilt again
            follower.require_fresh(0, 0)
        follower.require_fresh(0, 0)
        held = {entry.key: entry for _, entry in follower.store.entries(0)}
        meant = dict[str, Entry]()
        for entry in self.entries():
            meant.pop(entry.key, None)
            if entry.value is not None:
                meant[entry.key] = entry
        assert held == meant, f"a fresh view holds {set(held.values()) ^ set(meant.values())}"


def broken_by_restores(seeds: range = range(20)) -> str | None:
    """Return what breaks in the first broken world of these seeds, or None."""
    for seed in seeds:
        try:
            RestoredWorld(seed).run()
        except AssertionError as error:
            return f"seed {seed}: {error}"
    return None
