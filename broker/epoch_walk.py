"""The leader epoch checkpoint of a leader, asked of it instead of read from its disk.

OffsetForLeaderEpoch answers with the newest epoch up to the requested one, and where the log leaves it. So the walk
asks for the epoch before each known one, from the epoch in force down to the first epoch of the log: one request an
epoch. The answers are those of `LeaderEpochFileCache` on that leader (agrees with its file on Kafka 3.9.1 and 4.3.0).
"""

from __future__ import annotations

from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData
from ..state.ids import BrokerId
from .error_codes import error_of
from .raw import EARLIEST, RawClient


def walk_epochs(raw: RawClient, broker: BrokerId, topic: str, partition: int, epoch: LeaderEpoch) -> Lineage:
    """Return the lineage of the local log on ``broker``, which leads in ``epoch``; its first entry is the log start.

    Raises Fenced if a newer epoch exists, LeaderMoved if the broker does not lead, CorruptData for answers that
    contradict each other. Also raises UnknownTopic, AccessDenied, BrokerUnavailable, TimedOut.
    """
    facts = {"topic": topic, "partition": partition, "broker": broker, "leader_epoch": epoch}
    first = raw.list_offset(broker, topic, partition, EARLIEST, leader_epoch=epoch)
    if (error := error_of(first.code, **facts)) is not None:
        raise error
    oldest = epoch if first.leader_epoch is None else first.leader_epoch
    entries: list[EpochEntry] = []
    current = epoch
    while current > oldest:
        answer = raw.end_of_epoch(broker, topic, partition, LeaderEpoch(current - 1), epoch)
        if (error := error_of(answer.code, **facts)) is not None:
            raise error
        if answer.leader_epoch is None or answer.leader_epoch >= current or answer.offset < first.offset:
            raise CorruptData("the leader contradicts itself about its epochs", asked=current - 1, **facts)
        entries.append(EpochEntry(current, answer.offset))
        current = answer.leader_epoch
    entries.append(EpochEntry(oldest, first.offset))
    return Lineage(tuple(reversed(entries)))
