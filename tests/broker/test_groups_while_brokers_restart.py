"""A process that asks for consumer groups survives restarts of brokers: librdkafka's own requests ended it (4605).

A group whose coordinator moves is in no listing. Such a listing must not count as complete.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest

from tests.broker.leaders import move_leader
from tests.commits import commit
from tests.scenarios.house import environment
from tierstate.broker.administration import all_committed
from tierstate.broker.coordinators import OFFSETS_TOPIC
from tierstate.broker.raw import RawClient
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.ids import BrokerId

pytestmark = [pytest.mark.kafka, pytest.mark.extended]
GROUPS = 6
ASKS = """
import json, sys
from tierstate.broker.open import open_broker
from tierstate.state.errors import TierstateError
with open_broker(json.loads(sys.argv[1])) as broker:
    print("asks", flush=True)
    while True:
        try:
            found = broker.control.groups("orders")
        except TierstateError as error:
            continue
        if found.why_incomplete() is None:
            print(len(found.positions), flush=True)
"""


def counts_while_brokers_restart(kafka: KafkaSandbox, make_topics: Any) -> Iterator[str]:
    """Yield the number of groups in each complete listing, until one has a group that came after all restarts."""
    make_topics(kafka).create("orders")
    for number in range(GROUPS):
        commit(kafka.client_config, f"group-{number}", "orders", 0, 1)
    asks = subprocess.Popen(
        [sys.executable, "-c", ASKS, json.dumps(kafka.client_config)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert asks.stdout is not None
    try:
        for _ in range(2):
            for index in range(3):
                kafka.stop(index)
                kafka.start(index)
        assert asks.poll() is None, "it was ended by a signal"
        commit(kafka.client_config, "one-more", "orders", 0, 1)
        assert asks.stdout.readline() == "asks\n"
        while (line := asks.stdout.readline()) != f"{GROUPS + 1}\n":
            assert line, "it ended"
            yield line
    finally:
        asks.kill()
        asks.wait()


def test_a_process_that_asks_for_groups_outlives_rolling_restarts_and_no_complete_listing_lacks_a_group(
    kafka_three: KafkaSandbox, make_topics: Any
) -> None:
    counts = list(counts_while_brokers_restart(kafka_three, make_topics))
    assert set(counts) == {f"{GROUPS}\n"}, "groups were missing from a listing that counts as complete"


def committed_at(raw: RawClient, broker: BrokerId, group: str) -> bool:
    """Return whether this broker acknowledged a commit. It is sent once: a second one would show what the first hid."""
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    part = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group, topics=[kind(name="moved", partitions=[part])], min_version=2, max_version=8
    )
    return not raw.ask(broker, request).topics[0].partitions[0].error_code


def test_every_group_that_was_acknowledged_is_in_a_complete_listing_at_once_after_its_coordinator_moved(
    kafka_three: KafkaSandbox, make_topics: Any
) -> None:
    make_topics(kafka_three).create("moved")
    commit(kafka_three.client_config, "one", "moved", 0, 1)  # Kafka creates the topic of the offsets
    groups = (chr(1000 + 5 * number) for number in count())  # all of partition 0: the hash of a character is its number
    acknowledged = set[str]()
    with closing(RawClient(kafka_three.client_config, SystemClock())) as raw, ThreadPoolExecutor(1) as pool:
        for to in list(raw.metadata().brokers) * 5:
            leader = raw.metadata([OFFSETS_TOPIC]).topics[OFFSETS_TOPIC].partitions[0].leader
            assert leader is not None
            move = pool.submit(move_leader, raw, OFFSETS_TOPIC, 0, leader, to)
            while committed_at(raw, leader, group := next(groups)):
                acknowledged.add(group)
                if move.done():
                    break
            move.result()
            while (answer := all_committed(raw))[1]:
                pass
            assert not acknowledged - answer[0].keys(), "groups were missing from a listing that counts as complete"
    assert acknowledged
