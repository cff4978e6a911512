"""A Flink job that fails in the remote tier. `test_clients.py` shows that its source reads every kind of record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.other_clients import by_flink, flink_jobs
from tests.proxy.running import running
from tests.proxy.starts import Read
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(280)]
RECORDS = 1_000


def test_a_job_goes_on_from_its_checkpoint_in_the_remote_tier_with_every_record_once(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    cluster = TieredCluster(kafka, tmp_path / "cluster", "_tier-state-flink")
    topic = cluster.topic("orders", RECORDS)
    (before,) = by_flink(kafka.bootstrap, Isolation.READ_COMMITTED, [Read(topic)])
    assert len(before) == RECORDS
    (start,) = cluster.copy_and_trim(topic)
    with running(cluster) as proxy:
        (after,), went_on = flink_jobs(proxy.bootstrap, Isolation.READ_COMMITTED, [Read(topic)], "50")
    assert after == before
    ((_, offset, *_),) = went_on
    assert 0 < offset < start
