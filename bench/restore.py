"""Restore one copied partition from the bucket into a new topic, and a bare producer that sends the same batches.

The bare producer has the batches in memory, encodes all requests, and sends them with five in flight and `acks=all`. A
restore also reads the bucket, computes each CRC-32C and fences. Batches with append times are compressed again.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.protocol.producer import ProduceRequest

from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.broker.administration import NewTopicSpec
from tierstate.broker.open import Broker, open_broker
from tierstate.log.produced_batch import stamped
from tierstate.restore.batches import sendables
from tierstate.restore.partition import Tools
from tierstate.restore.target import TargetPlan, opened_topic
from tierstate.restore.topic import Source, Target, restore_partition
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox

from .agent_site import Site
from .rows import RUNS, Row
from .spark_scan import LOADS, Load, values_of

SEGMENT_BYTES = 4 * 1024 * 1024
IN_FLIGHT = 5
BARE = "bare producer"
GOAL = ">= 0.8x"


def measure(quick: bool = False) -> list[Row]:
    """About 4 minutes, 4 GB of disk."""
    rows: list[Row] = []
    for load in LOADS:
        rows += _measured(load, quick, "CreateTime", GOAL)
    return rows + _measured(LOADS[0], quick, "LogAppendTime", "")


def _measured(load: Load, quick: bool, times: str, goal: str) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
        folder = Path(name)
        with KafkaSandbox(folder=folder / "kafka") as kafka:
            site = Site(kafka, folder / "site")
            site.create("restored", 1, SEGMENT_BYTES, message_timestamp_type=times)
            _fill(kafka, load, load.records // (10 if quick else 2))
            config = site.begin("restored", archive='partial_after = "0s"')
            site.once(config)
            settings = load_settings(config, ("view.source=bucket",), os.environ, None, None)
            with (
                BucketConnection(Connection(settings), tell=lambda age: None) as bucket,
                open_broker(kafka.client_config) as broker,
            ):
                return _compared(load, bucket, broker, 1 if quick else RUNS, times, goal)


def _fill(kafka: KafkaSandbox, load: Load, records: int) -> None:
    quick = {"queue.buffering.max.kbytes": 262_144, "linger.ms": 50, "batch.size": 65_536, "acks": 1}
    producer: Any = Producer({**kafka.client_config, "log_level": 0, "compression.type": load.codec, **quick})
    values = values_of(load)
    for at in range(records):
        while True:
            try:
                producer.produce("restored", values[at * 7919 % len(values)], b"%08d" % at, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if at % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def _compared(load: Load, bucket: BucketConnection, broker: Broker, runs: int, times: str, goal: str) -> list[Row]:
    reader = bucket.reader(bucket.view())
    topic_id = bucket.control.topic("restored").topic_id
    extent = reader.extent("restored", 0)
    source = Source(reader, bucket.control.cluster().cluster_id, "restored", "restored", topic_id, {0: extent})
    batches = sendables(source.pieces(0)(*extent), "restored", 0)
    requests = [stamped(batch.data, -1, -1, -1) for batch in batches]
    size = sum(map(len, requests))
    numbers = count()

    def ours() -> Callable[[], None]:
        target = _target(broker, f"ours-{next(numbers)}", bucket)
        return lambda: _restore(source, target)

    def bare() -> Callable[[], None]:
        topic = _target(broker, f"bare-{next(numbers)}", bucket).topic
        (address,) = broker.raw.metadata().brokers.values()
        return lambda: _send(address, _frames(topic, requests))

    spent: dict[Callable[..., Any], list[float]] = {ours: [], bare: []}
    for turn in range(runs + 1):
        for side in (ours, bare):
            run = side()
            began = time.perf_counter()
            run()
            if turn:
                spent[side].append(time.perf_counter() - began)
    rates = {side: size / statistics.median(seconds) / 1e6 for side, seconds in spent.items()}
    how = "as stored" if times == "CreateTime" else "written again"
    return [Row(f"{load.name}, {how}", rates[ours], "MB of batches a second", rates[bare], BARE, goal)]


def _restore(source: Source, target: Target) -> None:
    restore_partition(source, target, 0, Tools(SystemClock(), lambda size: None, lambda offsets: None))


def _target(broker: Broker, name: str, bucket: BucketConnection) -> Target:
    topic = opened_topic(broker, TargetPlan(name, NewTopicSpec(name, 1, 1), ()), SystemClock())
    return Target(broker, "bench", name, topic.topic_id, bucket.store)


def _frames(topic: str, batches: list[bytes]) -> list[bytes]:
    kind = ProduceRequest.TopicProduceData
    frames = []
    for number, batch in enumerate(batches):
        topics = [kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(version=9, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
        request.with_header(correlation_id=number, client_id="bare")
        frames.append(request.encode(framed=True, header=True))
    return frames


def _send(address: tuple[str, int], frames: list[bytes]) -> None:
    """Send finished requests, and read all answers."""
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        for number, frame in enumerate(frames):
            if number >= IN_FLIGHT:
                answers.read(struct.unpack(">i", answers.read(4))[0])
            connection.sendall(frame)
        for _ in range(min(IN_FLIGHT, len(frames))):
            answers.read(struct.unpack(">i", answers.read(4))[0])
