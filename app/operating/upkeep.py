"""The chores of an agent for the tier-state partitions that its broker leads: archive, checkpoints, custody."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from ...broker.tier_topic_setup import read_meta
from ...follower.archive import archive, cut_archive
from ...follower.archives import Archives
from ...follower.checkpoint import CheckpointSeed, checkpoint
from ...follower.follower import Follower
from ...follower.following import Seed
from ...follower.live_set_object import LiveSetHeader
from ...follower.object_names import BACKUPS
from ...follower.prefix_claim import PrefixClaim
from ...follower.rocksdb_view import RocksView, ViewIdentity
from ...follower.view_identity import Shelf
from ...leader.brokers_time import BrokersTime
from ...leader.chores import Chore, ChoreLoop
from ...leader.custody import ClusterEvidence, Custodian, CustodyTools
from ...leader.discovery import FactsKept
from ...leader.term import TermContext
from ...rules.custody import CustodyPolicy
from ...runtime.listener import CheckpointUsed, ChoreFailed, ClocksDiffer, Listener
from ...runtime.operation import Operation
from ...schemas.codec import decode_fact
from ...state.errors import TierstateError, Unavailable
from ...state.offsets import Position, TimestampMs
from ...state.view import ViewStore
from ...storage.object_store import ObjectStore
from ...storage.wrapped_stores import claimed
from ..looking.drill_reports import DrillWatch
from ..opening.connection import Connection
from .backup_chore import RESPONSIBLE, BackupChore

ARCHIVE_EVERY_S = 60.0
CHECKPOINT_EVERY_S = 6 * 3600.0
CUT_EVERY_S = 24 * 3600.0
DRILLS_EVERY_S = 60.0


def identity_or_first(connection: Connection) -> ViewIdentity:
    """Return `Connection.identity`, or `topic_identity` if the store does not answer: `Archives` checks it later."""
    try:
        return connection.identity
    except Unavailable:
        return connection.topic_identity


def seed_of(connection: Connection, store: ObjectStore, identity: ViewIdentity, listener: Listener) -> Seed:
    """Return a function that fills one tier-state partition of an empty view from its newest checkpoint.

    It reports `CheckpointUsed` once, after the last tier-state partition.
    """
    newest = CheckpointSeed(connection.topic, store, identity, connection.clock, _refused(listener))
    used = dict[int, LiveSetHeader]()

    def seed(view: ViewStore, tier_partition: int, end: Position) -> None:
        header = newest(view, tier_partition, end)
        if header is not None:
            used[tier_partition] = header
        numbers = range(connection.topic.mapped_partitions)
        if used and tier_partition == numbers[-1]:
            positions = tuple(int(used[each].position) if each in used else -1 for each in numbers)
            listener(CheckpointUsed(positions, sum(each.entries for each in used.values())))
            used.clear()

    return seed


def _refused(listener: Listener) -> Callable[[str, TierstateError], None]:
    return lambda key, error: listener(ChoreFailed("checkpoint", -1, f"{key} is not used: {error}"))


class Upkeep:
    """The chores of a running agent. ``store``: the connection's store, checked by ``claim`` before each change."""

    def __init__(self, connection: Connection, store: ObjectStore, listener: Listener, claim: PrefixClaim) -> None:
        self._settings, self._topic, self._clock = connection.settings, connection.topic, connection.clock
        self._claim = claim
        self._store, self._listener, self.identity = store, listener, identity_or_first(connection)
        self._every_s = min(ARCHIVE_EVERY_S, self._settings.archive.partial_after)
        self.archives = Archives(self._topic, store, self.identity, self._clock, self._every_s)
        self._time = BrokersTime(self._clock, self._topic, store)
        self._scratch = self._settings.state_dir / "agent" / "scratch"
        self.drills = DrillWatch(store, connection.cluster_id)
        backed_up = claimed(store, claim.require, BACKUPS)
        self.backups = BackupChore(connection.broker.raw, backed_up, self._settings, self._clock, self._time.now_ms)

    def chore_loop(
        self, context: TermContext, follower: Follower, kept_facts: FactsKept, led: Callable[[], Collection[int]]
    ) -> ChoreLoop:
        """Return the loop of the chores, not yet started. ``led`` returns the tier-state partitions of this broker."""
        settings, topic = self._settings, self._topic
        policy = CustodyPolicy(
            grace_ms=round(settings.custodian.grace * 1000), reader_grace_ms=round(settings.expire.grace * 1000)
        )
        recorded = read_meta(topic)
        look = ClusterEvidence(
            context.broker,
            recorded.cluster_id if recorded else "",
            settings.tier_state.replication_factor,
            self._topic_problems,
            self._clock,
        )
        custody = CustodyTools(context, look, policy, self._store, self._listener, self.archives.archived_to)

        noted = ""

        def look_around() -> None:
            nonlocal noted
            before, noted = noted, context.time.clocks().noted or ""
            if noted and not before:
                self._listener(ClocksDiffer(noted))
            if kept_facts.refresh():
                follower.reconsider()
            if RESPONSIBLE not in kept_facts.leads:
                self.backups.leave()
                self.drills.leave()

        custodian = Custodian(custody, led)
        # look_around has refreshed `kept_facts` right before
        return ChoreLoop(
            lambda: kept_facts.leads if self._may_try() else (),
            self.chores(),
            custodian,
            look_around,
            self._clock,
            self._listener,
        )

    def _may_try(self) -> bool:
        """Return False while chores are only refused for a time. If a person must act, try them: the error is shown."""
        return self._claim.proof.delete is None or bool(self._claim.contested or self.archives.broken)

    def chores(self) -> list[Chore]:
        """Return the chores. The archive comes first: archived facts may be erased."""
        # left by a killed agent; no other agent uses it now, because this process holds the lock of the view
        shutil.rmtree(self._scratch, ignore_errors=True)
        return [
            Chore("archive", self._every_s, self._archive, self.archives.spoken),
            Chore("checkpoint", CHECKPOINT_EVERY_S, self._checkpoint),
            Chore("archive cut", CUT_EVERY_S, self._cut),
            Chore("drill reports", DRILLS_EVERY_S, self._look_at_drills),
            *([Chore("backup", self.backups.every_s, self.backups.operation)] if self._settings.backup.every else []),
        ]

    def _topic_problems(self) -> list[str]:
        doubts = (self.archives.broken, self._claim.proof.delete)
        return [*self._topic.problems(), *(str(doubt) for doubt in doubts if doubt)]

    def _archive(self, number: int, stop: threading.Event) -> Operation[None]:
        archives = self.archives
        archives.check(number)
        now, archived = self._time.now_ms(), archives.known(number)
        partial_after_ms = round(self._settings.archive.partial_after * 1000)
        spoken = archives.spoken(number)
        archives.heard(number)
        try:
            steps = archive(self._topic, self._shelf(number), now, partial_after_ms, archived, spoken, stop)
            archives.reached(number, (yield from steps))
        except BaseException:
            archives.unheard(number)
            raise

    def _checkpoint(self, number: int, stop: threading.Event) -> Operation[object]:
        self.archives.check(number)  # write no checkpoint of a history that is not in force
        keep, refused, clock = self._settings.checkpoint.keep, _refused(self._listener), self._clock
        with self._scratch_views() as fresh:
            return (yield from checkpoint(self._topic, self._shelf(number), clock, keep, fresh, refused, stop))

    def _look_at_drills(self, number: int, stop: threading.Event) -> Operation[None]:
        if number == RESPONSIBLE:
            self.drills.look()
        yield from ()

    def _cut(self, number: int, stop: threading.Event) -> Operation[object]:
        older = TimestampMs(self._time.clocks().for_deletion - round(self._settings.archive.keep * 1000))
        with self._scratch_views() as fresh:
            return (yield from cut_archive(self._shelf(number), older, fresh))

    def _shelf(self, number: int) -> Shelf[ObjectStore]:
        return Shelf(self._store, self.identity, number)

    @contextmanager
    def _scratch_views(self) -> Iterator[Callable[[], ViewStore]]:
        """Yield a function that makes views on disk. They are deleted afterwards. Raises Unavailable."""
        try:
            self._scratch.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=self._scratch) as folder:
                numbers = count()
                yield lambda: RocksView(Path(folder) / str(next(numbers)), self.identity, decode_fact)
        except OSError as error:
            raise Unavailable("scratch folder cannot be written", path=self._scratch, reason=error.strerror) from error
