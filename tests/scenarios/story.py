"""The language of scenarios on real brokers.

    @observes(Effect.COPIED, Effect.REMOTE_READ)
    def test_what_is_copied_is_read_back(story: Story) -> None:
        given, when, then = story
        given.topic("orders", per_segment=2).with_segments(3)
        when.agent(0).works()
        then.remote("orders").holds(0, 5)
        then.reader("orders").reads_from(1, total=6, remote=5)

A scenario declares the effects that must be seen at least once, and fails when one was not, even if its assertions
hold: a reader that never came to the remote tier proves nothing about it. A scenario without declared effects fails.
Every record has a value of its own; `then.reader` compares the records read with the acknowledged ones.
"""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.leader.real import eventually
from tests.scenarios.story_agents import StoryAgent, StoryCluster
from tests.scenarios.story_kafka import ClusterAdmin, StoryTopic, Writer
from tests.scenarios.story_then import Eyes, LocalTier, LogicalLog, Reader, RemoteTier
from tierstate.app.operating.orders import give, new_order
from tierstate.broker.tier_topic_setup import create_tier_topic
from tierstate.runtime import listener as events
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.id_source import RandomIds
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.facts import OrderKind
from tierstate.state.lineage import below
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

Test = TypeVar("Test", bound=Callable[..., None])
HUGE = 10**15


class Effect(StrEnum):
    """Events that a scenario can be seen to cause."""

    COPIED = "a segment was copied"
    COPY_FAILED = "a copy failed"
    TRIMMED = "the local tier was trimmed"
    TRIM_REFUSED = "a trim was refused"
    LOG_START_MOVED = "the log start moved"
    CONDEMNED = "a segment was condemned"
    DELETED = "a segment's objects were deleted"
    ERASED = "facts were erased"
    TERM_STARTED = "a term began"
    TERM_ENDED = "a term ended"
    ORPHANS_LOOKED_FOR = "all objects of a partition were looked at for orphans"
    REFUSED = "a partition was refused"
    ACT_FAILED = "an operation failed"
    REMOTE_READ = "records were read from the remote tier"
    LOCAL_READ = "records were read from the broker"
    READ_REFUSED = "a read was refused"
    AGENT_STOPPED = "an agent stopped before a step"
    LEADER_MOVED = "another broker leads"
    BROKER_DOWN = "a broker went down"
    RECORDS_ABORTED = "a transaction was aborted"


SHOWN_BY: dict[type[Any], Effect] = {
    events.SegmentCopied: Effect.COPIED,
    events.CopyFailed: Effect.COPY_FAILED,
    events.LocalTrimmed: Effect.TRIMMED,
    events.TrimFailed: Effect.TRIM_REFUSED,
    events.TrimRefused: Effect.TRIM_REFUSED,
    events.LogStartMoved: Effect.LOG_START_MOVED,
    events.SegmentDeleteBegan: Effect.CONDEMNED,
    events.SegmentDeleted: Effect.DELETED,
    events.FactsErased: Effect.ERASED,
    events.TermStarted: Effect.TERM_STARTED,
    events.TermEnded: Effect.TERM_ENDED,
    events.OrphansFound: Effect.ORPHANS_LOOKED_FOR,
    events.PartitionRefused: Effect.REFUSED,
    events.OperationFailed: Effect.ACT_FAILED,
}


def observes(*effects: Effect) -> Callable[[Test], Test]:
    """Declare the effects that a scenario must be seen to have."""

    def declare(test: Test) -> Test:
        @functools.wraps(test)
        def scenario(*args: Any, **kwargs: Any) -> None:
            stories = [each for each in (*args, *kwargs.values()) if isinstance(each, Story)]
            for story in stories:
                story.declared = effects
            test(*args, **kwargs)
            for story in stories:
                story.check()

        return cast(Test, scenario)

    return declare


class Story:
    """One scenario: topics, a tier-state topic, a store folder of its own, an agent for each broker.

    ``overrides`` are tables of the settings file, such as ``trim={"delay": 60}``.
    """

    def __init__(self, sandbox: KafkaSandbox, folder: Path, name: str) -> None:
        self.sandbox, self.name = sandbox, f"{name[:40].strip('-')}-{uuid.uuid4().hex[:6]}"
        self.cluster = StoryCluster(sandbox, self.name, folder / "store")
        self.admin = ClusterAdmin(sandbox)
        self.topics: dict[str, StoryTopic] = {}
        self.agents: dict[int, StoryAgent] = {}
        self.past: list[StoryAgent] = []
        self.seen: Counter[Effect] = Counter()
        self.declared: tuple[Effect, ...] = ()
        self.opened = ExitStack()
        self.given, self.when, self.then = Given(self), When(self), Then(self)
        self.cluster.store_folder.mkdir(parents=True)
        create_tier_topic(sandbox.client_config, self.cluster.spec, SystemClock().now_ms())

    def __iter__(self) -> Iterator[Any]:
        """Support ``given, when, then = story``."""
        return iter((self.given, self.when, self.then))

    def topic(self, short: str) -> StoryTopic:
        return self.topics[short]

    @functools.cached_property
    def eyes(self) -> Eyes:
        """Return the reader of everything that `then` asks."""
        return self.opened.enter_context(Eyes.opened(self.cluster))

    def effects(self) -> Counter[Effect]:
        """Count all effects seen so far."""
        counts = Counter(self.seen)
        for agent in (*self.agents.values(), *self.past):
            counts.update(SHOWN_BY[type(each)] for each in [*agent.job.events] if type(each) in SHOWN_BY)
            counts[Effect.AGENT_STOPPED] += agent.stops_reached
        return counts

    def check(self) -> None:
        assert self.declared, "a scenario declares the effects that must be observed"
        counts = self.effects()
        missing = [each.value for each in self.declared if not counts[each]]
        assert not missing, f"declared, and never observed: {missing}"

    def close(self) -> None:
        for agent in self.agents.values():
            agent.dies()
        self.opened.close()


class Given:
    """The preconditions of a scenario."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def topic(
        self,
        short: str,
        *,
        partitions: int = 1,
        per_segment: int = 10,
        brokers: Sequence[int] | None = None,
        twin: bool = False,
        name: str = "",
        **config: str,
    ) -> GivenTopic:
        """Create a topic that rolls a segment after ``per_segment`` batches (of one record each).

        The local tier may go as soon as it is copied, nothing expires; ``config`` overrides that, with ``_`` for dots.
        ``brokers``: where its replicas lie, the leader first; else on all, and broker 0 leads. ``name``: as it is, for
        stories that share one; then the settings must include it.
        """
        story = self._story
        settings = {
            "index_interval_bytes": "1",  # an entry for every batch, so that a full index rolls the segment
            "segment_index_bytes": str(12 * per_segment),
            "segment_ms": str(HUGE),
            "message_timestamp_after_max_ms": str(HUGE),
            "retention_ms": "-1",
            "local_retention_bytes": "0",
        } | config
        placed = [*(range(len(story.sandbox.brokers)) if brokers is None else brokers)]
        name = name or f"{story.name}-{short}"
        topic = StoryTopic(name, partitions, f"twin-{name}" if twin else None)
        for each in filter(None, (topic.name, topic.twin)):
            story.admin.create(each, partitions, placed, **settings)
        eventually(lambda: all(story.admin.leader(name, number) is not None for number in range(partitions)))
        story.topics[short] = topic
        return GivenTopic(story, topic, per_segment)

    def settings(self, **tables: dict[str, Any]) -> Given:
        """Override settings of every agent opened from now on."""
        self._story.cluster.overrides |= tables
        return self


class GivenTopic:
    def __init__(self, story: Story, topic: StoryTopic, per_segment: int) -> None:
        self._story, self._topic, self._per_segment = story, topic, per_segment

    def with_segments(self, rolled: int, partition: int = 0) -> GivenTopic:
        """Write this many rolled segments, and an active one with one record."""
        return self.with_records(rolled * self._per_segment + 1, partition)

    def with_records(self, records: int, partition: int = 0, at_ms: int | None = None) -> GivenTopic:
        Writer(self._story.sandbox).writes(self._topic, records, partition=partition, at_ms=at_ms)
        return self


class When:
    """The events of a scenario."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def agent(self, index: int) -> StoryAgent:
        """Return the agent of this broker, a new one if the last one died."""
        agents = self._story.agents
        if index not in agents:
            agents[index] = StoryAgent(self._story.cluster, index)
        return agents[index]

    def leader(self, topic: str | int = 0, partition: int = 0) -> StoryAgent:
        """Return the leader's agent; a number as ``topic`` is a partition of the only topic."""
        story = self._story
        short, number = (topic, partition) if isinstance(topic, str) else (next(iter(story.topics)), topic)
        return self.agent(self.leads(short, number))

    def leads(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads; waits for an election to end."""
        name, leader_of = self._story.topic(topic).name, self._story.admin.leader
        eventually(lambda: leader_of(name, partition) is not None, 60)
        leader_index = leader_of(name, partition)
        assert leader_index is not None, "the leader went away again"
        return leader_index

    def agent_dies(self, index: int) -> When:
        """Kill the agent's process; the next `agent(index)` is another."""
        agent = self._story.agents.pop(index)
        self._story.past.append(agent)
        agent.dies()
        return self

    def produces(self, topic: str, records: int, partition: int = 0, at_ms: int | None = None, batch: int = 1) -> When:
        Writer(self._story.sandbox, batch).writes(self._story.topic(topic), records, partition=partition, at_ms=at_ms)
        return self

    def transaction(self, name: str = "t") -> StoryTransaction:
        """Begin a transaction of the transactional producer of this name."""
        return StoryTransaction(self._story, name)

    def leadership(self, topic: str, *, to: int, partition: int = 0) -> When:
        """Move the leadership to a broker that has a replica in sync, by a preferred election."""
        story, name = self._story, self._story.topic(topic).name
        others = [each for each in story.admin.replicas(name, partition) if each != to]
        story.admin.reassign(name, partition, [to, *others])
        story.admin.leads(name, partition, to)
        story.seen[Effect.LEADER_MOVED] += 1
        return self

    def reassigns(self, topic: str, brokers: Sequence[int], partition: int = 0) -> When:
        """Set the replicas, the preferred leader first; ends when all are in sync."""
        self._story.admin.reassign(self._story.topic(topic).name, partition, brokers)
        return self

    def broker_is_killed(self, index: int) -> When:
        self._story.sandbox.kill(index)
        self._story.seen[Effect.BROKER_DOWN] += 1
        return self

    def broker_stops(self, index: int) -> When:
        self._story.sandbox.stop(index)
        self._story.seen[Effect.BROKER_DOWN] += 1
        return self

    def broker_starts(self, index: int) -> When:
        self._story.sandbox.start(index)
        return self

    def config_changes(self, topic: str, **config: str) -> When:
        """Change settings, ``_`` for dots. Agents ask for them every half minute, a new one (`agent_dies`) at once."""
        self._story.admin.alter(self._story.topic(topic).name, **config)
        return self

    def topic_is_deleted(self, topic: str) -> When:
        """Delete the topic, and wait until no broker names it."""
        story, name = self._story, self._story.topic(topic).name
        story.admin.delete(name)
        eventually(lambda: not story.admin.exists(name))
        return self

    def operator_deletes_records(self, topic: str, before: int, partition: int = 0) -> When:
        """Delete records on the broker with Kafka's own tools."""
        self._story.admin.delete_records(self._story.topic(topic).name, partition, before)
        return self

    def orders(self, topic: str, kind: OrderKind, *, partition: int = 0, before: int | None = None) -> When:
        """Write an order as `tierstate pause` and its like do; agents have received it, and obey in their next work."""
        eyes, named = self._story.eyes, self._story.topic(topic)
        place = eyes.place(named, partition)
        cut = None if before is None else Offset(before)
        lineage = None if cut is None else below(eyes.view(named, partition).lineage, cut)
        give(eyes.tiers, eyes.follower, new_order(place, kind, SystemClock(), RandomIds(), before=cut, lineage=lineage))
        for agent in self._story.agents.values():
            agent.job.view.require_fresh(agent.job.view.tier_partition(place), 0)
        return self


class StoryTransaction:
    """A transaction, open from the start; one at a time for each name."""

    def __init__(self, story: Story, name: str) -> None:
        self._story = story
        self._writer = Writer(story.sandbox, transaction=f"{story.name}-{name}").begins()

    def writes(self, topic: str, records: int, partition: int = 0) -> StoryTransaction:
        self._writer.writes(self._story.topic(topic), records, partition=partition)
        return self

    def commits(self) -> None:
        self._writer.commits()

    def aborts(self) -> None:
        self._writer.aborts()
        self._story.seen[Effect.RECORDS_ABORTED] += 1

    def was_fenced(self) -> None:
        """Require that a later producer of the same name aborted it, and that it can do nothing further."""
        self._writer.was_fenced()
        self._story.seen[Effect.RECORDS_ABORTED] += 1


class Then:
    """The required results. Everything here is read again: a view up to an end captured now, the broker, the store."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def remote(self, topic: str, partition: int = 0) -> RemoteTier:
        return RemoteTier(self._story.eyes, self._story.topic(topic), partition)

    def local(self, topic: str, partition: int = 0) -> LocalTier:
        return LocalTier(self._story.eyes, self._story.topic(topic), partition)

    def log(self, topic: str, partition: int = 0) -> LogicalLog:
        """Return both tiers as one log."""
        return LogicalLog(self._story.eyes, self._story.topic(topic), partition)

    def reader(self, topic: str, partition: int = 0, isolation: Isolation = Isolation.READ_COMMITTED) -> Reader:
        def saw(what: str, times: int) -> None:
            self._story.seen[Effect[what]] += times

        return Reader(self._story.eyes, self._story.topic(topic), partition, isolation, saw)

    def agent(self, index: int) -> StoryAgent:
        return self._story.when.agent(index)

    def observed(self, effect: Effect, times: int) -> Then:
        """Require that the effect was seen exactly so often until now."""
        assert self._story.effects()[effect] == times, self._story.effects()
        return self


@contextmanager
def telling(sandbox: KafkaSandbox, folder: Path, name: str) -> Iterator[Story]:
    """Yield a story, closed at the end. Fails the test when no effect was declared for it."""
    story = Story(sandbox, folder, "".join(each if each.isalnum() else "-" for each in name))
    try:
        yield story
    finally:
        story.close()
    assert story.declared, "decorate the scenario with @observes(…)"
