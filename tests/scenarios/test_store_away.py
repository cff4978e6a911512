"""The object store is away for hours: nothing is trimmed, nothing else is affected, and the backlog is caught up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

from tests.scenarios.outages import HOUR_S, STEP_S, PassingClock, StoreClock, gauge, hours_pass
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.story_agents import StoryAgent
from tests.servers.needs import needs
from tests.servers.store_programs import VERSITYGW
from tests.servers.store_server import versitygw
from tierstate.leader.schedule import MAX_BACKOFF_S
from tierstate.rules.reasons import Reason
from tierstate.state.errors import StorageUnavailable
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

pytestmark = pytest.mark.kafka

RETENTION_MS = 24 * 3_600_000
SECRET = ("test", "testtest")


@dataclass(frozen=True)
class Store:
    """A store, with functions that take it away and bring it back."""

    store: ObjectStore
    goes: Callable[[], object]
    comes: Callable[[], object]


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A folder that is unmounted, or a real S3 server that is killed."""
    if request.param == "folder":
        folder, away = tmp_path / "mounted", tmp_path / "away"
        yield Store(DirectoryStore(folder), lambda: folder.rename(away), lambda: away.rename(folder))
        return
    needs(VERSITYGW)
    (tmp_path / "s3").mkdir()
    with ExitStack() as opened:
        server = opened.enter_context(versitygw(tmp_path / "s3", *SECRET))
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id=SECRET[0],
            aws_secret_access_key=SECRET[1],
        )
        client.create_bucket(Bucket="bucket")
        client.close()
        options = StoreOptions(
            server.url, "us-east-1", credentials=SECRET, connect_timeout=2, read_timeout=10, max_attempts=3
        )
        yield Store(
            opened.enter_context(closing(S3Store("bucket", "tiers", options, StoreClock()))), server.kill, server.start
        )


@dataclass(frozen=True)
class Lag:
    """The rolled segments that are not copied: by the broker's own files, and by the producers' records."""

    segments: int
    bytes: int
    expires_at: int | None

    @classmethod
    def of(cls, story: Story, short: str, copied_to: int) -> Lag:
        topic = story.topic(short)
        logs = sorted((story.sandbox.brokers[0].log_dir / f"{topic.name}-0").glob("*.log"))
        bases = [int(each.stem) for each in logs]
        behind = [at for at, base in enumerate(bases[:-1]) if base > copied_to]
        youngest = [
            max(each.timestamp for offset, each in topic.written[0].items() if bases[at] <= offset < bases[at + 1])
            for at in behind
        ]
        expires_at = min(youngest) + RETENTION_MS if youngest else None
        return cls(len(behind), sum(logs[at].stat().st_size for at in behind), expires_at)

    def is_shown(self, agent: StoryAgent, clock: PassingClock, topic: str) -> None:
        assert gauge(agent, clock, "tierstate_remote_copy_lag_segments", topic) == self.segments
        assert gauge(agent, clock, "tierstate_remote_copy_lag_bytes", topic) == self.bytes
        left = gauge(agent, clock, "tierstate_uncopied_expires_in_seconds", topic)
        if self.expires_at is None:
            assert left is None
        else:
            assert left == pytest.approx((self.expires_at - clock.now_ms()) / 1000, abs=5)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.COPY_FAILED, Effect.LOCAL_READ, Effect.REMOTE_READ)
def test_a_store_that_is_away_for_hours_costs_nothing_but_disk_and_is_caught_up_with_alone(
    story: Story, store: Store, clock: PassingClock
) -> None:
    given, when, then = story
    story.cluster.given_clock, story.cluster.given_store = clock, store.store
    given.topic("orders", per_segment=10, retention_ms=str(RETENTION_MS)).with_segments(3)
    agent, topic = when.agent(0).works(), story.topic("orders").name
    clock.passes(STEP_S)  # the store's Date shows whole seconds: a trim by it may come due after the copy
    agent.works()
    then.local("orders").starts_at(30)
    Lag(0, 0, None).is_shown(agent, clock, topic)
    before = len(then.remote("orders").objects())

    ends = [story.eyes.tiers.end(each) for each in (0, 1)]
    store.goes()
    for hour in range(1, 4):
        when.produces("orders", 10)
        hours_pass(agent, clock, HOUR_S)
        lag = Lag.of(story, "orders", copied_to=29)
        assert lag.segments == hour
        lag.is_shown(agent, clock, topic)
        clock.passes(STEP_S / 4)
        lag.is_shown(agent, clock, topic)  # it counts down between two looks
        then.local("orders").starts_at(30)
        then.reader("orders").reads_from(30, total=1 + hour * 10, remote=0)
        with pytest.raises(StorageUnavailable):
            then.reader("orders").reads_from(0, total=0, remote=0)
    assert [story.eyes.tiers.end(each) for each in (0, 1)] == ends, "facts pile up that nobody can erase now"
    status = agent.status(topic, 0)
    assert status.not_copied_reason is Reason.STORE_AWAY, status.not_copied
    assert status.last_error is not None
    failed = story.effects()[Effect.COPY_FAILED]
    assert status.consecutive_failures == failed
    # nine tries until the back-off is at its longest, and then one for each back-off that passed
    assert 3 * HOUR_S / MAX_BACKOFF_S * 0.75 <= failed <= 9 + 3 * HOUR_S / MAX_BACKOFF_S

    store.comes()
    clock.passes(MAX_BACKOFF_S)
    agent.works()
    clock.passes(HOUR_S)  # remains of failed copies are removed once none of them can still land
    agent.works()
    then.remote("orders").has_segments_from(0, 10, 20, 30, 40, 50).holds(0, 59)
    assert len(then.remote("orders").objects()) == 2 * before
    assert len(then.remote("orders").view.segments) == 6
    then.local("orders").starts_at(60)
    Lag(0, 0, None).is_shown(agent, clock, topic)
    assert agent.status(topic, 0).last_error is None
    then.reader("orders").reads_from(0, total=61, remote=60)
