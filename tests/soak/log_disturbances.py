"""Disturbances that lose records: unclean elections, empty replicas, and the tier-state topic without its head."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from functools import partial

from tests.broker.beheading import cut
from tests.soak.disturbances import ACTS, ALL, MAY_DIE, QUIET_RECORDS, Look
from tests.soak.ground import Ground
from tests.soak.topics import EVERYWHERE, KEPT_MS, LONE, SEGMENT_BYTES, SHAKEN, TOPICS, SoakTopic


def election_unclean(ground: Ground, chance: random.Random) -> Look:
    """A replica that was away leads with its own log; records that were acknowledged without it are lost."""
    name, (first, second) = ground.full(SHAKEN), SHAKEN.brokers
    ground.until_in_sync()
    writer, began = ground.writer_of(SHAKEN), time.monotonic()
    if ground.leader(name, 0) != first:
        first, second = second, first
    ground.kafka.stop(second)
    try:
        ground.until(lambda: ground.copied(began, name, 0, first), "what the other replica lacks is copied")
        writer.rest()
        ground.kafka.kill(first)
        ground.kafka.start(second)
        ground.until(lambda: ground.admin.leader(name, 0) == second, "the other replica leads")
        _forget_from(ground, SHAKEN, ground.bounds(SHAKEN).high_watermark)
    finally:
        writer.go_on()
        for each in SHAKEN.brokers:
            ground.kafka.start(each)
        ground.until_in_sync()
    began = time.monotonic()
    return lambda: bool(ground.copied(began, name, 0))


def log_begun_anew(ground: Ground, chance: random.Random) -> Look:
    """The only replica loses its folder, below a log start that a person ordered; offsets begin at 0 again."""
    name, (broker,) = ground.full(LONE), LONE.brokers
    ordered = ground.bounds(LONE).high_watermark // 2
    ground.commanded("delete-records", f"{name}:0", "--before", str(ordered), "--execute")
    ground.until(lambda: ground.bounds(LONE).local_start >= ordered, "the order reaches the broker")
    writer = ground.writer_of(LONE)
    writer.rest()
    try:
        ground.kafka.stop(broker)
        shutil.rmtree(ground.kafka.brokers[broker].log_dir / f"{name}-0")
        ground.kafka.start(broker)
        ground.until(lambda: ground.admin.leader(name, 0) == broker, "the empty replica leads")
        assert ground.bounds(LONE).high_watermark == 0, "the log did not begin anew"
        _forget_from(ground, LONE, 0)
    finally:
        ground.kafka.start(broker)
        writer.go_on()
    began = time.monotonic()
    return lambda: bool(ground.copied(began, name, 0)) and ground.bounds(LONE).local_start > 0


def quiet_restarted(ground: Ground, chance: random.Random) -> Look:
    """A topic of its own, without further writes: its broker restarts, all its records are deleted there, and it
    restarts on the empty log. Remote records stay readable: no agent has ever been away.
    """
    index, name = chance.choice(EVERYWHERE), f"{ground.name}-quiet-{chance.randrange(10**6)}"
    config = {"internal_segment_bytes": str(SEGMENT_BYTES), "min_insync_replicas": "1", "local_retention_bytes": "0"}
    ground.patiently(lambda: ground.admin.create(name, 1, (index,), retention_ms=str(KEPT_MS), **config))
    ground.quiet.append(name)
    ground.house.append(name, QUIET_RECORDS)
    ground.until(lambda: ground.described(name)["highest_remote_offset"] is not None, "something is remote")
    restarts = partial(ground.kafka.start, index)
    ground.kafka.stop(index)
    _term_begins_after(ground, index, name, restarts)
    _term_begins_after(ground, index, name, partial(ground.admin.delete_records, name, 0, ALL))
    ground.kafka.stop(index)
    _term_begins_after(ground, index, name, restarts)
    ground.until_in_sync()
    state = ground.described(name)
    read = ground.command("consume", f"{name}:0", "-n", str(state["highest_remote_offset"] + 1), "--format", "%o\\n")
    assert read[1].split() == [str(each) for each in range(state["highest_remote_offset"] + 1)], (
        "what is remote is not read"
    )
    return lambda: not ground.described(name)["lineage_unknown"]


def head_lost(ground: Ground, chance: random.Random) -> Look:
    """The head of the tier-state topic is cut while an agent is away; the agent also loses its view: it does nothing.

    Then all agents stop, and a person recovers the topic by the commands of docs/disasters.md, and sweeps the remains
    of copies that were under way. Only records that quiet topics deleted before the copy are missing.
    """
    index, tiers = chance.choice(MAY_DIE), ground.house.tier_topic
    ground.stop_agent(index)
    try:
        shutil.rmtree(ground.folder / f"agent-{index}")
        for partition in (0, 1):
            ground.patiently(partial(cut, ground.kafka, tiers, partition, ALL))
        ground.start_agent(index)
        gone = partial(_says, ground, index, "its head is gone")
        ground.until(gone, "an agent says that the head is gone")
        time.sleep(chance.uniform(1, 5))
        ground.journal.read()
        acted = [event for event in ACTS if ground.journal.count(event, index)]
        assert not acted, f"agent {index} acted on what is left of the topic: {acted}"
        for each in EVERYWHERE:
            ground.stop_agent(each)
        ground.lost_topics.append(ground.admin.topic_id(tiers))
        ground.patiently(partial(ground.admin.delete, tiers))
        ground.until(lambda: not ground.admin.exists(tiers), "the tier-state topic is deleted")
        ground.commanded("init")
        lost = [flag for each in ground.lost_topics for flag in ("--topic-id", each)]
        output = ground.commanded("recover", "--execute", "--agents-are-stopped", *lost, "--json", codes=(0, 4))
        ground.commanded("keep-prefix", "--execute")
        lacking = {each["topic"] for each in json.loads(output)["partitions"] if each["gaps"] or each["missing"]}
        assert lacking <= {*ground.quiet}, f"recover misses offsets that nobody cut away: {output}"
        for topic in {each["topic"] for each in json.loads(output)["partitions"] if each["paused"]}:
            ground.commanded("resume", topic)  # the fact that it had been resumed was lost
    finally:
        for each in EVERYWHERE:
            ground.stop_agent(each)
            ground.start_agent(each)
    began = time.monotonic()
    sweep_orphans(ground)
    return lambda: all(ground.copied(began, name, partition) for _, name, partition in ground.places())


def sweep_orphans(ground: Ground) -> None:
    """Delete each orphan by its name, as a person does."""
    for topic in TOPICS:
        objects = json.loads(ground.command("sweep", ground.full(topic), "--json")[1])["found"]
        named = [flag for each in objects if each["kind"] == "orphan" for flag in ("--orphan", each["object_key"])]
        if named:
            ground.commanded("sweep", ground.full(topic), "--execute", *named, codes=(0, 1))


def _says(ground: Ground, index: int, what: str) -> bool:
    return what in ground.agents[index].err.read_text()


def _term_begins_after(ground: Ground, index: int, name: str, act: Callable[[], object]) -> None:
    ground.journal.read()  # earlier events do not count
    began = time.monotonic()
    ground.patiently(act)
    ground.until(lambda: ground.heard(began, "term started", name, 0, index), f"a term of {name}")


def _forget_from(ground: Ground, topic: SoakTopic, offset: int) -> None:
    """Forget the lost records; the writer, which is at rest, begins a new life: Kafka forgot its sequences too."""
    ground.truth.forget_from((ground.full(topic), 0), offset)
    ground.writer_of(topic).open()
