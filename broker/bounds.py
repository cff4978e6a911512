"""The bounds of a partition's log on its leader, fenced by one leader epoch."""

from __future__ import annotations

from ..state.epochs import LeaderEpoch
from ..state.ids import BrokerId
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation, LocalBounds
from .answers import RawOffset
from .error_codes import error_of
from .raw import EARLIEST, LATEST, RawClient


def read_bounds(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, epoch: LeaderEpoch | None = None
) -> LocalBounds:
    """As ``broker`` knows them. All three belong to one leader epoch: ``epoch``, or the one of the first answer.

    The last stable offset is asked first and the local start last, so that each is at most as old as what a caller
    compares it with. Raises LeaderMoved (it does not lead, or has not heard of this epoch), Fenced (a newer epoch
    exists), UnknownTopic, AccessDenied, BrokerUnavailable, TimedOut.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker, "epoch": epoch}
    stable = _checked(raw.list_offset(broker, topic, partition, LATEST, Isolation.READ_COMMITTED, epoch), facts)
    fence = stable.leader_epoch if epoch is None else epoch
    high = _checked(raw.list_offset(broker, topic, partition, LATEST, leader_epoch=fence), facts)
    start = _checked(raw.list_offset(broker, topic, partition, EARLIEST, leader_epoch=fence), facts)
    return LocalBounds(start.offset, high.offset, stable.offset, fence)


def offset_at(raw: RawClient, broker: BrokerId, topic: str, partition: int, at: TimestampMs) -> Offset | None:
    """The first offset whose timestamp is ``at`` or later, in the local log; None when there is none.

    A known trap (reading.md, "By time"): the answer may lie below the broker's own log start.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker}
    found = _checked(raw.list_offset(broker, topic, partition, at), facts)
    return found.offset if found.offset >= 0 else None


def _checked(said: RawOffset, facts: dict[str, object]) -> RawOffset:
    error = error_of(said.code, **facts)
    if error is not None:
        raise error
    return said
