"""A batch that is damaged in the object store: clients without CRC checks get the records before it, and an error."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tests.consumer.test_damaged_objects import damage, log_object, tiered
from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.running import received, running
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 400


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("damaged"), "_tier-state-damaged")


def test_a_client_without_crc_checks_never_gets_a_falsified_batch_and_other_partitions_go_on(
    cluster: TieredCluster,
) -> None:
    topic = tiered(cluster, "damaged-behind-the-proxy", RECORDS, 2)
    bad = damage(log_object(cluster, topic, 1))
    read: dict[int, list[int]] = {}
    errors: list[KafkaError] = []
    with running(cluster) as proxy, proxy.consumer((topic, 0, 0), (topic, 1, 0), check_crcs=False) as consumer:
        until(
            lambda: proxy.server.counts.errors[2] >= 2 and len(read.get(0, ())) == RECORDS,
            lambda: received(consumer, read, errors),
        )
    assert read == {0: list(range(RECORDS)), 1: list(range(bad))}, "nothing of the bad batch, or of what is behind it"
