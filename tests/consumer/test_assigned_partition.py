"""What a partition remembers from one look at the tiers to the next."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from tierstate.consumer.assigned_partition import AssignedPartition, Failed, Looked
from tierstate.fetch.piece import Fetched, LogicalBounds
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Tier

TOPIC = TopicId.of(bytes(16))


def test_a_log_that_was_cut_off_is_still_to_be_told_of_after_a_look_that_failed() -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    part.restart(13, lost=True)
    part.add(Failed(13, BrokerUnavailable("the new leader does not answer yet")))
    part.try_again(13, 5.0)
    assert part.lost
    assert (part.next_look(4.9), part.next_look(5.0)) == (None, 13)
    part.add(Looked(9, None, TOPIC))
    assert not part.lost


def test_kafkas_turn_that_was_found_while_records_waited_is_looked_for_again() -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    bounds = LogicalBounds(Offset(0), Offset(5), Offset(4), Offset(9), Offset(9))
    part.add(Looked(0, Fetched(b"", Tier.REMOTE, (), Offset(0), Offset(5), Offset(5), bounds), TOPIC))
    part.add(Looked(5, None, TOPIC))
    assert part.next_look(0.0) is None
    assert part.take(100) == []
    assert part.end() is None
    assert part.next_look(0.0) == 5
    now = Looked(5, None, TOPIC)
    part.add(now)
    assert part.end() is now
