"""A store refuses every delete of one segment (object lock, a policy): retried for ever, visible, blocking nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.outages import HOUR_S, PassingClock, RefusingStore, gauge, hours_pass
from tests.scenarios.story import Effect, Story, observes
from tests.storage.verdicts import PROMISES, certify
from tierstate.leader.schedule import MAX_BACKOFF_S
from tierstate.rules.reasons import Reason
from tierstate.state.errors import AccessDenied, TierstateError
from tierstate.state.facts import OrderKind
from tierstate.state.segment import SegmentState

HOURS = 3


def test_a_refusing_store_that_refuses_nothing_keeps_every_promise(tmp_path: Path) -> None:
    kept = {promise.name: error for promise, error in certify(RefusingStore(tmp_path / "store"), "certify/")}
    assert kept
    assert set(kept.values()) == {None}
    assert set(kept) <= {promise.name for promise in PROMISES}


@pytest.mark.kafka
@observes(Effect.COPIED, Effect.TRIMMED, Effect.DELETED, Effect.ACT_FAILED, Effect.REMOTE_READ, Effect.READ_REFUSED)
def test_a_delete_that_the_store_refuses_is_tried_for_ever_and_holds_up_nothing_else(
    story: Story, tmp_path: Path
) -> None:
    given, when, then = story
    clock, store = PassingClock(), RefusingStore(tmp_path / "locked")
    story.cluster.given_clock, story.cluster.given_store = clock, store
    given.topic("orders", partitions=2, per_segment=10).with_segments(3, 0).with_segments(3, 1)
    agent, topic = when.agent(0).works(), story.topic("orders").name
    locked = then.remote("orders", 0).view.readable[0].object_key
    tried: list[str] = []

    def refuses(operation: str, key: str) -> TierstateError | None:
        if operation != "delete" or not key.startswith(locked):
            return None
        tried.append(key)
        return AccessDenied("the object is locked", key=key)

    store.refuses = refuses
    when.orders("orders", OrderKind.DELETE_RECORDS, partition=0, before=20)
    when.orders("orders", OrderKind.DELETE_RECORDS, partition=1, before=10)
    for hour in range(HOURS):
        when.produces("orders", 10, partition=0).produces("orders", 10, partition=1)
        hours_pass(agent, clock, HOUR_S)
        for partition in (0, 1):
            then.local("orders", partition).starts_at(40 + hour * 10)
    then.remote("orders", 0).has_segments_from(20, 30, 40, 50).holds(20, 59)
    then.remote("orders", 1).has_segments_from(10, 20, 30, 40, 50).holds(10, 59)
    then.log("orders", 0).starts_at(20)
    then.reader("orders", 0).reads_from(20, total=41, remote=40).is_refused(5)
    assert len(then.remote("orders", 1).objects()) == 5 * 3
    assert len(then.remote("orders", 0).objects()) == 4 * 3 + 3, "only what is locked is left of what expired"

    # once each time that the longest back-off passed, and a few times before
    assert HOURS * HOUR_S / MAX_BACKOFF_S * 0.75 <= len(tried) <= 9 + HOURS * HOUR_S / MAX_BACKOFF_S
    then.observed(Effect.ACT_FAILED, len(tried))
    assert gauge(agent, clock, "tierstate_remote_delete_lag_segments", topic, 0) == 1
    assert gauge(agent, clock, "tierstate_remote_delete_lag_segments", topic, 1) == 0
    assert gauge(agent, clock, "tierstate_consecutive_failures", topic, 0) == len(tried)
    assert gauge(agent, clock, "tierstate_consecutive_failures", topic, 1) == 0
    status = agent.says(topic, 0, not_expired="its removal failed.*the object is locked").status(topic, 0)
    assert status.not_expired_reason is Reason.REMOVAL_FAILED

    store.refuses = lambda operation, key: None
    clock.passes(MAX_BACKOFF_S)
    agent.works()
    assert len(then.remote("orders", 0).objects()) == 4 * 3
    states = {each.state for each in then.remote("orders", 0).view.segments.values()}
    assert states == {SegmentState.COPY_SEGMENT_FINISHED}
    assert gauge(agent, clock, "tierstate_remote_delete_lag_segments", topic, 0) == 0
    assert gauge(agent, clock, "tierstate_consecutive_failures", topic, 0) == 0
    assert agent.status(topic, 0).last_error is None
