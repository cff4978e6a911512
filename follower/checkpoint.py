"""Checkpoints: live sets in the object store, so that a new follower need not replay the whole topic.

A checkpoint is written only from a view that is ready and has every partition. Otherwise all later followers would
inherit the view's lag or wrong entries. Checkpoints are a cache of the topic: any of them may be lost. If a checkpoint
is damaged, foreign or too old, the next older one is used. If none is usable, the topic is replayed from its beginning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..state.errors import (
    CorruptData,
    DiskFull,
    IllegalTransition,
    InvalidRequest,
    ObjectExists,
    PositionLost,
    TierstateError,
    ViewBehind,
)
from ..state.keys import KeyKind, parse_key
from ..state.offsets import Position, TimestampMs
from ..state.view import READY_AGE_S, Entry, ViewStore
from ..storage.object_store import ObjectReader, ObjectStore
from .as_of import MAX_AGE_MS, check_same
from .live_set_object import (
    CHECKPOINT,
    LiveSetHeader,
    fetch_table,
    put_live_set,
    read_header,
    scratch_folder,
    take_table,
    write_live_set,
)
from .object_names import PositionName
from .replay import catch_up
from .rocksdb_view import ViewIdentity
from .view_identity import Shelf

HOLD = f"/{KeyKind.HOLD}/"
Refused = Callable[[str, TierstateError], None]
"""Called with the object key of a checkpoint that was not used, and the reason."""


def checkpoint(
    topic: TierTopic,
    shelf: Shelf[ObjectStore],
    clock: Clock,
    keep: int,
    new_store: Callable[[], ViewStore],
    refused: Refused,
    stop: threading.Event | None = None,
) -> Generator[str, None, Position]:
    """Put a checkpoint of one tier-state partition up to its current end, and delete all but the ``keep`` newest.

    Yields before each step; returns the position. The agent's view has only the partitions that its broker hosts, so a
    complete view is built in ``new_store()`` from the previous checkpoint, and closed at the end. Raises ViewBehind if
    the view is not ready, IllegalTransition while an integrity hold exists or a key has two values, and CorruptData for
    a foreign key. Also raises Unavailable once ``stop`` is set, and the errors of topic and store.
    """
    objects, place, tier_partition = shelf.objects, shelf.place, shelf.tier_partition
    names = place.checkpoints(objects)
    seed = CheckpointSeed(topic, objects, shelf.identity, clock, refused)
    view = new_store()
    try:
        try:
            position = _caught_up(view, topic, tier_partition, clock, seed, stop)
        except PositionLost as lost:  # the previous checkpoint belongs to a log that was truncated since
            refused(place.prefix, lost)
            view.close()
            view = new_store()
            position = _caught_up(view, topic, tier_partition, clock, None, stop)
        if position not in (name.position for name in names):
            _refuse_what_is_doubtful(view, tier_partition)
            with scratch_folder(view) as folder:
                table = write_live_set(view, shelf.identity, tier_partition, folder, _refuse_holds)
                name = PositionName(position, place.checkpoint(position))
                yield "put checkpoint"
                with suppress(ObjectExists):  # another agent put the same live set at this position
                    put_live_set(objects, name.key, CHECKPOINT, table)
                names = sorted({*names, name})
    finally:
        view.close()
    for name in names[: -max(keep, 1)]:
        yield "delete old checkpoint"
        objects.delete(name.key)
    return position


def _caught_up(
    view: ViewStore,
    topic: TierTopic,
    tier_partition: int,
    clock: Clock,
    seed: CheckpointSeed | None,
    stop: threading.Event | None,
) -> Position:
    """Fill an empty view up to an end captured now, from a checkpoint or from the beginning; return its position.

    Raises ViewBehind if this took longer than `READY_AGE_S`.
    """
    began, now_ms = clock.monotonic(), clock.now_ms()
    end = topic.end(tier_partition)
    if seed is not None:
        seed(view, tier_partition, end)
    catch_up(topic, view, {tier_partition: end}, stop=stop)
    if clock.monotonic() - began > READY_AGE_S:
        raise ViewBehind("the view is not ready: it took too long to catch up", tier_partition=tier_partition)
    view.mark_as_of(tier_partition, now_ms)
    return view.position(tier_partition)


def _refuse_what_is_doubtful(view: ViewStore, tier_partition: int) -> None:
    """Raise for foreign keys, second values and dropped partitions. `_refuse_holds` checks for holds."""
    foreign = view.foreign(tier_partition)
    if foreign:
        raise CorruptData("no checkpoint of a view with foreign keys", tier_partition=tier_partition, first=foreign[0])
    dropped = view.dropped(tier_partition)
    if dropped:
        raise InvalidRequest("no checkpoint of a view that has not all partitions", tier_partition=tier_partition)
    for partition in view.partitions():
        for second in view.second_values(partition):
            raise IllegalTransition(
                "no checkpoint of a view in which a key has two values",
                key=second.key,
                first=second.first_position,
                second=second.second_position,
            )


def _refuse_holds(entry: Entry) -> None:
    if HOLD not in entry.key:  # so that few keys are parsed
        return
    key = parse_key(entry.key)
    if key is not None and key.kind is KeyKind.HOLD:
        raise IllegalTransition("no checkpoint while an integrity hold stands", key=entry.key, position=entry.position)


class CheckpointSeed:
    """Fills an empty view from a checkpoint (`rebuild.Seed`). Each checkpoint is used at most once in a process.

    If its view is lost again, the checkpoint may be the reason: the log may have been truncated below its position.
    """

    def __init__(
        self, topic: TierTopic, objects: ObjectReader, identity: ViewIdentity, clock: Clock, refused: Refused
    ) -> None:
        self._topic, self._objects, self._identity = topic, objects, identity
        self._clock, self._refused = clock, refused
        self._used: set[str] = set()

    def __call__(self, store: ViewStore, tier_partition: int, end: Position) -> LiveSetHeader | None:
        """Load the newest usable checkpoint into an empty ``store``. Returns its header, or None if there is none.

        ``end``: the current end of the tier-state partition. A checkpoint beyond it has truncated records and is not
        used. Unusable checkpoints and errors of the object store are passed to ``refused``. Raises DiskFull and the
        errors of ``store``.
        """
        shelf, now_ms = Shelf(self._objects, self._identity, tier_partition), self._clock.now_ms()
        try:
            names = shelf.place.checkpoints(self._objects)
        except TierstateError as error:
            self._refused(shelf.place.prefix, error)
            return None
        for name in reversed([name for name in names if name.key not in self._used]):
            with scratch_folder(store) as folder:
                try:
                    header, start = read_checkpoint(shelf, name, end, now_ms)
                    check_same(self._topic, tier_partition, header.anchor, header.as_of, now_ms)
                    table = fetch_table(self._objects, name.key, header, start, folder)
                except DiskFull:
                    raise
                except TierstateError as error:
                    self._refused(name.key, error)
                    continue
                take_table(table, store, folder)
            self._used.add(name.key)
            return header
        return None


def read_checkpoint(
    shelf: Shelf[ObjectReader], name: PositionName, end: Position, now_ms: TimestampMs
) -> tuple[LiveSetHeader, int]:
    """Return the header, and the offset of the table in bytes, if the header allows the use of the checkpoint.

    Raises CorruptData if the header is damaged, and InvalidRequest if it is foreign, too old or beyond ``end``.
    """
    header, start = read_header(shelf.objects, name, CHECKPOINT, shelf.place, shelf.identity)
    if header.position > end:
        raise InvalidRequest("checkpoint is beyond the end of the topic", file=name.key, end=end)
    if now_ms - header.as_of > MAX_AGE_MS:
        # Tombstones after its position may be deleted from the topic: the facts that they erased would stay for ever.
        raise InvalidRequest("checkpoint is too old", file=name.key, as_of=header.as_of)
    return header, start
