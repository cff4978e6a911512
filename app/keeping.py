"""What an agent keeps up for the tier-state partitions its broker leads: archive, checkpoints, custody. Wiring only."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..broker.tier_topic import KafkaTierTopic, TierTopic
    from ..follower.archives import Archives
    from ..follower.follower import Follower
    from ..follower.rebuild import Seed
    from ..follower.rocksdb_view import ViewIdentity
    from ..leader.act import Act
    from ..leader.keeper import Chore, Keeper
    from ..leader.term import Seat
    from ..leader.wanted import Wanted
    from ..runtime.clock import Clock
    from ..runtime.listener import Listener
    from ..runtime.settings import Settings
    from ..state.errors import TierstateError
    from ..state.offsets import Position
    from ..state.view import ViewStore
    from ..storage.object_store import ObjectStore

ARCHIVE_EVERY_S = 60.0
CHECKPOINT_EVERY_S = 6 * 3600.0
CUT_EVERY_S = 24 * 3600.0


def archive_every_s(settings: Settings) -> float:
    """How often an agent looks at how far the archive is."""
    return min(ARCHIVE_EVERY_S, settings.archive.partial_after)


def identity_in(store: ObjectStore, cluster_id: str, topic: TierTopic) -> ViewIdentity:
    """`newest_identity`. A store that does not answer now leaves the first history: `Archives` looks again."""
    from ..follower.rocksdb_view import ViewIdentity
    from ..state.errors import Unavailable

    try:
        return newest_identity(store, cluster_id, topic)
    except Unavailable:
        return ViewIdentity(cluster_id, topic.topic_id, topic.mapped_partitions)


def newest_identity(store: ObjectStore, cluster_id: str, topic: TierTopic) -> ViewIdentity:
    """Of the history that counts. Raises what the store does."""
    from ..follower.histories import newest_history
    from ..follower.rocksdb_view import ViewIdentity

    history = newest_history(store, topic.topic_id)
    return ViewIdentity(cluster_id, topic.topic_id, topic.mapped_partitions, history=history)


def seed_of(topic: TierTopic, store: ObjectStore, identity: ViewIdentity, clock: Clock, listener: Listener) -> Seed:
    """Fills an empty view from the newest checkpoint, and tells."""
    from ..follower.checkpoint import CheckpointSeed
    from ..runtime.listener import CheckpointUsed

    newest = CheckpointSeed(topic, store, identity, clock, _refused(listener))

    def seed(view: ViewStore, tier_partition: int, end: Position) -> None:
        header = newest(view, tier_partition, end)
        if header is not None:
            listener(CheckpointUsed(tier_partition, header.position, header.entries))

    return seed


def _refused(listener: Listener) -> Callable[[str, TierstateError], None]:
    from ..runtime.listener import ChoreFailed

    return lambda key, error: listener(ChoreFailed("checkpoint", -1, f"{key} is not used: {error}"))


def keeper_of(
    settings: Settings,
    seat: Seat,
    topic: KafkaTierTopic,
    follower: Follower,
    wanted: Wanted,
    store: ObjectStore,
    identity: ViewIdentity,
    archives: Archives,
    listener: Listener,
) -> Keeper:
    """Of a running agent."""
    from ..broker.tier_topic_setup import read_meta
    from ..leader.custodian import Custody
    from ..leader.custody import ClusterLook, Custodian, led_by
    from ..leader.keeper import Keeper
    from ..rules.custody import CustodyPolicy

    led = led_by(seat.broker, settings.tier_state.topic, seat.broker_id, topic.mapped_partitions)
    policy = CustodyPolicy(
        grace_ms=round(settings.custodian.grace * 1000),
        reader_grace_ms=round(settings.expire.grace * 1000),
    )
    recorded = read_meta(topic)
    look = ClusterLook(
        seat.broker,
        recorded.cluster_id if recorded else "",
        settings.tier_state.replication_factor,
        lambda: [*topic.problems(), *([str(archives.broken)] if archives.broken else [])],
        seat.clock,
    )
    custody = Custody(seat, look, policy, store, listener, archives.archived_to)

    def look_around() -> None:
        if wanted.refresh():
            follower.reconsider()

    chores = chores_of(settings, topic, store, identity, archives, seat.clock, listener)
    # wanted was refreshed right before: by the look around
    return Keeper(lambda: wanted.leads, chores, Custodian(custody, led), look_around, seat.clock, listener)


def chores_of(
    settings: Settings,
    topic: KafkaTierTopic,
    store: ObjectStore,
    identity: ViewIdentity,
    archives: Archives,
    clock: Clock,
    listener: Listener,
) -> list[Chore]:
    """Archive first: what is archived may be erased."""
    from ..follower.archive import archive
    from ..follower.archive_base import cut_archive
    from ..follower.checkpoint import checkpoint
    from ..follower.rocksdb_view import RocksView
    from ..follower.until_stopped import UntilStopped
    from ..leader.keeper import Chore
    from ..schemas.codec import decode_fact
    from ..state.errors import Unavailable
    from ..state.offsets import TimestampMs

    partial_after_ms = round(settings.archive.partial_after * 1000)
    scratch = settings.state_dir / "agent" / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # left by one that was killed: the agent's own view is locked, so ours

    @contextmanager
    def _scratch() -> Iterator[Callable[[], ViewStore]]:
        """Makes views on disk that are gone afterwards. Raises Unavailable."""
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=scratch) as folder:
                numbers = count()
                yield lambda: RocksView(Path(folder) / str(next(numbers)), identity, decode_fact)
        except OSError as error:
            raise Unavailable("scratch folder cannot be written", path=scratch, reason=error.strerror) from error

    def archived(number: int, stop: threading.Event) -> Act[None]:
        archives.check(number)
        now, known = clock.now_ms(), archives.known(number)
        read = UntilStopped(topic, stop)
        spoken = archives.spoken(number)
        archives.heard(number)
        try:
            steps = archive(read, store, identity, number, now, partial_after_ms, known, spoken)
            archives.reached(number, (yield from steps))
        except BaseException:
            archives.unheard(number)
            raise

    def checkpointed(number: int, stop: threading.Event) -> Act[object]:
        archives.check(number)  # no checkpoint of a history that nobody chose
        keep, refused = settings.checkpoint.keep, _refused(listener)
        read = UntilStopped(topic, stop)
        with _scratch() as fresh:
            return (yield from checkpoint(read, store, identity, number, clock, keep, fresh, refused))

    def cut(number: int, stop: threading.Event) -> Act[object]:
        older = TimestampMs(clock.now_ms() - round(settings.archive.keep * 1000))
        with _scratch() as fresh:
            return (yield from cut_archive(store, identity, number, older, fresh))

    return [
        Chore("archive", archive_every_s(settings), archived, archives.spoken),
        Chore("checkpoint", CHECKPOINT_EVERY_S, checkpointed),
        Chore("archive cut", CUT_EVERY_S, cut),
    ]
