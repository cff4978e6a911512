"""A group whose object store does not answer: its member goes on polling, keeps its partitions, and loses nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import TopicPartition

from tests.consumer.tiered_cluster import TieredCluster, offsets, polled
from tests.servers.store_programs import INSTALL, VERSITYGW, has_installer
from tests.servers.store_server import versitygw
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

BUCKET, KEY, SECRET, REGION = "consumed", "a-consumer", "and-its-secret", "us-east-1"
RECORDS = 400
PATIENCE_MS = 6000
"""The session and poll time-outs of the group; the shortest that a broker allows."""


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.skipif(not has_installer(VERSITYGW), reason=f"versitygw needs {INSTALL['go']}")
def test_a_group_idle_in_a_long_remote_read_keeps_its_partitions(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with versitygw(tmp_path / "gateway", KEY, SECRET) as server:
        session = boto3.session.Session(KEY, SECRET, region_name=REGION)
        session.client("s3", endpoint_url=server.url).create_bucket(Bucket=BUCKET)
        store: dict[str, str | bool] = {
            "url": f"s3://{BUCKET}",
            "endpoint": server.url,
            "region": REGION,
            "path_style": True,
        }
        store |= {"access_key_id": KEY, "secret_access_key": SECRET}
        cluster = TieredCluster(kafka, tmp_path, "_tier-state-hanging-store", store)
        topic, _ = cluster.tiered("hangs")
        patience = {"session.timeout.ms": PATIENCE_MS, "max.poll.interval.ms": PATIENCE_MS}
        revocations: list[list[TopicPartition]] = []
        with TieredConsumer(cluster.config(topic, auto_offset_reset="earliest", **patience)) as consumer:
            consumer.subscribe([topic], on_revoke=lambda same, partitions: revocations.append(partitions))
            server.signal(signal.SIGSTOP)  # before the first read: the whole of such a small topic would be read ahead
            messages = list[Any]()
            clock = SystemClock()
            until = clock.monotonic() + 1.5 * PATIENCE_MS / 1000
            while clock.monotonic() < until:
                messages += [message for message in consumer.consume(50, 0.2) if message.error() is None]
            assert not revocations
            assert consumer.assignment(), "it never had a partition to keep"
            assert not messages
            server.signal(signal.SIGCONT)
            messages += polled(consumer, RECORDS - len(messages))
        assert offsets(messages) == list(range(RECORDS))
