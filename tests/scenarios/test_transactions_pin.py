"""Transactions across tiers: an open one holds the last stable offset, and with it the copy; readers see only what was
decided, whichever tier it lies in. The truth is what Kafka's own client reads of a twin that nobody tiers."""

from __future__ import annotations

import pytest

from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka

UNCOMMITTED = Isolation.READ_UNCOMMITTED


@observes(Effect.COPIED, Effect.TRIMMED, Effect.RECORDS_ABORTED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_an_open_transaction_pins_the_copy_and_is_the_reason_shown_until_it_ends(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=5, twin=True).with_records(7)
    name = story.topic("orders").name
    pinning = when.transaction("slow").writes("orders", 1)
    when.produces("orders", 20)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0).holds(0, 4)
    then.local("orders").starts_at(5)
    assert then.log("orders").bounds.last_stable_offset == 7
    then.agent(0).says(name, 0, not_copied=r"last stable offset.* 7\b.*|open transaction.* 7\b")
    then.reader("orders").reads_from(0, total=7, remote=5)
    pinning.aborts()
    eventually(lambda: then.log("orders").bounds.last_stable_offset > 27)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 5, 10, 15, 20)
    for isolation in Isolation:
        then.reader("orders", isolation=isolation).reads_all().reads_what_kafka_reads_of_the_twin()


@observes(Effect.COPIED, Effect.RECORDS_ABORTED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_interleaved_transactions_read_alike_wherever_their_markers_lie(story: Story) -> None:
    """Basic transactions, and an aborted one whose marker lies segments behind its records (and in the other tier)."""
    given, when, then = story
    given.topic("orders", per_segment=3, twin=True)
    slow = when.transaction("slow").writes("orders", 2)
    for number in range(4):
        quick = when.transaction("quick").writes("orders", 2)
        when.produces("orders", 1)
        _ = quick.aborts() if number % 2 else quick.commits()
        eventually(lambda number=number: then.log("orders").bounds.high_watermark >= 2 + 4 * (number + 1))
    slow.writes("orders", 1).aborts()
    when.produces("orders", 2)
    eventually(lambda: then.log("orders").bounds.last_stable_offset == then.log("orders").bounds.high_watermark)
    when.agent(0).works()
    assert any(each.aborted for each in then.remote("orders").view.readable)
    for isolation in Isolation:
        then.reader("orders", isolation=isolation).reads_all().reads_what_kafka_reads_of_the_twin()


@observes(Effect.COPIED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_read_committed_ends_before_what_is_undecided_and_read_uncommitted_does_not(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=3).with_records(7)
    undecided = when.transaction().writes("orders", 2)
    when.produces("orders", 4)
    when.agent(0).works()
    then.reader("orders").reads_from(0, total=7, remote=6)
    then.reader("orders", isolation=UNCOMMITTED).reads_from(0, total=13, remote=6)
    undecided.commits()
    eventually(lambda: then.log("orders").bounds.last_stable_offset == 14)
    when.agent(0).works()
    then.reader("orders").reads_all().reads_from(7, total=6, remote=5)


@observes(Effect.COPIED, Effect.RECORDS_ABORTED, Effect.REMOTE_READ)
def test_a_transaction_over_several_partitions_is_hidden_or_seen_in_each(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=2, partitions=2)
    for ends in ("commits", "aborts"):
        over = when.transaction().writes("orders", 2).writes("orders", 2, partition=1)
        getattr(over, ends)()
    when.produces("orders", 2).produces("orders", 2, partition=1)
    for partition in (0, 1):
        eventually(lambda at=partition: then.log("orders", at).bounds.last_stable_offset == 8)
    when.agent(0).works()
    for partition in (0, 1):
        then.reader("orders", partition).reads_all()
        then.reader("orders", partition, UNCOMMITTED).reads_all()


@observes(Effect.COPIED, Effect.RECORDS_ABORTED, Effect.REMOTE_READ)
def test_a_producer_that_is_fenced_by_its_successor_leaves_an_aborted_transaction(story: Story) -> None:
    """Kafka's fencing tests, seen from the reader: init_transactions of the same id ends what the zombie left open."""
    given, when, then = story
    given.topic("orders", per_segment=2, twin=True)
    zombie = when.transaction("same").writes("orders", 3)
    when.transaction("same").writes("orders", 2).commits()
    zombie.was_fenced()
    when.produces("orders", 3)
    eventually(lambda: then.log("orders").bounds.last_stable_offset == then.log("orders").bounds.high_watermark)
    when.agent(0).works()
    for isolation in Isolation:
        then.reader("orders", isolation=isolation).reads_all().reads_what_kafka_reads_of_the_twin()
