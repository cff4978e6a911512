"""The bounds of a partition's log on its leader, and of its epochs, fenced by one leader epoch."""

from __future__ import annotations

from collections.abc import Mapping

from ..state.epochs import LeaderEpoch
from ..state.errors import Fenced, TierstateError
from ..state.ids import BrokerId
from ..state.lineage import EpochEnd, epoch_end
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation, LocalBounds
from .answers import Place, RawOffset
from .error_codes import LeaderMoved, error_of
from .leadership import Leadership
from .raw import EARLIEST, LATEST, RawClient


def read_bounds(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, epoch: LeaderEpoch | None = None
) -> LocalBounds:
    """As ``broker`` knows them. All three belong to one leader epoch: ``epoch``, or the one of the first answer.

    The last stable offset is asked first and the local start last, so that each is at most as old as what a caller
    compares it with. Raises LeaderMoved (it does not lead, or has not heard of this epoch), Fenced (a newer epoch
    exists), UnknownTopic, AccessDenied, BrokerUnavailable, TimedOut.
    """
    said = read_bounds_of(raw, broker, {(topic, partition): epoch})[topic, partition]
    if isinstance(said, TierstateError):
        raise said
    return said


def bounds_of_leader(
    raw: RawClient,
    leadership: Leadership,
    topic: str,
    partition: int,
    epoch: LeaderEpoch | None = None,
    *,
    patience: float,
) -> LocalBounds:
    """`read_bounds` from whoever leads; without an ``epoch`` also when that changes between two of the answers."""

    def ask(broker: BrokerId) -> LocalBounds:
        try:
            return read_bounds(raw, broker, topic, partition, epoch)
        except Fenced as error:
            if epoch is not None:
                raise
            raise LeaderMoved("a leader was elected while it was asked", topic=topic, partition=partition) from error

    return leadership.on_leader(topic, partition, ask, patience)


def read_bounds_of(
    raw: RawClient, broker: BrokerId, asked: Mapping[Place, LeaderEpoch | None]
) -> dict[Place, LocalBounds | TierstateError]:
    """`read_bounds` of many partitions of one broker, by three requests: what each would answer or raise.

    Raises what concerns all of them: BrokerUnavailable, TimedOut.
    """
    fences, failed = dict(asked), dict[Place, TierstateError]()

    def ask(at: TimestampMs, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> dict[Place, RawOffset]:
        left = {place: epoch for place, epoch in fences.items() if place not in failed}
        said = raw.list_offsets(broker, left, at, isolation) if left else {}
        for place in left:
            facts = {"topic": place[0], "partition": place[1], "broker": broker, "leader_epoch": asked[place]}
            error = error_of(said[place].code, **facts)
            if error is not None:
                failed[place] = error
        return said

    stable = ask(LATEST, Isolation.READ_COMMITTED)
    for place, epoch in asked.items():
        fences[place] = stable[place].leader_epoch if epoch is None else epoch
    high, start = ask(LATEST), ask(EARLIEST)
    return {
        place: failed.get(place)
        or LocalBounds(start[place].offset, high[place].offset, stable[place].offset, fences[place])
        for place in asked
    }


def read_end_of_epoch(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
) -> EpochEnd | None:
    """Where ``broker``'s log leaves its newest epoch up to ``epoch``; None when it knows none of them any more.

    Both answers are of ``leader_epoch``. The first epoch that the log knows is asked for last: it only grows while one
    leads, so an epoch that is not before it was known when its end was answered*. Raises as `read_bounds`.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker, "leader_epoch": leader_epoch}
    found = _checked(raw.end_of_epoch(broker, topic, partition, epoch, leader_epoch), facts)
    first = _checked(raw.list_offset(broker, topic, partition, EARLIEST, leader_epoch=leader_epoch), facts)
    return epoch_end(epoch, found.leader_epoch, found.offset, first.leader_epoch)


def offset_at(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, at: TimestampMs
) -> tuple[Offset, TimestampMs] | None:
    """The first offset whose timestamp is ``at`` or later, in the local log, and that; None when there is none.

    A known trap (reading.md, "By time"): the answer may lie below the broker's own log start.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker}
    found = _checked(raw.list_offset(broker, topic, partition, at), facts)
    return (found.offset, found.timestamp) if found.offset >= 0 else None


def _checked(said: RawOffset, facts: dict[str, object]) -> RawOffset:
    error = error_of(said.code, **facts)
    if error is not None:
        raise error
    return said
