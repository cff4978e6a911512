"""Java's producers through the proxy: transactions of Kafka 4, whose partitions Produce 12 adds by itself (KIP-890)."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.java_programs import java
from tests.proxy.running import running
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.artifacts import RELEASES, kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka
RECORDS = 300


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("producers"), "_tier-state-producers")


@pytest.mark.parametrize("release", RELEASES)
def test_transactions_of_java_are_committed_through_it(cluster: TieredCluster, release: str) -> None:
    topic = cluster.topic(f"transactions-{release}", 0)
    with running(cluster) as proxy:
        command = java("org.apache.kafka.tools.ProducerPerformance", kafka_libs(release=release))
        command += ["--topic", topic, "--num-records", str(RECORDS)]
        command += ["--record-size", "20", "--throughput", "1000", "--transactional-id", topic]
        command += ["--transaction-duration-ms", "50", "--producer-props", f"bootstrap.servers={proxy.bootstrap}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
        assert f"{RECORDS} records sent" in done.stdout, done.stdout[-2000:]
        config = {"bootstrap.servers": proxy.bootstrap}
        with closing(PlainConsumer(config, Isolation.READ_COMMITTED, SystemClock())) as consumer:
            start, end = consumer.bounds(topic, 0)
            records = sum(len(batch) for batch in consumer.records(topic, 0, start, end))
        assert records == RECORDS
        assert end > RECORDS + 1, "there are not more transactions than one"
