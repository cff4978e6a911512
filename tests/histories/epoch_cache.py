"""Kafka's ``LeaderEpochFileCache``: a leader's answers to OffsetForLeaderEpoch and ListOffsets about its epochs.

Twins of a local tier use it; `tests/broker/test_end_of_epoch.py` compares it with real brokers. ``epochs`` are the
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
    """Return OffsetForLeaderEpoch's answer: the epoch found and its end offset, or (-1, -1)."""
    if asked == -1 or not epochs:
        return -1, -1
    if asked == epochs[-1][0]:
        return asked, log_end
    above = [start for epoch, start in epochs if epoch > asked]
    if not above:
        return -1, -1
    floor = [epoch for epoch, _ in epochs if epoch <= asked]
    return (floor[-1] if floor else asked), above[0]


def earliest_epoch(epochs: Epochs, log_start: int) -> int:
    """Return the epoch that ListOffsets returns with the earliest offset, or -1."""
    return epochs[0][0] if epochs and epochs[0][1] <= log_start else -1


def said_of_epoch(epochs: Epochs, log_start: int, log_end: int, asked: LeaderEpoch) -> EpochEnd | None:
    """Return the end of epoch ``asked``, as `LocalReader.end_of_epoch` derives it from both answers."""
    found, end = end_offset_for(epochs, log_end, asked)
    first = earliest_epoch(epochs, log_start)
    return lineage.epoch_end(asked, _or_none(found), Offset(end), _or_none(first))


def _or_none(epoch: int) -> LeaderEpoch | None:
    return None if epoch < 0 else LeaderEpoch(epoch)
