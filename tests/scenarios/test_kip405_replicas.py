"""Kafka's own scenarios of tiered storage, re-told: replicas that move, and leaders that never saw the data.

`tests/scenarios/scenarios.md` names the class of Kafka's for each of these. A new replica gets from its leader only
the local tier; its agent knows the rest from the view alone.
"""

from __future__ import annotations

import pytest

from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.test_kip405_offload import CHECKPOINTS
from tierstate.state.facts import OrderKind

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@observes(Effect.COPIED, Effect.TRIMMED, Effect.LEADER_MOVED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_replica_added_later_leads_and_goes_on_where_the_first_leader_ended(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=1, brokers=[0]).with_records(3)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1)
    when.reassigns("orders", [0, 1]).leadership("orders", to=1).produces("orders", 1)
    when.agent(1).works()
    then.remote("orders").has_segments_from(0, 1, 2).holds(0, 2)
    then.local("orders").starts_at(3)
    then.reader("orders").reads_from(0, total=4, remote=3)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_partition_moved_to_a_broker_that_never_saw_it_is_taken_over_from_the_view_alone(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=1, brokers=[0]).with_records(3)
    when.agent(0).works()
    then.local("orders").starts_at(2)
    when.reassigns("orders", [1])
    assert when.leads("orders") == 1
    when.produces("orders", 1)
    when.agent(0).works()
    when.agent(1).works()
    then.remote("orders").has_segments_from(0, 1, 2).holds(0, 2)
    then.local("orders").starts_at(3)
    then.log("orders").starts_at(0)
    then.reader("orders").reads_from(0, total=4, remote=3)


@observes(Effect.COPIED, Effect.LEADER_MOVED, Effect.BROKER_DOWN, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_replica_that_began_empty_leads_after_all_others_are_gone(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=2, brokers=[0, 1]).with_records(7)
    when.agent(0).works()
    when.reassigns("orders", [0, 2])
    when.broker_stops(0)
    assert when.leads("orders") == 2
    story_three.seen[Effect.LEADER_MOVED] += 1
    when.produces("orders", 4)
    when.agent(2).works()
    then.remote("orders").holds(0, 9)
    then.local("orders").starts_at(10)
    then.reader("orders").reads_from(0, total=11, remote=10)
    when.agent_dies(0).broker_starts(0)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.LEADER_MOVED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_replicas_are_shrunk_to_the_one_that_did_not_lead(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("a", per_segment=1, brokers=[0, 1]).with_records(3)
    given.topic("b", per_segment=1, brokers=[1, 0]).with_records(3)
    when.agent(0).works()
    when.agent(1).works()
    when.leadership("a", to=1).leadership("b", to=0)
    when.reassigns("a", [1]).reassigns("b", [0])
    for topic in ("a", "b"):
        when.produces(topic, 1)
        when.leader(topic).works()
        then.remote(topic).has_segments_from(0, 1, 2).holds(0, 2)
        then.local(topic).starts_at(3)
        then.reader(topic).reads_from(0, total=4, remote=3)


@observes(Effect.COPIED, Effect.LEADER_MOVED, Effect.REMOTE_READ, Effect.DELETED)
def test_offsets_are_found_over_both_tiers_and_leader_epochs(story_three: Story) -> None:
    given, when, then = story_three
    first = 1_700_000_000_000
    given.topic("orders", per_segment=2, brokers=[0, 1]).with_records(3, at_ms=first)
    when.leadership("orders", to=1).produces("orders", 3, at_ms=first + 3)
    when.agent(1).works()
    then.log("orders").starts_at(0).ends_at(6)
    then.local("orders").starts_at(4)
    view = then.remote("orders").holds(0, 3).view
    epochs = [view.lineage.epoch_at(offset) for offset in (0, 2, 3)]
    assert epochs[0] == epochs[1] != epochs[2] == view.term.epoch
    for number in range(6):
        then.log("orders").finds_time(first + number, number)
    then.log("orders").finds_time(first - 1, 0).finds_time(first + 6, None)
    then.reader("orders").reads_from(0, total=6, remote=4)
    for before, bases in ((3, (2,)), (4, ())):
        when.orders("orders", OrderKind.DELETE_RECORDS, before=before)
        when.agent(1).works()
        then.log("orders").starts_at(before).finds_time(first, before)
        then.remote("orders").has_segments_from(*bases)


@observes(Effect.COPIED, Effect.BROKER_DOWN, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_a_leader_that_lost_its_checkpoints_and_came_back_first_goes_on(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=1, brokers=[0, 1]).with_records(3)
    when.agent(0).works()
    when.broker_stops(1).broker_stops(0).agent_dies(0)
    for name in CHECKPOINTS:
        (story_three.sandbox.brokers[0].log_dir / name).unlink()
    when.broker_starts(0).broker_starts(1)
    assert when.leads("orders") == 0
    when.produces("orders", 2)
    when.agent(0).works()
    then.remote("orders").has_segments_from(0, 1, 2, 3).holds(0, 3)
    then.reader("orders").reads_from(0, total=5, remote=4)
