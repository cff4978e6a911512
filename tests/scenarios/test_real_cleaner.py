"""The tier-state topic after a real cleaner: the removed records change nothing visible.

Agents copy, trim, expire, sweep the remains of one that died, begin terms and erase, over a topic that Kafka compacts
all the time. Values and tombstones are really removed before anything is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

from tests.scenarios.cleaned import (
    TIER_PARTITIONS,
    Cleaning,
    Died,
    DyingStore,
    Job,
    Restless,
    descriptors,
    fresh_live_sets,
    live_sets,
    meanings,
)
from tests.scenarios.house import House, eventually
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.follower.checkpoint import CheckpointSeed
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.follower.time_travel import Target, archived_entries, replay_archive
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.listener import (
    CopyFailed,
    Event,
    FactsErased,
    HoldReported,
    LocalTrimmed,
    OperationFailed,
    SegmentCopied,
    SegmentDeleteBegan,
    SegmentDeleted,
    TermStarted,
)
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.facts import DeleteReason, LocalTrimIntended, OperatorOrder, OrderKind, SegmentCopyFinished
from tierstate.state.ids import FactId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.lineage import below
from tierstate.state.offsets import Offset, Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment, Term
from tierstate.state.view import MemoryView, ViewStore

pytestmark = [pytest.mark.kafka, pytest.mark.essential]

BATCH = 1_600
"""Records that fill two or three segments."""
KEEP_BYTES = 500_000
FRESH = ("--set", "tier_state.topic=cleaner-fresh")


@dataclass
class Effects:
    """The effects that were seen. A scenario in which one of these is missing proved nothing."""

    events: list[Event] = field(default_factory=list)
    resumed: int = 0
    late: str = ""
    """The key of a fact that landed when its term was over."""
    cleaning: Cleaning = field(default_factory=lambda: Cleaning(0, 0, 0, 0))

    def add(self, job: Job) -> None:
        self.events += job.events
        self.resumed += job.resumed

    def count(self, *kinds: type[Event]) -> int:
        return sum(isinstance(event, kinds) for event in self.events)

    def deletes(self) -> Counter[str]:
        return Counter(event.reason for event in self.events if isinstance(event, SegmentDeleteBegan))

    def erased(self) -> Counter[str]:
        """Count erased facts by the first word of the reason."""
        erased: Counter[str] = Counter()
        for event in self.events:
            if isinstance(event, FactsErased):
                erased[event.why.split()[0]] += event.facts
        return erased

    def require(self) -> None:
        assert self.count(SegmentCopied) >= 16
        assert self.count(LocalTrimmed) >= 4
        assert self.count(TermStarted) >= 6, "in two partitions; one may die before its other, the last has work in one"
        assert self.resumed == 3, "agents that went on from the view of the one before"
        expected = {DeleteReason.RETENTION_SIZE, DeleteReason.OPERATOR_ORDER, DeleteReason.ABANDONED}
        assert self.deletes().keys() >= expected
        assert self.count(SegmentDeleted) >= 6
        assert self.erased().keys() >= {"segment", "fenced", "order", "lower"}
        taken = self.cleaning
        assert taken.values > 0
        assert taken.tombstones > 0
        assert taken.appended - taken.readable == taken.values + taken.tombstones
        assert not [event for event in self.events if isinstance(event, OperationFailed | CopyFailed | HoldReported)]


@dataclass
class History:
    """The history, with everything at rest. ``witness`` is a follower that was there from the beginning."""

    world: Restless
    effects: Effects
    witness: Follower
    checkpoints: list[Position]

    def look(self, partition: TopicIdPartition) -> PartitionView:
        return self.world.look(self.witness, partition)


@pytest.fixture(scope="module")
def history(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with ExitStack() as opened:
        house = House(kafka, tmp_path_factory.mktemp("cleaner") / "house", "cleaner")
        opened.callback(house.close)
        world = Restless(house)
        opened.callback(world.close)
        witness = world.follower("witness")
        opened.callback(witness.close)
        effects = Effects()
        checkpoints = live(world, effects)
        effects.require()
        yield History(world, effects, witness, checkpoints)


def live(world: Restless, effects: Effects) -> list[Position]:
    """Run four agents in turn; the second dies in a copy. Return the checkpoints from before the last one."""
    world.append(3 * BATCH)
    with world.agent() as job:
        job.run_once()
    effects.add(job)
    dead = an_agent_dies(world, effects)
    with world.agent(keep_bytes=KEEP_BYTES) as job, job.running():
        effects.late = a_late_fact_lands(world, job, dead)
        somebody_orders(world, job)
        eventually(lambda: DeleteReason.ABANDONED in deleted(job))
        until_cleaned(world, Cleaning(0, 0, 0, 0))
        eventually(lambda: at_rest(world, job))
    effects.add(job)
    world.tombstones_stay()
    checkpoints = world.checkpoint()
    with world.agent() as job, job.running():
        until_cleaned(world, replace(world.cleaning(), tombstones=0))
        eventually(lambda: at_rest(world, job))
    effects.add(job)
    effects.cleaning = world.cleaning()
    return checkpoints


def an_agent_dies(world: Restless, effects: Effects) -> Term:
    """Let an agent die after its copy-started and two objects; return its term."""
    world.append(BATCH)
    with world.agent(DyingStore(world.house.store)) as job:
        with pytest.raises(Died):
            job.run_once()
        term = world.look(job.view, world.partitions[0]).term
    effects.add(job)
    assert term is not None
    return term


def a_late_fact_lands(world: Restless, job: Job, dead: Term) -> str:
    """Append a fact of the dead agent, after the next one began its term; return its key."""
    partition = world.partitions[0]
    eventually(lambda: world.look(job.view, partition).term != dead)
    return world.say(LocalTrimIntended(partition, Offset(0), dead, 99, world.clock.now_ms()), partition)


def somebody_orders(world: Restless, job: Job) -> None:
    """Order to delete the records of partition 1 below its middle, which is inside a segment."""
    partition = world.partitions[1]
    readable = world.look(job.view, partition).readable
    middle = readable[len(readable) // 2].offsets
    before = Offset((middle.start + middle.end) // 2)
    order_id = FactId.of(RandomIds().uuid())
    kind, lineage = OrderKind.DELETE_RECORDS, below(world.look(job.view, partition).lineage, before)
    order = OperatorOrder(partition, order_id, kind, before, False, "test", world.clock.now_ms(), lineage)
    world.say(order, partition)
    eventually(lambda: not world.look(job.view, partition).orders)


def deleted(job: Job) -> set[str]:
    begun = {event.segment_id: event.reason for event in job.events if isinstance(event, SegmentDeleteBegan)}
    return {begun[event.segment_id] for event in job.events if isinstance(event, SegmentDeleted)}


def until_cleaned(world: Restless, before: Cleaning) -> Cleaning:
    """Wait until the cleaner took values and tombstones. New facts roll segments; only rolled ones are cleaned."""

    def look() -> Cleaning | None:
        world.append(BATCH // 4)
        now = world.cleaning()
        return now if now.values > before.values and now.tombstones > before.tombstones else None

    cleaning: Cleaning = eventually(look)
    return cleaning


def at_rest(world: Restless, job: Job) -> bool:
    """Return whether all is copied, deleted and erased that will be."""
    views = [world.look(job.view, partition) for partition in world.partitions]
    return all(map(world.is_copied, views)) and not any(view.unsettled or view.fenced or view.orders for view in views)


# --- one truth ----------------------------------------------------------------------------------------------------


def test_the_broker_really_compacted_it_and_no_command_would_use_such_a_topic(history: History) -> None:
    refused = history.world.house.run("agent", "--once", code=2).stderr
    assert "min.compaction.lag.ms is 0" in refused


def test_a_follower_of_the_beginning_and_one_of_what_is_left_hold_the_same(history: History) -> None:
    world = history.world
    seen = fresh_live_sets(history.witness)
    assert [position for position, _, _ in seen] == world.ends()
    assert sum(facts for _, facts, _ in seen) <= history.effects.cleaning.readable < sum(world.ends())
    for name in ("agent", "new"):  # the agents' own, resumed by each of them, and one that replays
        view = world.follower(name)
        try:
            assert fresh_live_sets(view) == seen
            assert meanings(view.partition, world.partitions) == meanings(history.look, world.partitions)
        finally:
            view.close()
    memory = open_view(world.tier_topic, world.house.kafka.cluster_id, world.clock)
    try:
        assert fresh_live_sets(memory) == seen
    finally:
        memory.close()


def test_the_archive_of_before_compaction_replays_to_the_same(history: History) -> None:
    world, store = history.world, MemoryView(decode_fact, TIER_PARTITIONS)
    for number in range(TIER_PARTITIONS):
        replayed = replay_archive(Shelf(world.store, world.identity, number), store)
        assert (replayed.holes, replayed.position) == (0, world.tier_topic.end(number))
    assert live_sets(store) == fresh_live_sets(history.witness)


def test_the_late_fact_was_fenced_when_it_landed(history: History) -> None:
    world, partition = history.world, history.world.partitions[0]
    number, store = tier_partition_of(partition, TIER_PARTITIONS), MemoryView(decode_fact, TIER_PARTITIONS)
    entries = archived_entries(Shelf(world.store, world.identity, number))
    at = next(entry.position for entry in entries if entry.key == history.effects.late)
    replay_archive(Shelf(world.store, world.identity, number), store, Target(Position(at + 1)))
    assert history.effects.late in store.state(partition).view().fenced
    assert history.effects.late not in [live.key for live in history.witness.facts(partition)]


def test_a_start_from_a_checkpoint_of_the_compacted_topic_ends_the_same(history: History) -> None:
    world, began = history.world, list[Position]()
    newest = CheckpointSeed(world.tier_topic, world.store, world.identity, world.clock, world.refused)

    def seed(store: ViewStore, number: int, end: Position) -> None:
        header = newest(store, number, end)
        assert header is not None
        began.append(header.position)

    view = world.follower("checkpointed", following=Following(seed=seed))
    try:
        assert began == history.checkpoints
        assert sum(began) < sum(world.ends())
        assert fresh_live_sets(view) == fresh_live_sets(history.witness)
    finally:
        view.close()


def test_the_bucket_alone_means_the_same_in_a_fresh_topic(history: History) -> None:
    world, house = history.world, history.world.house
    house.run("init", *FRESH)
    recovered = house.json("recover", "--execute", "--from-archive", *FRESH)
    assert recovered["executed"] is True
    assert not any(each["gaps"] or each["not_restored"] for each in recovered["partitions"])
    topic = open_tier_topic(world.kafka, TierTopicSpec("cleaner-fresh", TIER_PARTITIONS, 1))
    view = open_view(topic, house.kafka.cluster_id, world.clock)
    try:
        for partition in world.partitions:
            before, after = history.look(partition), world.look(view, partition)
            assert len(before.readable) >= 2
            assert descriptors(after) == descriptors(before)
            assert [encoded(each, after.term) for each in before.readable] == written(view, partition)
            assert before.log_start == after.log_start != 0
        assert meanings(view.partition, world.partitions) == meanings(history.look, world.partitions)
    finally:
        view.close()
        topic.close()
    assert house.json("verify", world.topic, "--level", "3", *FRESH)["findings"] == []
    for number, partition in enumerate(world.partitions):
        read = house.run("consume", f"{world.topic}:{number}", "--format", "%o %s\\n", *FRESH).stdout.splitlines()
        log_start = history.look(partition).log_start
        assert log_start is not None
        assert read == [f"{at} {at:0120d}" for at in range(log_start, world.said[number])]


def encoded(segment: RemoteSegment, term: Term | None) -> bytes:
    assert term is not None
    return encode_fact(SegmentCopyFinished(replace(segment, term=term)))


def written(view: Follower, partition: TopicIdPartition) -> list[bytes]:
    """Return the copy-finished values of the readable segments, as the topic has them."""
    values = {entry.key: entry.value for _, entry in view.store.entries()}
    copy_values = [values[key_of(SegmentCopyFinished(segment))] for segment in view.partition(partition).readable]
    return [value for value in copy_values if value is not None]
