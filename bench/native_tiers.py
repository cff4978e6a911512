"""Kafka's own tiered storage in a sandbox, to compare tierstate with it."""

from __future__ import annotations

from pathlib import Path


def kafkas_own_tiers(folder: Path) -> dict[str, str]:
    """Return properties that enable Kafka's own tiered storage (KIP-405), for runs that compare it with tierstate.

    The store is `LocalTieredStorage` of Kafka's test jars, in ``folder``. Topics set ``remote.storage.enable=true``.
    """
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "500",
        "rsm.config.dir": str(folder),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    }
