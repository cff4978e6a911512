"""A cluster in two tiers, one for each file of tests."""

from __future__ import annotations

import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tierstate.sandbox.kafka import KafkaSandbox


@pytest.fixture(scope="module")
def cluster(
    kafka: KafkaSandbox, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TieredCluster:
    name = request.module.__name__.rpartition(".")[2].replace("_", "-")
    return TieredCluster(kafka, tmp_path_factory.mktemp(name), f"_tier-state-{name}")
