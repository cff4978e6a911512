"""Elections, clean and unclean: records that the log still has stay readable, lost ones are never served again."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.api.gateways import asgi_call
from tests.leader.real import eventually
from tests.scenarios.story import Effect, Story, observes
from tierstate import read_records
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.facts import OrderKind

pytestmark = pytest.mark.kafka

PER_SEGMENT = 4
ROLLED_BY_SIZE = {"internal_segment_bytes": str(PER_SEGMENT * 129), "segment_index_bytes": "1048576"}
"""A follower that truncates inside a segment forgets an index entry, and Kafka fails at one that should be full."""


def produces(story: Story, records: int) -> None:
    """Produce a segment at a time, on every replica in sync before the next: all roll at the same records."""
    written = story.topic("orders").written.setdefault(0, {})
    end = max(written, default=-1) + 1 + records
    while (at := max(written, default=-1) + 1) < end:
        story.when.produces("orders", min(end - at, PER_SEGMENT - at % PER_SEGMENT))


def by_consumer(story: Story, end: int) -> dict[int, bytes]:
    """Read by a program of a user's own."""
    sandbox, cluster = story.sandbox, story.cluster
    name, store = story.topic("orders").name, cluster.store_folder.as_uri()
    batches = read_records(
        sandbox.client_config, store, name, 0, 0, end, settings={"tier_state.topic": cluster.spec.name}
    )
    rows = [row for batch in batches for row in batch.select(["offset", "value"]).to_pylist()]
    values = {row["offset"]: row["value"] for row in rows}
    assert len(values) == len(rows), "a record was read twice"
    return values


def by_gateway(story: Story, end: int) -> dict[int, bytes]:
    """Read over HTTP, page by page."""
    service = FetchService(story.eyes.reader, Gateway(), SystemClock(), hidden=())
    call, values = asgi_call(create_app(service)), dict[int, bytes]()
    path = f"/v1/topics/{story.topic('orders').name}/partitions/0/records"
    while (at := max(values, default=-1) + 1) < end:
        answer = call(path, "application/x-ndjson", offset=at)
        assert answer.status_code == 200, answer.text
        rows = [orjson.loads(line) for line in answer.text.splitlines()]
        assert rows, f"nothing at {at}"
        values |= {row["offset"]: row["value"].encode() for row in rows if "offset" in row}
    service.close()
    return values


@observes(Effect.COPIED, Effect.TRIMMED, Effect.LEADER_MOVED, Effect.REMOTE_READ)
def test_after_every_clean_election_all_that_was_copied_before_is_read_by_every_route(story_three: Story) -> None:
    """Trimming takes the old epochs from the broker's own checkpoint: the logical lineage keeps them."""
    given, when, then = story_three
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1, 2])
    produces(story_three, 9)
    when.agent(0).works()
    starts = [0]
    for leader in (1, 2, 0):
        end = len(story_three.topic("orders").written[0])
        when.leadership("orders", to=leader)
        starts.append(end)
        truth = story_three.topic("orders").truth(0, 0, end)
        assert by_consumer(story_three, end) == truth
        produces(story_three, 8)
        when.agent(leader).works()
        end += 8
        then.local("orders").starts_at(end - 1)
        then.remote("orders").holds(0, end - 2).has_epochs_from(*starts)
        truth = story_three.topic("orders").truth(0, 0, end)
        assert by_consumer(story_three, end) == truth
        assert by_gateway(story_three, end) == truth
        then.reader("orders").reads_from(0, total=end, remote=end - 1)
    checkpoint = story_three.sandbox.brokers[0].log_dir / f"{story_three.topic('orders').name}-0"
    assert len((checkpoint / "leader-epoch-checkpoint").read_text().splitlines()) < 2 + len(starts)


def lost(story: Story, first: int) -> set[str]:
    """Forget the records from there on, which were lost; return the keys of objects that hold some of them."""
    written = story.topic("orders").written[0]
    for offset in [each for each in written if each >= first]:
        del written[offset]
    return {key for key in story.then.remote("orders").objects() if base(key) >= first}


def base(key: str) -> int:
    return int(Path(key).name[:20])


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [True, False], ids=["trimmed", "not-trimmed"])
@observes(Effect.COPIED, Effect.AGENT_STOPPED, Effect.BROKER_DOWN, Effect.LEADER_MOVED, Effect.DELETED)
def test_records_lost_in_an_unclean_election_are_never_served(story_three: Story, allowed: bool) -> None:
    given, when, then = story_three
    given.settings(trim={"allow_unclean": allowed}, sweep={"grace": 2})
    unclean = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1", **ROLLED_BY_SIZE}
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1], twin=False, **unclean)
    name = story_three.topic("orders").name
    produces(story_three, 9)
    when.broker_stops(1)
    produces(story_three, 8)  # 9..16, on broker 0 alone
    when.agent(0).works()
    then.remote("orders").holds(0, 15)
    then.local("orders").starts_at(16 if allowed else 0)
    if not allowed:
        then.agent(0).says(name, 0, not_trimmed="unclean.leader.election.enable=true")
    produces(story_three, 4)  # 17..20: one more is rolled
    when.agent(0).stops_before("delete-records" if allowed else "append copy-finished")
    when.broker_is_killed(0)
    branch = lost(story_three, 9)
    assert {base(key) for key in branch} == {12, 16}
    when.broker_starts(1)
    eventually(lambda: when.leads("orders") == 1, 90)
    produces(story_three, 8)  # 9..16 again, of another branch
    when.agent(1).works()
    then.remote("orders").holds(0, 15)
    then.reader("orders").reads_all()
    then.local("orders").starts_at(16 if allowed else 0)
    finished = {key for key in branch if base(key) == 12 or allowed}
    assert finished <= {*then.remote("orders").objects()}, "lineage condemns nothing"

    when.broker_starts(0)
    eventually(lambda: story_three.admin.in_sync(name, 0) == {0, 1}, 120)
    produces(story_three, 8)  # 17..24: records that the sleeper would trim are uncopied now, and its broker leads again
    when.leadership("orders", to=0)
    view, start = then.remote("orders").view, then.remote("orders").bounds.local_start
    when.agent(0).resumes()
    assert then.remote("orders").view.readable == view.readable
    assert then.remote("orders").bounds.local_start == start
    then.reader("orders").reads_all()

    when.agent(0).works()
    then.remote("orders").holds(0, 23)
    then.reader("orders").reads_all()
    for before in (14, 16, 20):
        when.orders("orders", OrderKind.DELETE_RECORDS, before=before)
        when.agent(0).works()
        assert branch & {*then.remote("orders").objects()} >= finished, "this branch's log start condemns another's"
        then.log("orders").starts_at(before)
        then.reader("orders").reads_all().is_refused(before - 1)
    when.orders("orders", OrderKind.DISABLE_DELETE)
    eventually(lambda: when.agent(0).works() and not branch & {*then.remote("orders").objects()}, 60)
