"""Share groups (KIP-932) through the proxy: they take the broker's records, and no answer names a broker itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.java_programs import java
from tests.proxy.running import RunningProxy, running
from tierstate.broker.open import open_broker
from tierstate.sandbox.artifacts import kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 300
GROUP = "takers-through-the-proxy"


@contextmanager
def share_consumer(proxy: RunningProxy, topic: str) -> Iterator[subprocess.Popen[str]]:
    """Run Kafka's own share consumer, which accepts `RECORDS` records and ends."""
    command = java("org.apache.kafka.tools.consumer.ConsoleShareConsumer", kafka_libs())
    command += ["--bootstrap-server", proxy.bootstrap, "--topic", topic, "--group", GROUP]
    command += ["--max-messages", str(RECORDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as consumer:
        try:
            yield consumer
        finally:
            consumer.kill()


def test_a_share_group_takes_every_record_and_its_offsets_are_shown(
    kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = TieredCluster(kafka, tmp_path_factory.mktemp("share-groups"), "_tier-state-share-groups")
    topic = cluster.topic("shared", 0)
    log = cluster.folder / "access.log"
    with running(cluster, f"proxy.access_log={log}") as proxy, open_broker(kafka.client_config) as broker:
        producer = Producer({"bootstrap.servers": proxy.bootstrap})
        with share_consumer(proxy, topic) as consumer:
            until(lambda: broker.control.groups(topic).positions, lambda: None)
            written = 0

            def write() -> None:
                nonlocal written
                for number in range(written, written + 20):
                    producer.produce(topic, str(number), partition=0)
                assert producer.flush(30) == 0
                written += 20

            until(lambda: consumer.poll() is not None, write)  # it does not get records from before its start
            out, _ = consumer.communicate(timeout=120)
        taken = sorted(map(int, out.split()))
        assert taken == list(range(taken[0], taken[0] + RECORDS))
        command = java("org.apache.kafka.tools.consumer.group.ShareGroupCommand", kafka_libs())
        command += ["--bootstrap-server", proxy.bootstrap, "--describe", "--group", GROUP]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        (line,) = [each.split() for each in done.stdout.splitlines() if topic in each]
        assert line[:4] == [GROUP, topic, "0", str(taken[-1] + 1)], done.stdout
        assert proxy.server.counts.refused == {}
    assert_logged(log, topic)


def assert_logged(log: Path, topic: str) -> None:
    """The access log has the reads of the share group under the topic's name."""
    lines = [line for line in log.read_text().splitlines() if f'"{topic}"' in line]
    assert lines
    assert all('"tier": "local"' in line for line in lines)
