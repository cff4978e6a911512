"""The state of a partition for people, from a gateway's answer, as `partition_facts.PartitionFacts`.

A gateway does not report why a topic is not tiered, nor whether the leader has confirmed remote records. It reports
lost facts only as far as the agent knows them.
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
    """Yield the facts of ``partition`` (None: of all partitions). ``bootstrap``: as for `partition_facts.look_at`.

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
    except AccessDenied as error:  # it may name consumer groups, which clients with only Describe may not see
        return f"is not asked: {error.message}"
    status: dict[str, Any] | None = answer["status"]
    return silent(answer["broker_id"]) if answer["silent"] else status


def _facts(answer: dict[str, Any], agent: dict[str, Any] | str | None, bootstrap: str) -> PartitionFacts:
    return PartitionFacts(
        topic=answer["topic"],
        partition=answer["partition"],
        topic_id=answer["topic_id"],
        log_start_offset=answer["log_start_offset"],
        local_log_start_offset=answer["local_log_start_offset"],
        high_watermark=answer["high_watermark"],
        last_stable_offset=answer["last_stable_offset"],
        highest_remote_offset=answer["highest_remote_offset"],
        remote_segments=answer["remote_segments"],
        remote_bytes=answer["remote_bytes"],
        remote_records=answer["remote_records"],
        term=answer["term"],
        gaps=tuple(OffsetRange(Offset(gap["start"]), Offset(gap["end"])) for gap in answer["gaps"]),
        accepted_gaps=tuple(answer["accepted_gaps"]),
        orders=tuple(answer["orders"]),
        degraded=tuple(answer["degraded"]),
        holds=tuple(answer["holds"]),
        contradictions=tuple(answer["contradictions"]),
        lineage_unknown=answer["lineage_unknown"],
        unconfirmed=None,
        agent=agent,
        cut_elsewhere=answer["cut_elsewhere"],
        end_transaction=end_transaction(agent, answer["topic"], answer["partition"], bootstrap),
        kept=tuple(answer["kept"]),
        lost=answer.get("facts_lost"),  # a gateway of an earlier version does not send it
        lost_branch=answer["lost_branch"],
    )
