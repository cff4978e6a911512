"""The state that a partition keeps from one look at the tiers to the next."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from tests.log.batches import plain_batch
from tierstate.consumer.assigned_partition import AssignedPartition, LookFailure, LookResult
from tierstate.consumer.tiered_message import TieredMessage
from tierstate.fetch.piece import Fetched, LogicalBounds
from tierstate.state.errors import BrokerUnavailable, CorruptData
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Tier

TOPIC = TopicId.of(bytes(16))
BOUNDS = LogicalBounds(Offset(0), Offset(90), Offset(89), Offset(99), Offset(99))


def piece(start: int, end: int, data: bytes) -> LookResult:
    return LookResult(start, Fetched(data, Tier.REMOTE, (), Offset(start), Offset(end), Offset(end), BOUNDS), TOPIC)


def offsets(messages: list[TieredMessage]) -> list[int]:
    return [message.offset() for message in messages]


def test_a_cut_log_is_still_reported_after_a_look_that_failed() -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    part.restart(13, lost=True)
    part.add(LookFailure(13, BrokerUnavailable("the new leader does not answer yet")))
    part.try_again(13, 5.0)
    assert part.lost
    assert (part.next_look(4.9), part.next_look(5.0)) == (None, 13)
    part.add(LookResult(9, None, TOPIC))
    assert not part.lost


def test_a_switch_to_kafka_found_while_records_waited_is_looked_for_again() -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    part.add(piece(0, 5, b""))
    part.add(LookResult(5, None, TOPIC))
    assert part.next_look(0.0) is None
    assert part.take(100) == []
    assert part.end() is None
    assert part.next_look(0.0) == 5
    now = LookResult(5, None, TOPIC)
    part.add(now)
    assert part.end() is now


def test_a_decoding_error_comes_after_the_records_before_it() -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    damaged = bytearray(plain_batch(3, 4))
    damaged[-1] ^= 1
    generation = part.generation
    part.add(piece(0, 7, plain_batch(0, 3) + damaged))
    part.add(piece(7, 9, plain_batch(7, 2)))
    assert offsets(part.take(2)) == [0, 1]
    assert offsets(part.take(100)) == [2]
    for _ in range(3):
        assert part.take(100) == []
        assert part.next_look(0.0) is None
    assert (part.at, part.handed_out) == (3, 3)
    assert part.generation != generation, "a look ahead that is under way would be taken for what comes next"
    failed = part.end()
    assert isinstance(failed, LookFailure)
    assert failed.offset == 3
    assert isinstance(failed.error, CorruptData)
    part.try_again(failed.offset, 10.0)
    assert (part.next_look(9.9), part.next_look(10.0)) == (None, 3)
    part.add(piece(3, 7, plain_batch(3, 4)))
    assert offsets(part.take(100)) == [3, 4, 5, 6]


def test_a_decoder_that_breaks_off_is_not_taken_for_one_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    part.add(piece(0, 3, plain_batch(0, 3)))
    with monkeypatch.context() as patched:
        patched.setattr("tierstate.log.decode.kernels.parse", lambda *given: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            part.take(100)
    assert part.take(100) == []
    assert (part.at, part.next_look(0.0)) == (0, 0)
