"""The ground of a soak: three brokers, an agent process for each, a store that can go away, topics and writers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from tests.scenarios.house import House, Running, run
from tests.scenarios.story_agents import StoryCluster
from tests.scenarios.story_kafka import ClusterAdmin
from tests.soak.journal import Journal, Said, partition_of
from tests.soak.topics import COPY_QUOTA, EVERYWHERE, SEGMENT_BYTES, SWEEP_GRACE_S, TOPICS, SoakTopic
from tests.soak.truth import Truth
from tests.soak.writers import SoakWriter, TransactionWriter
from tierstate.broker.open import open_broker
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import TierstateError
from tierstate.state.routing import LocalBounds
from tierstate.storage.directory import DirectoryStore

PATIENCE_S = 120.0
STOP_S = 30.0
"""The time limit after SIGTERM, on a loaded machine."""

T = TypeVar("T")


class Ground:
    """Opened by `open`; `close` ends every process. Agents are started by the thread that opens it, and die with it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.kafka = KafkaSandbox(3, folder=folder / "kafka")
        self.name = f"soak{seed}"
        self.truth = Truth()
        self.journal = Journal()
        self.agents: dict[int, Running] = {}
        self.writers: list[SoakWriter] = []
        self.given_to_groups = 0
        self.quiet: list[str] = []
        """Topics of one partition that get no further records."""
        self.lost_topics: list[str] = []
        """Ids of tier-state topics, oldest first."""

    def open(self) -> Ground:
        self.kafka.open()
        self.house = House(self.kafka, self.folder / "house", self.name)
        text = self.house.config.read_text().replace("replication_factor = 1", "replication_factor = 3")
        text = text.replace("[trim]", "[trim]\nallow_unclean = true")
        grace = f'[sweep]\ngrace = "{SWEEP_GRACE_S}s"\n[expire]\ngrace = "5s"\n[copy]\nquota = {COPY_QUOTA}\n'
        self.house.config.write_text(text + grace)
        self.cluster = StoryCluster(self.kafka, self.name, self.house.store)
        self.admin = ClusterAdmin(self.kafka)
        self._broker = open_broker(self.kafka.client_config)
        self.away = self.house.store.with_name("away")
        self.house.run("init")
        self.cluster.given_store = DirectoryStore(
            self.house.store, make=False
        )  # while it is away, no other process makes another
        for topic in TOPICS:
            self._create(topic)
        for index in EVERYWHERE:
            self.start_agent(index)
        for index in EVERYWHERE:
            self.until(partial(self.journal.count, "agent ready", index), "an agent is ready")
        return self

    def write(self) -> None:
        """Start to write to all topics."""
        for topic in TOPICS:
            kind = TransactionWriter if topic.transactional else SoakWriter
            name = self.full(topic)
            writer = kind(self.kafka.bootstrap, name, topic.partitions, topic.rate, self.truth, self.seed)
            self.writers.append(writer.start())

    def close(self) -> None:
        for writer in self.writers:
            writer.stop()
        if hasattr(self, "house"):
            self.house.close()
        if hasattr(self, "_broker"):
            self._broker.close()
        for broker in self.kafka.brokers:
            broker.kill()  # a clean end is not needed
        self.kafka.close()

    # --- agents ------------------------------------------------------------------------------------------------------

    def start_agent(self, index: int) -> Running:
        place = self.folder / f"agent-{index}"
        flags = [f"agent.log_dirs={self.kafka.brokers[index].log_dir}", f"state_dir={place}"]
        self.agents[index] = self.house.start("agent", *(part for flag in flags for part in ("--set", flag)))
        self.journal.follow(index, self.agents[index].err)
        return self.agents[index]

    def stop_agent(self, index: int) -> int:
        """Stop the agent by SIGTERM; return its exit code. Raises AssertionError, with its stacks, if it goes on."""
        return self.agents[index].stop(seconds=STOP_S)

    def heard(self, since: float, event: str, name: str, partition: int, agent: int | None = None) -> list[Said]:
        """Return the agents' events about one partition."""
        events = self.journal.since(since, event, agent, topic=name)
        return [each for each in events if partition_of(each) == partition]

    def copied(self, since: float, name: str, partition: int, agent: int | None = None) -> list[Said]:
        return self.heard(since, "segment copied", name, partition, agent)

    def pids(self) -> dict[int, int]:
        return {index: each.process.pid for index, each in self.agents.items() if each.process.poll() is None}

    # --- Kafka -------------------------------------------------------------------------------------------------------

    def full(self, topic: SoakTopic) -> str:
        return f"{self.name}-{topic.short}"

    def places(self) -> Iterator[tuple[SoakTopic, str, int]]:
        """Yield topic, its full name, partition."""
        for topic in TOPICS:
            for partition in range(topic.partitions):
                yield topic, self.full(topic), partition

    def movable(self) -> list[tuple[SoakTopic, str, int]]:
        """Return the places that any broker may lead."""
        return [each for each in self.places() if each[0].moves]

    def bounds(self, topic: SoakTopic) -> LocalBounds:
        """Return the bounds of a topic's only partition, by its broker."""
        return self.until(
            lambda: self._broker.control.bounds(self.full(topic), 0), "the broker answers", lambda each: True
        )

    def writer_of(self, topic: SoakTopic) -> SoakWriter:
        return next(each for each in self.writers if each.topic == self.full(topic))

    def leader(self, name: str, partition: int) -> int:
        """Return the leader; waits for an election to end."""
        led = self.until(lambda: self.admin.leader(name, partition), "a leader", lambda each: each is not None)
        assert led is not None
        return led

    def led_by(self, index: int) -> list[tuple[str, int]]:
        return [(name, partition) for _, name, partition in self.movable() if self.leader(name, partition) == index]

    def lead(self, name: str, partition: int, to: int) -> None:
        """Move the leadership by the order of the replicas and a preferred election."""
        order = [to, *(each for each in EVERYWHERE if each != to)]
        self.patiently(lambda: self.admin.reassign(name, partition, order))
        self.until(lambda: self.patiently(lambda: self.admin.elect_preferred(name, partition)) == to, f"{to} leads")

    def bring_store_back(self) -> list[str]:
        """Bring the store back; return the files that were made in its place, which are put aside."""
        paths: list[str] = []
        while self.away.exists():
            if self.house.store.exists():
                paths += sorted(str(each.relative_to(self.house.store)) for each in self.house.store.rglob("*"))
                self.house.store.rename(self.folder / f"made-anew-{time.monotonic_ns()}")
            with suppress(OSError):  # made once more, between the two renames
                self.away.rename(self.house.store)
        return paths

    def keep_everything(self) -> None:
        """Let nothing expire from now on."""
        for topic in TOPICS:
            self.patiently(partial(self.admin.alter, self.full(topic), retention_ms="-1"))

    def until_in_sync(self) -> None:
        """Wait for every replica of every partition, those of the tier-state topic included."""
        tiers = [(self.house.tier_topic, partition, EVERYWHERE) for partition in range(2)]
        ours = [(name, partition, topic.brokers) for topic, name, partition in self.places()]
        for name, partition, brokers in (*ours, *tiers):
            replicas = {*brokers}
            self.until(partial(self.admin.in_sync, name, partition), f"{name} in sync", replicas.__eq__)

    def patiently(self, call: Callable[[], T]) -> T:
        """Call again on errors: Kafka may be in the middle of an election."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except (KafkaException, KafkaError, TierstateError, AssertionError, KeyError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def until(
        self, look: Callable[[], T], what: str, right: Callable[[T], bool] = bool, seconds: float = PATIENCE_S
    ) -> T:
        """Wait for a right value and return it. Raises TimeoutError if there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            self.journal.read()
            value = self.patiently(look)
            if right(value):
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in {seconds:.0f} s: {what}")
            time.sleep(0.2)

    def command(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the output."""
        done = run(*arguments, "--config", str(self.house.config), seconds=300)
        waits = done.returncode == 3  # what it waits for is on stderr
        return done.returncode, done.stdout + done.stderr if waits else done.stdout or done.stderr

    def described(self, name: str) -> dict[str, Any]:
        """Return partition 0 as `tierstate describe` shows it."""
        description: dict[str, Any] = json.loads(self.command("describe", f"{name}:0", "--json")[1])[0]
        return description

    def commanded(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Return the output. Raises AssertionError if no run ended with one of these codes; code 3 is tried again."""
        deadline = time.monotonic() + PATIENCE_S
        while (done := self.command(*arguments))[0] not in codes:
            again = done[0] == 3 and time.monotonic() < deadline
            assert again, f"{arguments} ended with {done[0]}: {done[1][-500:]}"
        return done[1]

    def _create(self, topic: SoakTopic) -> None:
        config: dict[str, Any] = {
            "internal_segment_bytes": str(SEGMENT_BYTES),
            "retention_ms": str(topic.retention_ms),
            "local_retention_bytes": "0",
            "min_insync_replicas": "2",
            **topic.config,
        }
        name = self.full(topic)
        self.patiently(lambda: self.admin.create(name, topic.partitions, topic.brokers, **config))
        for partition in range(topic.partitions) if topic.moves else ():
            self.lead(name, partition, partition % 3)
