"""Transactions across tiers: an open one holds the last stable offset, and with it the copy; readers see only decided
records, in either tier. The truth is Kafka's own client on an untiered twin."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.leader.real import eventually
from tests.scenarios.house import House
from tests.scenarios.house import eventually as found_by_then
from tests.scenarios.story import Effect, Story, observes
from tierstate.log.batch import iter_batches
from tierstate.sandbox.artifacts import find_java, kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka

UNCOMMITTED = Isolation.READ_UNCOMMITTED


def producer_of(story: Story, topic: str, base: int, offset: int) -> tuple[int, int]:
    """Return id and epoch, by the batch at this offset in the broker's own file."""
    file = story.sandbox.brokers[0].log_dir / f"{topic}-0" / f"{base:020d}.log"
    batches = iter_batches(file.read_bytes(), source=str(file))
    return next((each.producer_id, each.producer_epoch) for each in batches if each.base_offset == offset)


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
    whose = producer_of(story, name, 5, 7)
    named = rf"segment 5\.\.9 .*; it is of producer {whose[0]}, epoch {whose[1]}, begins at offset 7 and is open since"
    eventually(lambda: when.agent(0).status(name, 0).open_transaction)
    then.agent(0).says(name, 0, not_copied=named)
    pinning.aborts()
    eventually(lambda: then.log("orders").bounds.last_stable_offset > 27)
    when.agent(0).works()
    assert then.agent(0).status(name, 0).open_transaction is None
    then.remote("orders").has_segments_from(0, 5, 10, 15, 20)
    for isolation in Isolation:
        then.reader("orders", isolation=isolation).reads_all().reads_what_kafka_reads_of_the_twin()


@observes(Effect.COPIED, Effect.RECORDS_ABORTED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_interleaved_transactions_read_alike_wherever_their_markers_lie(story: Story) -> None:
    """Basic transactions, and an aborted one whose marker is segments behind its records (and in the other tier)."""
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


@observes(Effect.TERM_STARTED)
def test_a_transaction_that_pins_the_very_first_segment_leads_people_to_the_agent_that_says_so(story: Story) -> None:
    given, when, then = story
    given.topic("orders", per_segment=5)
    pinning = when.transaction("slow").writes("orders", 1)
    when.produces("orders", 20)
    when.agent(0).works()
    then.remote("orders").is_empty()
    then.agent(0).says(story.topic("orders").name, 0, not_copied=r"last stable offset.* 0\b")
    leader = then.remote("orders").view.leader
    assert leader is not None, "a term names the agent to ask"
    pinning.aborts()


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
    """Kafka's fencing tests for readers: init_transactions of the same id ends the zombie's open transaction."""
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


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    made = House(kafka, tmp_path / "house", "hanging")
    made.run("init")
    yield made
    made.close()


def kafka_transactions(command: str) -> str:
    """Return the output of Kafka's own tool for exactly this command line."""
    script, *arguments = shlex.split(command)
    assert script == "kafka-transactions.sh"
    java = [find_java(), "-cp", f"{kafka_libs()}/*", "org.apache.kafka.tools.TransactionsCommand"]
    done = subprocess.run([*java, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_describe_names_the_transaction_and_the_commands_it_shows_find_and_end_it(house: House) -> None:
    topic = house.create("orders")
    house.append(topic, 2_000)
    config = {"transactional.id": topic, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer: Any = Producer({"bootstrap.servers": house.kafka.bootstrap} | config)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(30) == 0
    house.append(topic, 2_000, first=2_000)
    with house.agent():

        def named() -> Any:
            (description,) = house.json("describe", f"{topic}:0")
            return description if description["end_transaction"] else None

        state = found_by_then(named, 50)
        by, text, ways = state["agent"]["open_transaction"], state["agent"]["not_copied"], state["end_transaction"]
        assert by["start_offset"] == state["last_stable_offset"] == 2_000
        assert f"it is of producer {by['producer_id']}, epoch {by['producer_epoch']}, begins at offset 2000 " in text
        shown = house.run("describe", f"{topic}:0").stdout
        print(shown)
        assert ways["find_hanging"] in shown
        assert ways["abort"] in shown
        assert topic not in kafka_transactions(ways["find_hanging"]), "it is younger than any time-out"
        kafka_transactions(ways["abort"])
        (ended,) = house.json("describe", f"{topic}:0")
        assert ended["last_stable_offset"] == ended["high_watermark"]
        eventually(lambda: house.json("describe", f"{topic}:0")[0]["agent"]["not_copied_reason"] == "all-copied")
        assert house.json("describe", f"{topic}:0")[0]["end_transaction"] is None
