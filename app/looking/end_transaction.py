"""The commands of Kafka's own tool for the transaction that prevents the copying of a partition."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

TOOL = "kafka-transactions.sh"


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """``find_hanging`` shows whether the coordinator still knows the transaction; ``abort`` ends it in this partition.

    An abort queries no coordinator. A transaction in progress would lose this partition's part and keep the rest.
    """

    find_hanging: str
    abort: str


def end_transaction(agent: object, topic: str, partition: int, bootstrap: str) -> EndTransaction | None:
    """Return the commands, or None if ``agent`` (an agent's answer) names no open transaction."""
    by: Any = agent.get("open_transaction") if isinstance(agent, dict) else None
    if not isinstance(by, dict) or "start_offset" not in by:
        return None
    tool = f"{TOOL} --bootstrap-server {shlex.quote(bootstrap)}"
    place = f"--topic {topic} --partition {partition}"
    return EndTransaction(
        find_hanging=f"{tool} find-hanging {place}",
        abort=f"{tool} abort {place} --start-offset {by['start_offset']}",
    )
