"""Read the bounds of a partition's log, and its epochs, from a broker, fenced by one leader epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData, TierstateError, Unavailable
from ..state.ids import BrokerId
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation, LocalBounds
from .answers import Place, RawOffset
from .error_codes import check, error_of
from .raw import EARLIEST, EARLIEST_LOCAL, LATEST, RawClient

BELOW_EVERY_EPOCH = -2
"""Kafka answers this epoch with the start of the first epoch that it knows. (-1 means "no epoch".)"""


def read_bounds(
    raw: RawClient,
    broker: BrokerId,
    topic: str,
    partition: int,
    epoch: LeaderEpoch | None = None,
    *,
    both_tiers: bool = False,
) -> LocalBounds:
    """Return the log's bounds on ``broker``, all of one leader epoch: ``epoch``, or the epoch of the first answer.

    The last stable offset is requested first, and the local start last: so the local start is never older than an end
    that it is compared with. Raises LeaderMoved if ``broker`` does not lead or does not know this epoch yet, and Fenced
    if a newer epoch exists. Also raises UnknownTopic, AccessDenied, BrokerUnavailable, TimedOut.
    """
    bounds = read_bounds_of(raw, broker, {(topic, partition): epoch}, both_tiers=both_tiers)[topic, partition]
    if isinstance(bounds, TierstateError):
        raise bounds
    return bounds


def read_bounds_of(
    raw: RawClient, broker: BrokerId, epochs: Mapping[Place, LeaderEpoch | None], *, both_tiers: bool = False
) -> dict[Place, LocalBounds | TierstateError]:
    """Return the bounds, or the error of `read_bounds`, for each partition, by three requests to one broker.

    ``both_tiers``: Kafka itself tiers these topics (KIP-405). One more request then distinguishes the two starts.
    Raises BrokerUnavailable and TimedOut, which concern all partitions.
    """
    fences, failed = dict(epochs), dict[Place, TierstateError]()

    def ask(at: TimestampMs, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> dict[Place, RawOffset]:
        left = {place: epoch for place, epoch in fences.items() if place not in failed}
        answers = raw.list_offsets(broker, left, at, isolation) if left else {}
        for place in left:
            facts = {"topic": place[0], "partition": place[1], "broker": broker, "leader_epoch": epochs[place]}
            error = error_of(answers[place].code, **facts)
            if error is not None:
                failed[place] = error
        return answers

    stable = ask(LATEST, Isolation.READ_COMMITTED)
    for place, epoch in epochs.items():
        fences[place] = stable[place].leader_epoch if epoch is None else epoch
    high, start = ask(LATEST), ask(EARLIEST)
    local_start = ask(EARLIEST_LOCAL) if both_tiers else start
    return {
        place: failed.get(place)
        or LocalBounds(
            local_start[place].offset,
            high[place].offset,
            stable[place].offset,
            fences[place],
            start[place].offset if both_tiers else None,
        )
        for place in epochs
    }


class WalkedLog(NamedTuple):
    """The epochs of a leader's log, and its log start. The first entry may begin above the log start."""

    lineage: Lineage
    log_start: Offset


def walk_epochs(raw: RawClient, broker: BrokerId, topic: str, partition: int, epoch: LeaderEpoch) -> WalkedLog:
    """Return the lineage of the local log on ``broker``, which leads in ``epoch``, and the log start.

    OffsetForLeaderEpoch answers with the newest epoch up to the requested one, and where the log leaves it. So the walk
    asks for the epoch before each known one, from the epoch in force down to the first epoch of the log: one request an
    epoch. The answers are those of `LeaderEpochFileCache` on that leader (as in its file on Kafka 3.9.1 and 4.3.0).

    A broker that is killed after DeleteRecords begins its log again at an older log start, and its file begins at the
    newer one. ListOffsets then names no first epoch, and the answer to `BELOW_EVERY_EPOCH` is where the file begins.

    Raises Fenced if a newer epoch exists, LeaderMoved if the broker does not lead, Unavailable if it names no epoch of
    its log, CorruptData for answers that contradict each other. Also raises UnknownTopic, AccessDenied,
    BrokerUnavailable, TimedOut.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker, "leader_epoch": epoch}

    def end_of(which: int) -> RawOffset:
        answer = raw.end_of_epoch(broker, topic, partition, LeaderEpoch(which), epoch)
        check(answer.code, **facts)
        return answer

    first = raw.list_offset(broker, topic, partition, EARLIEST, leader_epoch=epoch)
    check(first.code, **facts)
    oldest, begins = first.leader_epoch, first.offset
    if oldest is None:
        begins = end_of(BELOW_EVERY_EPOCH).offset
        if begins < first.offset:
            raise Unavailable("the leader names no epoch of its log", **facts)
    entries: list[EpochEntry] = []
    current = epoch
    while current > (oldest or 0):
        answer = end_of(current - 1)
        if oldest is None and answer.offset == begins:
            break
        if answer.leader_epoch is None or answer.leader_epoch >= current or answer.offset < begins:
            raise CorruptData("the leader contradicts itself about its epochs", asked=current - 1, **facts)
        entries.append(EpochEntry(current, answer.offset))
        current = answer.leader_epoch
    entries.append(EpochEntry(current if oldest is None else oldest, begins))
    return WalkedLog(Lineage(tuple(reversed(entries))), first.offset)
