"""Asks leaders for what a copy by Fetch rests on: epochs, topic ids, and fences that refuse what is stale."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..broker.answers import FetchSpec
from ..broker.bounds import walk_epochs
from ..broker.error_codes import error_of
from ..broker.raw import RawClient
from ..broker.topics import TopicDescription
from ..state.epochs import LeaderEpoch
from ..state.errors import InvalidRequest
from ..state.ids import BrokerId, TopicId
from ..state.routing import Isolation

FENCED = (74, 75)
"""FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH."""
UNKNOWN_TOPIC = (3, 100, 103)
NOBODYS_ID = TopicId.of(b"tierstate-probes")


def probe_leaders(raw: RawClient, topics: Collection[TopicDescription]) -> list[BrokerId]:
    """Try one partition of each leader, and return the leaders.

    Raises InvalidRequest if a leader is older than Kafka 3.1, or answers a Fetch of a wrong epoch or topic with data.
    Also raises the errors of `walk_epochs`.
    """
    probed: list[BrokerId] = []
    for topic in topics:
        for each in topic.partitions:
            if each.leader is None or each.leader_epoch is None or each.leader in probed:
                continue
            start = walk_epochs(raw, each.leader, topic.name, each.partition, each.leader_epoch).log_start
            right = FetchSpec(
                topic.name, each.partition, start, 1, Isolation.READ_UNCOMMITTED, each.leader_epoch, 0, topic.topic_id
            )
            facts = {"topic": topic.name, "partition": each.partition, "broker": each.leader}
            if (error := error_of(raw.fetch(each.leader, right).code, **facts)) is not None:
                raise error
            later = LeaderEpoch(each.leader_epoch + 1)
            wrong = (
                ("leader epoch", FENCED, replace(right, leader_epoch=later)),
                ("topic id", UNKNOWN_TOPIC, replace(right, topic_id=NOBODYS_ID)),
            )
            for what, codes, spec in wrong:
                code = raw.fetch(each.leader, spec).code
                if code not in codes:
                    raise InvalidRequest(
                        f"the broker does not refuse a wrong {what}: copies by Fetch would not be safe here",
                        kafka_error=code,
                        **facts,
                    )
            probed.append(each.leader)
    return probed
