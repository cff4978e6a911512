"""A partition as people look at it, from a gateway's answer, in the words of `partition_facts.py`.

A gateway does not report why a topic is not tiered, nor whether the leader has confirmed what is remote. It reports
which facts are lost as far as the agent knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...fetch.gateway import GatewayClient
from ...state.errors import AccessDenied, UnknownTopic
from ...state.offsets import Offset, OffsetRange
from .end_transaction import end_transaction
from .partition_facts import PartitionFacts, silent


def facts_by_gateway(
    client: GatewayClient, topic: str, partition: int | None, bootstrap: str
) -> Iterator[PartitionFacts]:
    """Yield the facts of one partition, or of all. ``bootstrap``: as for `partition_facts.look_at`.

    Raises UnknownTopic, AccessDenied, Unavailable.
    """
    described = client.described(topic)
    if partition is not None and partition not in [each["partition"] for each in described]:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(described))
    for each in described:
        if partition in (None, each["partition"]):
            yield _facts(each, _agent(client, topic, each["partition"]), bootstrap)


def _agent(client: GatewayClient, topic: str, partition: int) -> dict[str, Any] | str | None:
    try:
        answer = client.agent(topic, partition)
    except AccessDenied as error:  # its reasons may name consumer groups: not for clients that may only describe
        return f"is not asked: {error.message}"
    status: dict[str, Any] | None = answer["status"]
    return silent(answer["broker_id"]) if answer["silent"] else status


def _facts(said: dict[str, Any], agent: dict[str, Any] | str | None, bootstrap: str) -> PartitionFacts:
    return PartitionFacts(
        topic=said["topic"],
        partition=said["partition"],
        topic_id=said["topic_id"],
        log_start_offset=said["log_start_offset"],
        local_log_start_offset=said["local_log_start_offset"],
        high_watermark=said["high_watermark"],
        last_stable_offset=said["last_stable_offset"],
        highest_remote_offset=said["highest_remote_offset"],
        remote_segments=said["remote_segments"],
        remote_bytes=said["remote_bytes"],
        remote_records=said["remote_records"],
        term=said["term"],
        gaps=tuple(OffsetRange(Offset(gap["start"]), Offset(gap["end"])) for gap in said["gaps"]),
        accepted_gaps=tuple(said["accepted_gaps"]),
        orders=tuple(said["orders"]),
        degraded=tuple(said["degraded"]),
        holds=tuple(said["holds"]),
        contradictions=tuple(said["contradictions"]),
        lineage_unknown=said["lineage_unknown"],
        unconfirmed=None,
        agent=agent,
        cut_elsewhere=said["cut_elsewhere"],
        end_transaction=end_transaction(agent, said["topic"], said["partition"], bootstrap),
        kept=tuple(said["kept"]),
        lost=said.get("facts_lost"),  # a gateway of an earlier version does not send it
        lost_branch=said["lost_branch"],
    )
