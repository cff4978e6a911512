"""What a partition remembers from one look at the tiers to the next."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from tierstate.consumer.assigned_partition import AssignedPartition, Failed, Looked
from tierstate.state.errors import BrokerUnavailable
from tierstate.state.ids import TopicId


def test_a_log_that_was_cut_off_is_still_to_be_told_of_after_a_look_that_failed() -> None:
    part = AssignedPartition(TopicPartition("orders", 0, 0))
    part.restart(13, lost=True)
    part.add(Failed(13, BrokerUnavailable("the new leader does not answer yet")))
    part.try_again(13, 5.0)
    assert part.lost
    assert (part.next_look(4.9), part.next_look(5.0)) == (None, 13)
    part.add(Looked(9, None, TopicId.of(bytes(16))))
    assert not part.lost
