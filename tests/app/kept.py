"""A bucket with copied segments, and an archive and checkpoints of their facts, without a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fetch.two_tiers import GOLDEN, Folder, Row, TwoTiers, rows_of
from tests.follower.archived import run
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.opening.bucket_connection import BucketConnection, ViewAge
from tierstate.app.opening.open import open_connection
from tierstate.follower.archive import archive
from tierstate.follower.checkpoint import checkpoint
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.settings_load import settings_from
from tierstate.schemas.codec import decode_fact
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Position
from tierstate.state.routing import Isolation
from tierstate.state.segment import RemoteSegment
from tierstate.state.view import MemoryView
from tierstate.storage.directory import DirectoryStore

FIRST_TOPIC = "AAAAAAAAAAAAAAAAAAAAAg"
CASE = "transactions"


@dataclass
class Kept:
    """A bucket with topic ``t``, which has one partition. ``clock`` sets the timestamps of facts."""

    path: Path
    tier_topic_id: str = FIRST_TOPIC
    topic_id: TopicId = field(default_factory=lambda: TopicId.of(b"golden-topic-id!"))
    case: str = CASE
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.folder = Folder(next(each for each in (GOLDEN / self.case).iterdir() if each.is_dir()))
        self.store = DirectoryStore(self.path)
        self.topic = MemoryTierTopic(1, self.tier_topic_id, self.clock)
        self.tiers = self.of(self.topic_id)
        self.ages: list[ViewAge] = []
        self.copied: list[RemoteSegment] = []

    def of(self, topic_id: TopicId, name: str = "t") -> TwoTiers:
        """Return another topic, whose facts are in the same tier-state topic."""
        tiers = TwoTiers(TopicIdPartition(topic_id, 0), name, self.store, self.topic)
        tiers.view.close()
        return tiers

    @property
    def shelf(self) -> Shelf[DirectoryStore]:
        return Shelf(self.store, ViewIdentity("cluster", self.tier_topic_id, 1), 0)

    def begin(self) -> Kept:
        self.tiers.elect(self.folder.lineage())
        self.tiers.start_log_at(0)
        return self

    def copy(self, *numbers: int) -> Kept:
        """Copy segments of the folder, selected by their index, one second apart."""
        for number in numbers:
            self.clock.advance(1)
            self.copied.append(self.tiers.copy(self.folder, *self.folder.bases[number : number + 2]))
        return self

    def archive(self) -> Kept:
        run(archive(self.topic, self.shelf, self.clock.now_ms(), 0))
        return self

    def checkpoint(self) -> Kept:
        run(checkpoint(self.topic, self.shelf, self.clock, 3, lambda: MemoryView(decode_fact, 1), _unexpected))
        return self

    @property
    def keys(self) -> list[str]:
        """The keys of all entries in the tier-state topic, in order."""
        return [entry.key for batch in self.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]

    def files(self, kind: str) -> list[Path]:
        """Return the files of ``archive`` or ``checkpoint``, oldest first."""
        return sorted((self.path / "_tierstate" / self.tier_topic_id / "0" / kind).iterdir())

    def connection(self, **view: object) -> BucketConnection:
        """Open a connection that has only the bucket. `ages` gets the view ages that it reports, `heard` its events."""
        given = {"store.url": self.store.description, "view.source": "bucket", "cache.prefetch": 0}
        settings = settings_from({**given, **{f"view.{name}": value for name, value in view.items()}})
        opened = open_connection(settings, self.clock, listener=self._heard.append, tell=self.ages.append)
        assert isinstance(opened, BucketConnection)
        return opened

    _heard: list[Any] = field(default_factory=list)

    @property
    def heard(self) -> list[Any]:
        """Events of all connections so far."""
        return self._heard

    def read(self, topic: str = "t", isolation: Isolation = Isolation.READ_COMMITTED, **view: object) -> list[Row]:
        """Return all records, read through the view from the bucket."""
        with self.connection(**view) as connection:
            reader = connection.reader(connection.view())
            start, end = reader.extent(topic, 0, isolation=isolation)
            return rows_of(reader.scan(topic, 0, start, end, isolation=isolation))


def _unexpected(key: str, error: Exception) -> None:
    raise AssertionError(key) from error


def damage(path: Path) -> None:
    """The last byte, in one bit."""
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
