"""Views rebuilt from the topic or from the archive, as of now or as of a position or time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ...follower.archives import archived_topics, has_parted
from ...follower.generations import ViewFolder
from ...follower.rocksdb_view import ViewIdentity
from ...follower.time_travel import Replayed, Target, replay_archive, replay_topic
from ...follower.view_identity import Shelf
from ...schemas.codec import decode_fact
from ...state.errors import BrokerUnavailable, InvalidRequest
from ...state.offsets import TimestampMs
from ...state.view import MemoryView, ViewStore
from .connection import Connection


def archive_identity(connection: Connection, history: int | None = None) -> tuple[ViewIdentity, str | None]:
    """Return the identity of the store's archive of ``history`` (None: newest), and why the topic diverged from it, or
    None. The cluster is queried only if the store has several archives. Raises InvalidRequest if it has no archive.
    """
    identities = archived_topics(connection.store, history)
    if len(identities) > 1:
        identities = [each for each in identities if each.topic_id == connection.topic.topic_id]
    if not identities:
        raise InvalidRequest("no archive of the tier-state topic in this store", store=connection.store.description)
    parted = has_parted(connection.store, identities[0].topic_id, identities[0].history)
    why = None if parted is None else f"the topic no longer has history {identities[0].history}: {parted.message}"
    return identities[0], why


def replay_from_topic(
    connection: Connection, numbers: Iterable[int], store: ViewStore, target: Target
) -> list[Replayed]:
    """Replay tier-state partitions ``numbers`` of the topic into ``store``. Raises the errors of `replay_topic`."""
    now = connection.clock.now_ms()
    with connection.progress("reading the tier-state topic") as advance:
        return [replay_topic(connection.topic, number, store, now, target, _steps(advance)) for number in numbers]


def replay_from_archive(
    connection: Connection, identity: ViewIdentity, numbers: Iterable[int], store: ViewStore, target: Target
) -> list[Replayed]:
    """Replay the archive. Raises as `replay_archive`, and InvalidRequest if it lacks records before the target time."""
    with connection.progress("reading the archive") as advance:
        replayed = [
            replay_archive(Shelf(connection.store, identity, number), store, target, _steps(advance))
            for number in numbers
        ]
    if target.time is not None and not all(each.reached for each in replayed):
        return _settled(connection, replayed, target.time)
    return replayed


def rebuild_into(
    out: Path | None, identity: ViewIdentity, fill: Callable[[ViewStore], list[Replayed]]
) -> tuple[ViewStore, list[Replayed]]:
    """Fill a view and return it: in memory, or in folder ``out``/view, which is replaced once the view is complete."""
    if out is None:
        memory = MemoryView(decode_fact, identity.partitions)
        return memory, fill(memory)
    folder = ViewFolder(out / "view", identity)
    view = folder.fresh()
    try:
        replayed = fill(view)
    except BaseException:
        view.close()
        raise
    folder.install(view)
    return view, replayed


def stored_view(connection: Connection, folder: Path) -> ViewStore:
    """Return the view that a stopped process or `replay --out` left. The caller closes it. Raises InvalidRequest."""
    if not (folder / "view").is_dir():
        raise InvalidRequest("no view in this folder", path=folder)
    view = ViewFolder(folder / "view", connection.topic_identity).resume(connection.clock.now_ms())
    if view is None:
        raise InvalidRequest("the folder holds no view of this tier-state topic", path=folder)
    return view


def archived_view(connection: Connection, target: Target, number: int | None) -> tuple[ViewStore, str | None]:
    """Return a view from the archive of tier-state partition ``number`` (None: of all), and as `archive_identity` why
    the topic diverged from the archive. Raises InvalidRequest, and as `replay_from_archive`.
    """
    identity, parted = archive_identity(connection)
    if number is not None and number >= identity.partitions:
        raise InvalidRequest("no such tier-state partition", number=number, partitions=identity.partitions)
    store = MemoryView(decode_fact, identity.partitions)
    numbers = range(identity.partitions) if number is None else (number,)
    replay_from_archive(connection, identity, numbers, store, target)
    return store, parted


def _settled(connection: Connection, replays: list[Replayed], time: TimestampMs) -> list[Replayed]:
    """Mark each replay as reached unless the topic has records before ``time`` that the archive lacks.

    A quiet tier-state partition has no archived record at or after ``time``, so only the topic shows this.
    """
    settled = []
    try:
        for each in replays:
            end = each.position if each.reached else connection.topic.position_at(each.tier_partition, time)
            if end > each.position:
                raise InvalidRequest(
                    "the archive does not reach this time yet",
                    tier_partition=each.tier_partition,
                    archived_to=each.position,
                    needed=end,
                )
            settled.append(replace(each, reached=True))
    except BrokerUnavailable:
        return replays  # unknown whether records before that time are missing: `reached` stays False
    return settled


def _steps(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that a replay calls with totals. It advances a progress bar by the differences."""
    seen = 0

    def progress(read: int) -> None:
        nonlocal seen
        advance(read - seen)
        seen = read

    return progress
