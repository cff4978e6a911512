"""The user's partition of a generated history: three brokers, each with its own log, start, epochs and segments.

The rules are Kafka's, as in `../shared/design/local_trim_model.py`: a follower truncates where it diverges from its
leader, and a log start truncates the epoch checkpoint. A cleanly elected leader has all records; after an unclean
election, the records that the new leader lacks are lost. ``truth`` is the current leader's log, on which producers may
rely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from tests.histories.replica import Broker, Written
from tests.twins.manual_clock import ManualClock
from tierstate.broker.answers import Place
from tierstate.broker.control import ClusterDescription, OpenTransaction
from tierstate.broker.error_codes import LeaderMoved
from tierstate.broker.groups import TopicGroups
from tierstate.broker.topics import PartitionDescription, TopicDescription
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import Fenced, OffsetOutOfRange, TierstateError, TimedOut, UnknownTopic
from tierstate.state.ids import BrokerId, TopicId, TopicIdPartition
from tierstate.state.offsets import Offset
from tierstate.state.retention import TopicConfig
from tierstate.state.routing import LocalBounds

BROKERS = 3
NAME = "orders"


class Cluster:
    """The brokers and their partition.

    ``ordered``: batch to the offset below which people ordered the deletion of its records, while its branch was in
    force. ``trimming`` is called with the offset of each DeleteRecords before it takes effect. ``listed`` returns all
    groups.
    """

    def __init__(self, rnd: Random, clock: ManualClock, topic_id: TopicId, retention_ms: int) -> None:
        self.rnd, self.clock, self.retention_ms = rnd, clock, retention_ms
        self.partition = TopicIdPartition(topic_id, 0)
        self.brokers = [Broker(number) for number in range(BROKERS)]
        self.leader, self.epoch = self.brokers[0], 0
        self.leader.epochs = [(0, 0)]
        self.unclean = self.anew = self.written = 0
        self.ordered: dict[Written, int] = {}
        self.config = TopicConfig.of(
            {"retention.ms": str(retention_ms), "local.retention.bytes": "0", "unclean.leader.election.enable": "true"}
        )
        self.exists, self.trimmed_at = True, 0
        self.forgetful = rnd.choice((None, None, 2))
        """The broker with old metadata, which reports now and then that the topic does not exist. None: no broker."""
        self.late_trims: list[tuple[int, int, int]] = []
        self.sockets_die = False
        """A request that was not delivered before its deadline is never delivered."""
        self.trimming: Callable[[int], None] = lambda before: None
        self.listed: Callable[[], TopicGroups] = lambda: TopicGroups(())
        self.salt: int = rnd.getstate()[1][0]
        self.transactional = self.salt % 2 == 0
        self.ledger: dict[bytes, Written] = {}
        """Bytes to batch, for all batches that were ever written."""
        self.cut: set[int] = set()
        """Numbers of batches that Kafka's retention or an operator deleted before they were copied."""
        self.looked, self.changes = -1, 0
        """The newest epoch whose leader's agent observed the log since the last change: emptied, or its past settled.
        """
        self.served_again: int | None = None
        """Where the log begins that forgot its log start, while its broker leads. Its term records this beginning."""
        self.unseen: set[int] = set()
        """Epochs without a trace: no agent observed their records, or those of earlier epochs, in time."""
        self.settled: set[int] = set()
        """Epochs whose past was settled by a person."""

    @property
    def truth(self) -> list[Written]:
        return self.leader.log

    # Events.

    def produce(self) -> None:
        """Write some batches and transaction markers; online followers fetch them.

        Transactions have a random generator of their own: histories without transactions stay the same.
        """
        for _ in range(self.rnd.randint(1, 3)):
            count, fate = self.rnd.randint(1, 4), self.fate("data", self.written)
            producer = fate.choice((1, 2, 3)) if self.transactional and fate.random() < 0.4 else -1
            begun = self.leader.open().get(producer)
            aborts = begun.aborts if begun else fate.random() < 0.5
            self._write(count, self.rnd.random() < 0.5, producer, aborts)
        for producer, begun in self.leader.open().items():
            fate = self.fate("marker", self.written)
            if fate.random() < 0.7 or self.written - begun.number > 6:
                self._write(1, fate.random() < 0.5, producer, begun.aborts, is_marker=True)
        for broker in self.brokers:
            if broker is not self.leader and broker.online:
                self.replicate(broker)

    def fate(self, *of_what: object) -> Random:
        """Return a random generator that depends on nothing but the history and ``of_what``."""
        return Random(f"{self.salt} {of_what}")

    def _write(self, count: int, roll: bool, producer: int, aborts: bool, *, is_marker: bool = False) -> None:
        self.written += 1
        now, end = self.clock.now_ms(), self.leader.end
        batch = Written(self.written, end, count, self.epoch, now, producer, aborts, is_marker)
        self.ledger[batch.data] = batch
        self.leader.append(batch, roll)

    def replicate(self, follower: Broker) -> None:
        """The follower truncates where it diverges, and fetches the rest."""
        ours, theirs = self.leader.log, follower.log
        same = 0
        while same < min(len(ours), len(theirs)) and ours[same] is theirs[same]:
            same += 1
        # also where nothing is cut: Kafka drops an epoch that began at the end of the log and never got a record
        follower.truncate_to(ours[same - 1].end if same else 0)
        if follower.end < self.leader.start:
            # it starts again at the leader's log start, with the whole batch that holds it (KAFKA-6975, `Partition`:
            # "will start the log from offset"), so its first segment never begins where no epoch does
            follower.log = [batch for batch in ours if batch.end <= self.leader.start]
            follower.start, follower.epochs, follower.bases = follower.end, [], [follower.end]
            same = len(follower.log)
        for batch in ours[same:]:
            follower.append(batch, self.rnd.random() < 0.4)
        follower.move_start(self.leader.start)

    def elect(self, *, unclean: bool) -> bool:
        able = [b for b in self.brokers if b is not self.leader and b.online is not unclean]
        if not able or (unclean and not any(b.log for b in able)):
            return False
        chosen = self.rnd.choice([b for b in able if b.log] or able) if unclean else self.rnd.choice(able)
        if unclean:
            self.unclean += 1
            for broker in self.brokers:
                broker.online = False
        self.elect_broker(chosen)
        return True

    def elect_broker(self, chosen: Broker) -> None:
        self.leader, chosen.online = chosen, True
        self.epoch += 1
        kept = [entry for entry in chosen.epochs if entry[1] < chosen.end]
        chosen.epochs = [*kept, (self.epoch, chosen.end)]
        elsewhere = self.served_again is not None and chosen.start > self.served_again
        if not kept and (elsewhere or self.looked < self.epoch - 1):
            self.unseen.add(self.epoch)
        if elsewhere:
            self.served_again = None

    def restart(self) -> None:
        """Restart the leader's broker. No other broker can take over, so it leads again, in a new epoch.

        Now and then it was killed before its log start was on the disk. The epoch checkpoint is written at once.
        """
        killed, since = self.fate("killed", self.epoch).random(), self.clock.now_ms() - self.trimmed_at
        start = self.leader.start
        if killed < 0.4:
            self.leader.die(early=since < 5 * 60_000)
        if self.leader.start < start:
            self.served_again = self.leader.start
        self.leader.doomed = []
        self.elect_broker(self.leader)

    def take_all(self) -> None:
        """Delete all records of the leader and the online followers. ``cut`` lists the ones that were not copied."""
        if self.looked < self.epoch:
            self._lose_trace(self.leader.start, self.epoch)
        self.changes, self.looked, self.served_again = self.changes + 1, -1, None
        self.leader.take_all()
        for each in self.brokers:
            if each.online:
                each.move_start(self.leader.start)

    def past(self) -> Lineage:
        """Return the true lineage of the leader's log up to its checkpoint's first epoch, as a person finds it out."""
        starts = dict(self.leader.epochs[:1])
        for batch in self.leader.log:
            starts[batch.epoch] = min(batch.base, starts.get(batch.epoch, batch.base))
        return Lineage.of(*sorted(entry for entry in starts.items() if entry[0] <= self.leader.epochs[0][0]))

    def toggle(self) -> None:
        """Take a follower offline, or bring it online and let it catch up."""
        broker = self.rnd.choice(self.brokers)
        if broker is not self.leader:
            broker.online = not broker.online
            if broker.online:
                self.replicate(broker)

    def toggle_on(self, number: int) -> None:
        """Bring a follower online and let it catch up."""
        self.brokers[number].online = True
        self.replicate(self.brokers[number])

    def begin_anew(self) -> None:
        """The folder of the only replica in sync is lost, and its broker is elected again, with an empty log."""
        for broker in self.brokers:
            broker.online = False
        lost = self.leader
        lost.log, lost.start, lost.epochs, lost.bases, lost.doomed = [], 0, [], [0], []
        self.unclean += 1
        self.anew += 1
        self.elect_broker(lost)

    def order(self, before: int) -> None:
        """Order the deletion below ``before`` of the records that are in ``truth`` now, and of no other branch."""
        for batch in self.truth:
            if batch.base < before:
                self.ordered[batch] = max(self.ordered.get(batch, 0), min(before, batch.end))

    def is_ordered(self, before: int) -> bool:
        """Return whether people ordered the deletion of all records below ``before`` that the leader has."""
        left = (batch for batch in self.truth if self.leader.start < batch.end and batch.base < before)
        return all(self.ordered.get(batch, 0) >= min(before, batch.end) for batch in left)

    def kept_from(self, batch: Written) -> int:
        """Return the offset from which on the batch's records must be readable. Earlier ones may be deleted."""
        if self.clock.now_ms() - batch.time > self.retention_ms:
            return batch.end
        return max(batch.base, self.ordered.get(batch, 0))

    def trim(self, broker: int, epoch: int, before: int) -> None:
        """Let a DeleteRecords reach a broker. It has no effect unless the broker still leads in ``epoch``."""
        if broker != self.leader.number or epoch != self.epoch or before > self.leader.end:
            return
        first, start, self.trimmed_at = self.leader.epochs[:1], self.leader.start, self.clock.now_ms()
        self.leader.move_start(before)
        if first != self.leader.epochs[:1] and self.looked < (oldest := self.leader.epochs[0][0]):
            self._lose_trace(start, oldest)
        for each in self.brokers:
            if each.online:
                each.move_start(before)

    def _lose_trace(self, start: int, oldest: int) -> None:
        """Add ``oldest`` to ``unseen``, which is the first epoch now, and the deleted epochs before it.

        The next agent finds no older epoch, unless a broker forgets its log start: then it finds deleted ones.
        ``start``: the log start before.
        """
        deleted = (each.epoch for each in self.truth if start < each.end and self.looked < each.epoch <= oldest)
        self.unseen |= {oldest, *deleted}

    def trim_late(self) -> None:
        if self.late_trims:
            self.trim(*self.late_trims.pop(self.rnd.randrange(len(self.late_trims))))


class HistoryControl:
    """`BrokerControl` over the cluster. ``freeze`` may freeze the caller before it gets an answer."""

    def __init__(self, cluster: Cluster, freeze: Callable[[], None] = lambda: None) -> None:
        self._of, self._freeze = cluster, freeze

    @property
    def _cluster(self) -> Cluster:
        """The topic that has the name now."""
        return self._of

    def cluster(self) -> ClusterDescription:
        return ClusterDescription("histories", tuple(BrokerId(number) for number in range(BROKERS)))

    def topics(self) -> tuple[TopicDescription, ...]:
        return (self.topic(NAME),) if self._cluster.exists else ()

    def topic(self, name: str) -> TopicDescription:
        if name != NAME or not self._cluster.exists:
            raise UnknownTopic("no such topic", topic=name)
        cluster = self._cluster
        described = PartitionDescription(0, BrokerId(cluster.leader.number), LeaderEpoch(cluster.epoch))
        return TopicDescription(NAME, cluster.partition.topic_id, False, (described,))

    def config(self, topic: str) -> TopicConfig:
        return self._cluster.config

    def bounds(
        self, topic: str, partition: int, *, broker: BrokerId | None = None, epoch: LeaderEpoch | None = None
    ) -> LocalBounds:
        self._freeze()
        leader, now = self._cluster.leader, self._cluster.epoch
        if not self._cluster.exists:
            raise UnknownTopic("no such topic", topic=topic)
        if broker is not None and broker != leader.number:
            raise LeaderMoved("the broker does not lead this partition now", broker=broker)
        if epoch is not None and epoch > now:
            raise LeaderMoved("the broker has not heard of this epoch", leader_epoch=epoch)
        if epoch is not None and epoch < now:
            raise Fenced("a newer leader epoch exists", leader_epoch=epoch)
        end = Offset(leader.end)
        stable = min((begun.base for begun in leader.open().values()), default=end)
        stable = max(stable, leader.start)  # as `maybeIncrementFirstUnstableOffset`: never below the log start
        return LocalBounds(Offset(leader.start), end, Offset(stable), LeaderEpoch(now))

    def configs(self, topics: Iterable[str], *, broker: BrokerId) -> dict[str, TopicConfig | TierstateError]:
        return {topic: self.config(topic) for topic in topics}

    def bounds_of(self, places: Iterable[Place], *, broker: BrokerId) -> dict[Place, LocalBounds | TierstateError]:
        return {place: self.bounds(*place, broker=broker) for place in places}

    def open_transactions(self, topic: str, partition: int, *, broker: BrokerId) -> tuple[OpenTransaction, ...]:
        return ()

    def groups(self, topic: str) -> TopicGroups:
        return self._cluster.listed()

    def groups_of(self, topics: Iterable[str]) -> dict[str, TopicGroups]:
        return {topic: self.groups(topic) for topic in topics}

    def delete_records_on(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float = 5.0
    ) -> Offset:
        cluster = self._cluster
        if broker != cluster.leader.number or not cluster.exists:
            raise Fenced("this broker does not lead the partition: nothing was deleted", broker=broker)
        if before > cluster.leader.end:
            raise OffsetOutOfRange("past the high watermark", valid_start=cluster.leader.start, valid_end=before)
        cluster.trimming(before)
        chance = cluster.rnd.random()
        if chance < 0.1 and not cluster.sockets_die:
            cluster.late_trims.append((broker, cluster.epoch, before))
            raise TimedOut("DeleteRecords was sent, its outcome is unknown", broker=broker)
        if chance < 0.05:
            raise TimedOut("DeleteRecords was sent, and is lost", broker=broker)
        cluster.trim(broker, cluster.epoch, before)
        if chance < 0.15:
            raise TimedOut("DeleteRecords was sent, its outcome is unknown", broker=broker)
        return Offset(cluster.leader.start)

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId | None = None) -> bool:
        cluster = self._cluster
        forgetful = cluster.forgetful == broker and cluster.rnd.random() < 0.5
        return cluster.exists and topic_id == cluster.partition.topic_id and not forgetful

    def may_describe(self, names: Iterable[str], *, broker: BrokerId | None = None) -> bool:
        return True
