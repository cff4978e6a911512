"""What a leader says of its epochs: Kafka's ``LeaderEpochFileCache``, behind OffsetForLeaderEpoch and ListOffsets.

For the twins of a local tier; `tests/broker/test_end_of_epoch.py` holds it against real brokers. ``epochs`` are the
entries of ``leader-epoch-checkpoint``: epoch and start offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from tierstate.state import lineage
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.lineage import EpochEnd
from tierstate.state.offsets import Offset

Epochs = Sequence[tuple[int, int]]


def end_offset_for(epochs: Epochs, log_end: int, asked: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch: the epoch found and where it ends; (-1, -1) is neither."""
    if asked < 0 or not epochs:
        return -1, -1
    if asked == epochs[-1][0]:
        return asked, log_end
    above = [start for epoch, start in epochs if epoch > asked]
    if not above:
        return -1, -1
    floor = [epoch for epoch, _ in epochs if epoch <= asked]
    return (floor[-1] if floor else asked), above[0]


def earliest_epoch(epochs: Epochs, log_start: int) -> int:
    """ListOffsets of the earliest: the epoch it comes with; -1 is none."""
    return epochs[0][0] if epochs and epochs[0][1] <= log_start else -1


def said_of_epoch(epochs: Epochs, log_start: int, log_end: int, asked: LeaderEpoch) -> EpochEnd | None:
    """What `broker.bounds.read_end_of_epoch` makes of both answers."""
    found, end = end_offset_for(epochs, log_end, asked)
    first = earliest_epoch(epochs, log_start)
    return lineage.epoch_end(asked, _or_none(found), Offset(end), _or_none(first))


def _or_none(epoch: int) -> LeaderEpoch | None:
    return None if epoch < 0 else LeaderEpoch(epoch)
