"""The remote tier alone, as readers open it: no broker is queried, all data comes from the bucket.

It has the interface of `connection.py`: topics, a view, a reader. The age of a view is reported before any read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...broker.control import ClusterDescription
from ...broker.topics import PartitionDescription, TopicDescription
from ...follower.bucket_view import NEWEST, BucketView, Moment, find_identity, open_bucket_view
from ...follower.time_travel import NO_TIME, Replayed, Target
from ...runtime.listener import ChoreFailed
from ...runtime.units import counted
from ...state.errors import TierstateError, UnknownTopic
from ...state.ids import BrokerId, TopicId, TopicIdPartition
from ...state.object_keys import ObjectKeys
from ...state.offsets import Position, TimestampMs, moment
from ...state.view import TierView
from .connection import BUCKET, Connection, ConnectionParts, tier_partitions
from .positions import parse_time

if TYPE_CHECKING:
    from ...fetch.reader import LogReader

NOBODY = BrokerId(-1)
"""An id that no broker has. It replaces the brokers, which are not queried."""
_PLACE = re.compile("([0-9]{1,9})/([0-9]{1,18})")


class BucketTopics:
    """The `TopicDirectory` of a view: topics by the names in their facts.

    If several topics have one name (deleted and re-created), the name means the topic that is not deleted, else the
    topic with the newest term. The others are found by their topic ids.
    """

    def __init__(self, view: BucketView) -> None:
        self.refresh(view)

    def refresh(self, view: BucketView) -> None:
        self._cluster_id, self._newest_at = view.identity.cluster_id, newest_of(view.replays.values())
        numbers: dict[TopicId, list[int]] = {}
        names: dict[TopicId, tuple[bool, int, str]] = {}
        for partition in view.partitions():
            partition_view = view.partition(partition)
            elected_at = partition_view.leader.elected_at if partition_view.leader else -1
            numbers.setdefault(partition.topic_id, []).append(partition.partition)
            if partition_view.topic is not None:
                one = (partition_view.deleted is None, elected_at, partition_view.topic)
                names[partition.topic_id] = max(one, names.get(partition.topic_id, one))
        self._of_id = {
            topic_id: TopicDescription(
                names[topic_id][2] if topic_id in names else topic_id,
                topic_id,
                False,
                tuple(PartitionDescription(number, None, None) for number in range(max(partition_numbers) + 1)),
            )
            for topic_id, partition_numbers in numbers.items()
        }
        by_age = sorted(self._of_id.values(), key=lambda each: names.get(each.topic_id, (False, -1, "")))
        self._of_name = {each.name: each for each in by_age}

    def cluster(self) -> ClusterDescription:
        return ClusterDescription(self._cluster_id, (NOBODY,))

    def topics(self) -> tuple[TopicDescription, ...]:
        return tuple(each for _, each in sorted(self._of_name.items()))

    def topic(self, name: str) -> TopicDescription:
        """Return the topic with this name or this topic id. Raises UnknownTopic."""
        topic = self._of_name.get(name) or next((each for key, each in self._of_id.items() if key == name), None)
        if topic is None:
            at = None if self._newest_at == NO_TIME else moment(self._newest_at)
            raise UnknownTopic("the view from the bucket knows no such topic", topic=name, view_of=at)
        return topic

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        """Return False: no broker is queried."""
        return False


@dataclass(frozen=True, slots=True)
class ViewAge:
    """The content and the age of a view from the bucket. Times are in ms.

    ``newest_at``: time of the newest fact, or of the checkpoint if no later fact is archived; -1 if there is neither.
    ``as_of``: the requested moment; empty: the newest. ``compacted``: number of records that compaction deleted before
    they were archived. ``sure``: False if the archive of a tier-state partition ends before the requested time.
    ``parted``: why the tier-state topic has diverged from this view; None if it has not.
    """

    cluster_id: str
    tier_state_topic_id: str
    history: int
    newest_at: TimestampMs
    age_ms: int
    as_of: str
    compacted: int
    sure: bool
    parted: str | None
    tier_partitions: tuple[Replayed, ...]

    def __str__(self) -> str:
        of = f"cluster {self.cluster_id}, tier-state topic {self.tier_state_topic_id}"
        newest = "no fact is in it"
        if self.newest_at != NO_TIME:
            newest = f"it is of {moment(self.newest_at)}, {_ago(self.age_ms)} ago"
        requested = f" as of {self.as_of}" if self.as_of else ""
        sentences = [
            f"view from the bucket alone{requested} ({of}): {newest}; what came after that is not known, "
            "and what only brokers have is not read"
        ]
        if not self.sure:
            sentences.append("what was said just before that time may not be archived")
        if self.compacted:
            sentences.append(
                f"{counted(self.compacted, 'record was', 'records were')} compacted away before they could be archived"
            )
        return "; ".join(sentences + ([self.parted] if self.parted else []))

    def as_json(self) -> dict[str, Any]:
        return {"source": BUCKET, **asdict(self)}


def log_age(age: ViewAge) -> None:
    """Log the age as a warning of Python's logging (stderr by default). Readers in Python and Spark use it."""
    logging.getLogger("tierstate").warning(str(age))


def parse_moment(text: str, now: TimestampMs) -> Moment:
    """Parse ``@TIME`` or ``TIER_PARTITION/POSITION``. Empty text means the newest. Raises InvalidRequest."""
    if not text:
        return NEWEST
    place = _PLACE.fullmatch(text)
    if place:
        return Moment(Target(position=Position(int(place[2]))), int(place[1]))
    return Moment(Target(time=parse_time(text, now)))


class BucketConnection(ConnectionParts):
    """The remote tier alone. Each property opens its part at the first use. Use it as a context manager.

    `view` calls ``tell`` with the age of the view.
    """

    def __init__(self, parts: Connection, tell: Callable[[ViewAge], None] = log_age) -> None:
        super().__init__(parts)
        self._tell = tell

    @cached_property
    def _whole(self) -> tuple[BucketView, str | None]:
        """Return the view of all tier-state partitions, and why the topic diverged from it (None: it did not)."""
        settings, parts = self.settings.view, self.parts
        moment = parse_moment(settings.as_of, self.clock.now_ms())
        identity, parted = find_identity(parts.store, settings.topic_id, settings.history)
        with parts.progress("reading the view from the bucket", identity.partitions) as advance:
            view = open_bucket_view(parts.store, identity, moment, self._refused, advance)
        return self._keep(view), parted

    def _refused(self, key: str, error: TierstateError) -> None:
        self.parts.listener(ChoreFailed("checkpoint", -1, f"{key} is not used: {error}"))

    def advance(self) -> None:
        """Add to the view what was archived since. Raises the store's errors, CorruptData, HistoryBroken."""
        view = self._whole[0]
        identity, _ = find_identity(self.store, view.identity.topic_id, self.settings.view.history)
        view.advance(self.store, identity, self._refused)
        self.control.refresh(view)

    @cached_property
    def control(self) -> BucketTopics:
        return BucketTopics(self._whole[0])

    def view(self, partitions: Iterable[TopicIdPartition] | None = None, folder: object = None) -> BucketView:
        """Return the view in memory; ``folder`` is ignored. Reports its age for ``partitions`` (None: for all)."""
        view, parted = self._whole
        numbers = tier_partitions(view.identity.partitions, partitions)
        replayed = [view.replays[number] for number in numbers if number in view.replays]
        newest = newest_of(replayed)
        age = 0 if newest == NO_TIME else max(0, self.clock.now_ms() - newest)
        self._tell(
            ViewAge(
                view.identity.cluster_id,
                view.identity.topic_id,
                view.identity.history,
                newest,
                age,
                self.settings.view.as_of,
                sum(each.holes for each in replayed),
                all(each.reached for each in replayed),
                parted,
                tuple(replayed),
            )
        )
        return view

    def reader(self, view: TierView) -> LogReader:
        from ...fetch.open import Reading, open_past_reader

        form, settings = self.settings.format, self.settings
        names = ObjectKeys.minting(form.key_prefix, self._whole[0].identity.cluster_id, form.salt_bits)
        reading = Reading(settings.cache, settings.state_dir, self.parts.keys, names)
        reader = open_past_reader(view, self.control, self.store, self.clock, reading, self.parts.listener)
        return self._keep(reader)


def newest_of(replays: Iterable[Replayed]) -> TimestampMs:
    """Return the newest time, in ms, of the facts of these tier-state partitions. Returns -1 without facts."""
    return max((each.newest_timestamp for each in replays), default=NO_TIME)


def _ago(ms: int) -> str:
    """Return an age as people write it: 31 m, 5 h, 3 d."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms // 1000} s"
