"""The remote tier alone, as readers open it: no broker is asked, everything comes from the bucket.

The same seam as `connection.py`: topics, a view, a reader. Which view it is and how old, is told before it is used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..broker.control import ClusterDescription
from ..broker.topics import PartitionDescription, TopicDescription
from ..follower.bucket_view import NEWEST, BucketView, Moment, find_kept, open_bucket_view
from ..follower.time_travel import NO_TIME, Replayed, Target
from ..runtime.listener import ChoreFailed, ignore
from ..runtime.units import counted
from ..state.errors import TierstateError, UnknownTopic
from ..state.ids import BrokerId
from ..state.offsets import Position, TimestampMs, moment
from .connection import BUCKET, Connection, no_progress, tier_partitions
from .positions import parse_time

if TYPE_CHECKING:
    from ..fetch.reader import LogReader
    from ..runtime.clock import Clock
    from ..runtime.listener import Listener
    from ..runtime.settings import Settings
    from ..state.ids import TopicId, TopicIdPartition
    from ..state.view import TierView
    from ..storage.object_store import ObjectStore
    from ..storage.segment.encryption import KeyUnwrapper
    from .connection import ShowProgress

NOBODY = BrokerId(-1)
"""The broker that knows none of the topics that are gone."""
_PLACE = re.compile("([0-9]{1,9})/([0-9]{1,18})")


class BucketTopics:
    """The `TopicDirectory` of a view: topics by the names that facts give them.

    Of several with one name (deleted and made again) the one elected last has it; the others go by their topic ids.
    """

    def __init__(self, view: BucketView) -> None:
        self._cluster_id, self._newest_at = view.identity.cluster_id, newest_of(view.kept.values())
        numbers: dict[TopicId, list[int]] = {}
        named: dict[TopicId, tuple[bool, int, str]] = {}
        for partition in view.partitions():
            said = view.partition(partition)
            elected_at = said.leader.elected_at if said.leader else -1
            numbers.setdefault(partition.topic_id, []).append(partition.partition)
            if said.topic is not None:
                one = (said.deleted is None, elected_at, said.topic)
                named[partition.topic_id] = max(one, named.get(partition.topic_id, one))
        self._of_id = {
            topic_id: TopicDescription(
                named[topic_id][2] if topic_id in named else topic_id,
                topic_id,
                False,
                tuple(PartitionDescription(number, None, None) for number in range(max(known) + 1)),
            )
            for topic_id, known in numbers.items()
        }
        by_age = sorted(self._of_id.values(), key=lambda each: named.get(each.topic_id, (False, -1, "")))
        self._of_name = {each.name: each for each in by_age}

    def cluster(self) -> ClusterDescription:
        return ClusterDescription(self._cluster_id, (NOBODY,))

    def topics(self) -> tuple[TopicDescription, ...]:
        """One of each name."""
        return tuple(each for _, each in sorted(self._of_name.items()))

    def topic(self, name: str) -> TopicDescription:
        """By its name, or by its topic id. Raises UnknownTopic."""
        found = self._of_name.get(name) or next((each for key, each in self._of_id.items() if key == name), None)
        if found is None:
            at = None if self._newest_at == NO_TIME else moment(self._newest_at)
            raise UnknownTopic("the view from the bucket knows no such topic", topic=name, view_of=at)
        return found

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        """No broker is asked, so none has it."""
        return False


@dataclass(frozen=True, slots=True)
class ViewAge:
    """What a view from the bucket is of. Times in ms.

    ``newest_at``: of its newest fact, or of its checkpoint where nothing was archived after it; -1: nothing was said.
    ``as_of``: as it was asked for; empty: the newest. ``compacted``: records that were gone before they were archived.
    ``sure``: False where the archive ends before the time that was asked for, in a tier-state partition at least.
    ``parted``: why it is not the topic's own any more.
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
        asked = f" as of {self.as_of}" if self.as_of else ""
        said = [
            f"view from the bucket alone{asked} ({of}): {newest}; what came after that is not known, "
            "and what only brokers have is not read"
        ]
        if not self.sure:
            said.append("what was said just before that time may not be archived")
        if self.compacted:
            said.append(
                f"{counted(self.compacted, 'record was', 'records were')} compacted away before they could be archived"
            )
        return "; ".join(said + ([self.parted] if self.parted else []))

    def as_json(self) -> dict[str, Any]:
        return {"source": BUCKET, **asdict(self)}


def to_log(age: ViewAge) -> None:
    """For who reads from Python and Spark: Python's own log, which shows warnings on stderr unless told otherwise."""
    logging.getLogger("tierstate").warning(str(age))


def parse_moment(text: str, now: TimestampMs) -> Moment:
    """``@TIME`` or ``TIER_PARTITION/POSITION``; empty: the newest. Raises InvalidRequest."""
    if not text:
        return NEWEST
    place = _PLACE.fullmatch(text)
    if place:
        return Moment(Target(position=Position(int(place[2]))), int(place[1]))
    return Moment(Target(time=parse_time(text, now)))


class BucketConnection:
    """What is opened lies in the properties; nothing is read before it is asked. Use as a context manager.

    ``tell``: how old the view is, before anything is read by it.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        listener: Listener = ignore,
        progress: ShowProgress = no_progress,
        tell: Callable[[ViewAge], None] = to_log,
    ) -> None:
        self._parts = Connection(settings, clock, listener=listener, progress=progress)
        self.settings, self.clock, self.progress, self._tell = settings, self._parts.clock, progress, tell
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The last opened first."""
        self._opened.close()
        self._parts.close()

    @property
    def store(self) -> ObjectStore:
        return self._parts.store

    @property
    def keys(self) -> KeyUnwrapper | None:
        """What opens encrypted segments. Raises InvalidRequest."""
        return self._parts.keys

    @cached_property
    def _whole(self) -> tuple[BucketView, str | None]:
        """Of every tier-state partition, and why it is not the topic's own any more."""
        wanted, parts = self.settings.view, self._parts
        moment = parse_moment(wanted.as_of, self.clock.now_ms())
        identity, parted = find_kept(parts.store, wanted.topic_id, wanted.history)
        with parts.progress("reading the view from the bucket", identity.partitions) as advance:
            view = open_bucket_view(parts.store, identity, moment, self._refused, advance)
        return self._opened.enter_context(closing(view)), parted

    def _refused(self, key: str, error: TierstateError) -> None:
        self._parts.listener(ChoreFailed("checkpoint", -1, f"{key} is not used: {error}"))

    @cached_property
    def control(self) -> BucketTopics:
        """Topics as the facts name them."""
        return BucketTopics(self._whole[0])

    def view(self, partitions: Iterable[TopicIdPartition] | None = None, folder: object = None) -> BucketView:
        """The view, in memory whatever ``folder`` says; its age, as these partitions (None: all) have it, is told."""
        view, parted = self._whole
        wanted = tier_partitions(view.identity.partitions, partitions)
        said = [view.kept[number] for number in wanted if number in view.kept]
        newest = newest_of(said)
        age = 0 if newest == NO_TIME else max(0, self.clock.now_ms() - newest)
        self._tell(
            ViewAge(
                view.identity.cluster_id,
                view.identity.topic_id,
                view.identity.history,
                newest,
                age,
                self.settings.view.as_of,
                sum(each.holes for each in said),
                all(each.reached for each in said),
                parted,
                tuple(said),
            )
        )
        return view

    def reader(self, view: TierView) -> LogReader:
        """Of the remote tier, by the view."""
        from ..fetch.open import Reading, open_past_reader
        from ..state.object_keys import ObjectKeys

        form, settings = self.settings.format, self.settings
        names = ObjectKeys.minting(form.key_prefix, self._whole[0].identity.cluster_id, form.salt_bits)
        reading = Reading(settings.cache, settings.state_dir, self._parts.keys, names)
        made = open_past_reader(view, self.control, self.store, self.clock, reading, self._parts.listener)
        return self._opened.enter_context(closing(made))


def newest_of(said: Iterable[Replayed]) -> TimestampMs:
    """The newest that any of these tier-state partitions knows; -1: nothing was ever said."""
    return max((each.newest_timestamp for each in said), default=NO_TIME)


def _ago(ms: int) -> str:
    """As people say it: 31 m, 5 h, 3 d."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms // 1000} s"
