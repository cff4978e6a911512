"""The server.properties of a sandbox broker: broker and KRaft controller in one process, with short timers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker's node id and its two ports on loopback."""

    node_id: int
    port: int
    controller_port: int

    def __str__(self) -> str:
        return f"127.0.0.1:{self.port}"


def broker_properties(
    me: BrokerAddress, everyone: Sequence[BrokerAddress], log_dir: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties of one broker. ``overrides`` take precedence."""
    copies = str(min(3, len(everyone)))
    enough = str(min(2, len(everyone)))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(me.node_id),
        "controller.quorum.voters": ",".join(f"{one.node_id}@127.0.0.1:{one.controller_port}" for one in everyone),
        "listeners": f"PLAINTEXT://127.0.0.1:{me.port},CONTROLLER://127.0.0.1:{me.controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{me.port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(log_dir),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
        # Timers that take minutes in production take a second here.
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.backoff.ms": "100",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        "log.cleaner.dedupe.buffer.size": "16777216",
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    if len(everyone) > 1:
        properties |= {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}
    return {**properties, **overrides}


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write Java's properties format. Only backslashes are escaped, as sandbox properties need no other escape."""
    lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in properties.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
