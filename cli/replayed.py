"""Views that commands rebuild, from the topic or from the archive, as of now or of a position or time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .context import Context
from .opened import open_store_of, opened_broker, opened_topic

if TYPE_CHECKING:
    from ..broker.tier_topic import KafkaTierTopic
    from ..follower.rocksdb_view import ViewIdentity
    from ..follower.time_travel import Replayed
    from ..state.offsets import Position, TimestampMs
    from ..state.view import Entry, ViewStore
    from ..storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Target:
    """How far: to a position (excluded), to the first record of a time (ms), or, with neither, to the end.

    ``without``: withhold the fact under this key.
    """

    position: Position | None = None
    time: TimestampMs | None = None
    without: str | None = None

    @property
    def keep(self) -> Callable[[int, Entry], bool] | None:
        return None if self.without is None else lambda number, entry: entry.key != self.without


def identity_of(context: Context, topic: KafkaTierTopic) -> ViewIdentity:
    """Whose view the topic makes."""
    from ..follower.rocksdb_view import ViewIdentity

    with opened_broker(context) as broker:
        return ViewIdentity(broker.control.cluster().cluster_id, topic.topic_id, topic.mapped_partitions)


def replay_from_topic(
    context: Context, topic: KafkaTierTopic, numbers: Iterable[int], store: ViewStore, target: Target
) -> list[Replayed]:
    """Raises what `replay_topic` raises."""
    from ..follower.time_travel import replay_topic
    from ..runtime.clock import SystemClock

    said = []
    with context.output.progress("reading the tier-state topic") as advance:
        for number in numbers:
            said.append(
                replay_topic(
                    topic,
                    number,
                    store,
                    SystemClock().now_ms(),
                    to_position=target.position,
                    to_time=target.time,
                    keep=target.keep,
                    progress=_steps(advance),
                )
            )
    return said


@contextmanager
def opened_archive(context: Context, history: int | None = None) -> Iterator[tuple[ObjectStore, ViewIdentity]]:
    """The store and whose archive is in it, of this history or of the newest. Kafka is asked only when there is more
    than one. Raises InvalidRequest when there is none.
    """
    from ..follower.archive_reader import archived_topics
    from ..follower.histories import has_parted
    from ..state.errors import InvalidRequest

    objects = open_store_of(context.settings_with("store.url"))
    try:
        found = archived_topics(objects, history)
        if len(found) > 1:
            with opened_topic(context) as topic:
                found = [each for each in found if each.topic_id == topic.topic_id]
        if not found:
            raise InvalidRequest("no archive of the tier-state topic in this store", store=objects.description)
        parted = has_parted(objects, found[0].topic_id, found[0].history)
        if parted is not None:
            context.output.note(f"history {found[0].history} is not the topic's any more: {parted.message}")
        yield objects, found[0]
    finally:
        objects.close()


def replay_from_archive(
    context: Context,
    objects: ObjectStore,
    identity: ViewIdentity,
    numbers: Iterable[int],
    store: ViewStore,
    target: Target,
) -> list[Replayed]:
    """Raises what `replay_archive` raises, and InvalidRequest when the topic has records that the archive lacks."""
    from ..follower.time_travel import replay_archive

    said = []
    with context.output.progress("reading the archive") as advance:
        for number in numbers:
            said.append(
                replay_archive(
                    objects,
                    identity,
                    number,
                    store,
                    to_position=target.position,
                    to_time=target.time,
                    keep=target.keep,
                    progress=_steps(advance),
                )
            )
    if target.time is not None and not all(each.reached for each in said):
        return _settled(context, said, target.time)
    return said


def _settled(context: Context, said: list[Replayed], time: TimestampMs) -> list[Replayed]:
    """A quiet partition has no record at or after the time. The topic knows whether that is all there was."""
    from dataclasses import replace

    from ..state.errors import BrokerUnavailable, InvalidRequest

    settled = []
    try:
        with opened_topic(context) as topic:
            for each in said:
                wanted = each.position if each.reached else topic.position_at(each.tier_partition, time)
                if wanted > each.position:
                    raise InvalidRequest(
                        "the archive does not reach this time yet",
                        tier_partition=each.tier_partition,
                        archived_to=each.position,
                        needed=wanted,
                    )
                settled.append(replace(each, reached=True))
    except BrokerUnavailable:
        context.output.note("Kafka does not answer: what was said just before that time may not be archived")
        return said
    return settled


def _steps(advance: Callable[[int], None]) -> Callable[[int], None]:
    """A progress bar wants what is new, a replay says how much there is."""
    seen = 0

    def progress(read: int) -> None:
        nonlocal seen
        advance(read - seen)
        seen = read

    return progress
