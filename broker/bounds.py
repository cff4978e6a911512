"""Read the bounds of a partition's log and of its epochs from the leader, fenced by one leader epoch."""

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
from .raw import EARLIEST, EARLIEST_LOCAL, LATEST, RawClient


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


def bounds_of_leader(
    raw: RawClient,
    leadership: Leadership,
    topic: str,
    partition: int,
    epoch: LeaderEpoch | None = None,
    *,
    timeout_s: float,
    both_tiers: bool = False,
) -> LocalBounds:
    """Return `read_bounds` of the leader. Without ``epoch``, read them again if the leader changes in between."""

    def ask(broker: BrokerId) -> LocalBounds:
        try:
            return read_bounds(raw, broker, topic, partition, epoch, both_tiers=both_tiers)
        except Fenced as error:
            if epoch is not None:
                raise
            raise LeaderMoved("a leader was elected while it was asked", topic=topic, partition=partition) from error

    return leadership.on_leader(topic, partition, ask, timeout_s)


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


def read_end_of_epoch(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
) -> EpochEnd | None:
    """Return the end of the newest epoch up to ``epoch`` in ``broker``'s log. Returns None if the log has none of them.

    Both answers belong to ``leader_epoch``. The log's first epoch only grows during one leader's term, so it is
    requested last: an epoch that is still in the log then was in it when its end was answered. Raises as `read_bounds`.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker, "leader_epoch": leader_epoch}
    end = _checked(raw.end_of_epoch(broker, topic, partition, epoch, leader_epoch), facts)
    first = _checked(raw.list_offset(broker, topic, partition, EARLIEST, leader_epoch=leader_epoch), facts)
    return epoch_end(epoch, end.leader_epoch, end.offset, first.leader_epoch)


def offset_at(
    raw: RawClient, broker: BrokerId, topic: str, partition: int, at: TimestampMs
) -> tuple[Offset, TimestampMs] | None:
    """Return the first local offset with a timestamp of ``at`` or later, and the timestamp. Returns None without one.

    The offset may be below the broker's own log start (reading.md, "By time").
    """
    facts = {"topic": topic, "partition": partition, "broker": broker}
    answer = _checked(raw.list_offset(broker, topic, partition, at), facts)
    return (answer.offset, answer.timestamp) if answer.offset >= 0 else None


def _checked(answer: RawOffset, facts: dict[str, object]) -> RawOffset:
    error = error_of(answer.code, **facts)
    if error is not None:
        raise error
    return answer
