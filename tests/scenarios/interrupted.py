"""Agents stopped before any irreversible step that a leader takes, all at once: a partition for every step.

The rows are those of `interrupted_rows.py`. One agent is driven through all its steps and left standing before a
different step in every partition; then something happens to it, to its broker or to its leadership, and an agent goes
on to the end. Every partition must end like the undisturbed partition of the same topic: compare `end_state`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from tests.leader.real import Job, eventually
from tests.scenarios.interrupted_rows import Point, Row
from tests.scenarios.prompt_archive import PromptArchive
from tests.scenarios.story import Effect, Story
from tests.scenarios.story_kafka import Writer
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.runtime.operation import Operation
from tierstate.state.facts import OrderKind
from tierstate.state.ids import TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.storage.directory import DirectoryStore

PER_SEGMENT, SEGMENTS = 4, 3
END = PER_SEGMENT * SEGMENTS
"""The end of the rolled records; one record more is in the active segment."""
DAY_MS = 86_400_000
SWEEP_GRACE_S = 6
PATIENCE_S = 150.0


# --- an agent that stands before a different step in every partition -------------------------------------------------


def where(act: Operation[bool]) -> str:
    """Return the file of the innermost operation that yielded last."""
    inner: Any = act
    while inner.gi_yieldfrom is not None:
        inner = inner.gi_yieldfrom
    return Path(inner.gi_code.co_filename).name


@dataclass
class Frozen:
    """The workers of one agent, each standing before a step."""

    job: Job
    workers: dict[TopicIdPartition, PartitionWorker] = field(default_factory=dict)
    held: dict[TopicIdPartition, Operation[bool]] = field(default_factory=dict)

    def worker(self, partition: TopicIdPartition, name: str) -> PartitionWorker:
        if partition not in self.workers:
            self.workers[partition] = self.job.leader.new_worker(partition, name)
        return self.workers[partition]

    def until(self, partition: TopicIdPartition, name: str, point: Point, nth: int = 1) -> None:
        """Take steps until it stands before the ``nth`` step at this point."""
        worker, left = self.worker(partition, name), nth
        deadline = time.monotonic() + PATIENCE_S
        act = self.held.pop(partition, None) or worker.steps()
        while time.monotonic() < deadline:
            for step in act:
                left -= (where(act), step) == point
                if not left:
                    self.held[partition] = act
                    return
            act = worker.steps()
            time.sleep(0.02)
        raise AssertionError(f"it never came to {point} of {partition}: {worker.last_error}")

    def idle(self, partition: TopicIdPartition, name: str) -> None:
        """Work until nothing is left to do."""
        worker = self.worker(partition, name)

        def done() -> bool:
            return not worker.advance() and not worker.failures

        eventually(done, PATIENCE_S)

    def resume(self) -> None:
        """Let every operation go on to its end, as if its process had been paused."""
        for partition in [*self.held]:
            for _ in self.held.pop(partition):
                pass


@dataclass
class Interrupted:
    """``rows`` are by topic and partition; partition 0 of every topic has none and is worked on without disturbance."""

    story: Story
    rows: dict[tuple[str, int], Row]
    frozen: Frozen

    @property
    def undisturbed(self) -> list[tuple[str, int]]:
        return [(stage, 0) for stage in dict.fromkeys(stage for stage, _ in self.rows)]

    @property
    def places(self) -> list[tuple[str, int]]:
        return [*self.undisturbed, *self.rows]

    def works(self, index: int) -> None:
        """Let the agent of this broker work until every partition has ended like the undisturbed one."""
        agent = self.story.when.agent(index)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            agent.works(PATIENCE_S)
            if not (wrong := self.wrong()):
                break
            assert time.monotonic() < deadline, f"{len(wrong)} partitions did not end as they should: {wrong}"
            time.sleep(0.5)
        for short, partition in self.places:
            self.story.then.reader(short, partition).reads_all()

    def wrong(self) -> dict[str, EndState]:
        """Return the partitions that have not ended like the undisturbed one of their topic."""
        expected = {stage: EXPECTED[stage] for stage, _ in self.rows}
        states = {place: end_state(self.story, *place) for place in self.places}
        return {
            str(self.rows.get((stage, number), stage)): state
            for (stage, number), state in states.items()
            if state != expected[stage]
        }

    def name(self, short: str) -> str:
        return self.story.topic(short).name

    def place(self, short: str, partition: int) -> TopicIdPartition:
        return self.story.eyes.place(self.story.topic(short), partition)


# --- how it ends -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndState:
    """Offsets; ``objects`` by base offset and kind; ``strays`` are keys of objects of no readable segment."""

    log_start: int | None
    local_start: int
    high_watermark: int
    covered: tuple[tuple[int, int], ...]
    objects: tuple[str, ...]
    strays: tuple[str, ...]
    held: bool


def end_state(story: Story, short: str, partition: int) -> EndState:
    """Return the readable offsets and the stored objects: everything except facts and ids."""
    remote = story.then.remote(short, partition)
    view, bounds = remote.view, remote.bounds
    keys = remote.objects()
    readable_keys = {object_key(each.object_key, kind) for each in view.readable for kind in ObjectKind}
    kinds = (f"{int(Path(key).name[:20])}{Path(key).suffix}" for key in keys)
    return EndState(
        view.log_start,
        bounds.local_start,
        bounds.high_watermark,
        tuple((int(each.offsets.start), int(each.offsets.end)) for each in view.coverage.owned),
        tuple(sorted(kinds)),
        tuple(sorted({*keys} - readable_keys)),
        bool(view.holds or view.contradictions),
    )


def _expected(log_start: int, local_start: int, *bases: int) -> EndState:
    objects = sorted(f"{base}{kind}" for base in bases for kind in ObjectKind)
    covered = tuple((base, base + PER_SEGMENT - 1) for base in bases)
    return EndState(log_start, local_start, END + 1, covered, tuple(objects), (), False)


EXPECTED = {
    "copied": _expected(0, END, 0, 4, 8),
    "failed": _expected(0, END, 0, 4, 8),
    "expired": _expected(8, END, 8),
    "ordered": _expected(9, 9, 8),
    "swept": _expected(0, END, 0, 4, 8),
}
"""The end state of an undisturbed run of each topic."""


# --- how it comes to stand there -------------------------------------------------------------------------------------


@contextmanager
def interrupted(story: Story, rows: Sequence[Row]) -> Iterator[Interrupted]:
    """Yield an agent of broker 0, which leads everything, before its step in each partition."""
    with_archive(story)
    by_place: dict[tuple[str, int], Row] = {}
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.stage] = counts.get(row.stage, 0) + 1
        by_place[row.stage, counts[row.stage]] = row
    for short, disturbed in counts.items():
        _fill(story, short, disturbed + 1)
    if "swept" in counts:
        _abandon(story, counts["swept"] + 1)
    story.given.settings(sweep={"grace": SWEEP_GRACE_S if "swept" in counts else DAY_MS})
    scene = Interrupted(story, by_place, Frozen(story.when.agent(0).job))
    for place in scene.places:
        _bring(scene, *place)
    story.given.settings(sweep={"grace": SWEEP_GRACE_S})
    story.seen[Effect.AGENT_STOPPED] += len(scene.frozen.held)
    yield scene


def with_archive(story: Story) -> None:
    """Add an archive that holds each fact at once, and names deleted and erased segments to a sweep."""
    cluster, tiers = story.cluster, story.eyes.tiers
    identity = ViewIdentity(story.sandbox.cluster_id, tiers.topic_id, cluster.spec.partitions)
    archive = PromptArchive(tiers, cluster.store, identity, cluster.clock)
    cluster.archived_to, cluster.archived_deletes = archive.archived_to, archive.deletes


def _fill(story: Story, short: str, partitions: int) -> None:
    """Fill segment by segment, each on all replicas before the next begins, so that they roll at the same records."""
    kept = "-2" if short == "ordered" else "0"
    everywhere = [0, 1, 2]
    story.given.topic(
        short, partitions=partitions, per_segment=PER_SEGMENT, brokers=everywhere, local_retention_bytes=kept
    )
    writer, topic = Writer(story.sandbox, acks="all"), story.topic(short)
    long_ago = int(time.time() * 1000) - 2 * DAY_MS
    for segment in range(SEGMENTS):
        old = long_ago + segment * PER_SEGMENT if short == "expired" and segment < 2 else None
        for partition in range(partitions):
            writer.writes(topic, PER_SEGMENT, partition=partition, at_ms=old)
    for partition in range(partitions):
        writer.writes(topic, 1, partition=partition)


def _abandon(story: Story, partitions: int) -> None:
    """Let an agent die here in the middle of a copy, so that two objects of each partition are left."""
    before = Frozen(story.when.agent(0).job)
    for partition in range(partitions):
        place = story.eyes.place(story.topic("swept"), partition)
        before.until(place, story.topic("swept").name, ("copier.py", "put manifest"), 2)
    story.when.agent_dies(0)


def _bring(scene: Interrupted, short: str, partition: int) -> None:
    """Bring a partition to the step of its row; without a row, to the end."""
    story, frozen, row = scene.story, scene.frozen, scene.rows.get((short, partition))
    place, name = scene.place(short, partition), scene.name(short)
    if short == "ordered":
        frozen.idle(place, name)
        story.when.orders(short, OrderKind.DELETE_RECORDS, partition=partition, before=9)
    elif short == "expired" and partition == 0:
        for number in (0, *(number for stage, number in scene.rows if stage == short)):
            frozen.idle(scene.place(short, number), name)  # before the broker itself may delete anything old
        story.when.config_changes(short, retention_ms=str(DAY_MS))
    if short == "failed" and row is not None:
        with corrupted(story, name, partition):
            frozen.until(place, name, row.point, row.nth)
        return
    if row is None:

        def ended() -> bool:
            frozen.idle(place, name)
            return end_state(story, short, partition) == EXPECTED[short]

        eventually(ended, PATIENCE_S)
    elif row.point == ("sweeper.py", "delete orphan"):
        frozen.until(place, name, ("expirer.py", "append delete-finished"))
        (gone,) = (each.subject for each in scene.story.then.remote(short, partition).view.unsettled if each.subject)
        late = object_key(gone.object_key, ObjectKind.LOG)
        DirectoryStore(story.cluster.store_folder).put_if_absent(late, b"landed after its segment was deleted")
        frozen.until(place, name, row.point)
    else:
        frozen.until(place, name, row.point, row.nth)


@contextmanager
def corrupted(story: Story, name: str, partition: int) -> Iterator[None]:
    """Damage a byte of the first segment on broker 0 for the length of the block."""
    file = story.sandbox.brokers[0].log_dir / f"{name}-{partition}" / f"{0:020d}.log"
    _flip(file)
    yield
    _flip(file)


def _flip(file: Path) -> None:
    with file.open("r+b") as log:
        log.seek(100)
        byte = log.read(1)[0]
        log.seek(100)
        log.write(bytes([byte ^ 0xFF]))


# --- what happens to it ----------------------------------------------------------------------------------------------


def leadership_of_all(scene: Interrupted, to: int) -> None:
    """Move the leadership of every partition by a preferred election."""
    story = scene.story
    order = [to + 1, *(each + 1 for each in range(3) if each != to)]
    replicas = {TopicPartition(scene.name(short), partition): order for short, partition in scene.places}
    admin: Any = KafkaAdminClient(bootstrap_servers=story.sandbox.bootstrap.split(","))
    try:
        admin.alter_partition_reassignments(replicas)
        eventually(lambda: not admin.list_partition_reassignments([*replicas]), 60)

        def moved() -> bool:
            names = {each.topic for each in replicas}
            admin.elect_leaders(
                0,
                {name: [each.partition for each in replicas if each.topic == name] for name in names},
                raise_errors=False,
            )
            return all(story.admin.leader(each.topic, each.partition) == to for each in replicas)

        eventually(moved, 60)
    finally:
        admin.close()
    story.seen[Effect.LEADER_MOVED] += 1


def leaders(scene: Interrupted) -> set[int | None]:
    """Return the leaders of all partitions, None for one without. Raises KafkaException when no broker answers."""
    return {scene.story.admin.leader(scene.name(short), partition) for short, partition in scene.places}
