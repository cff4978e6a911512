"""Request the leader epoch checkpoints of a partition's other replicas from the agents of their brokers.

Sent only if no fact has the log's past (`term.composed`). A replica that was offline, or on which Kafka's retention ran
later, may still have an epoch that the leader's disk lacks. An answer counts as much as a term's lineage (0016).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import urllib3

from ..log.local_log import LocalLog
from ..state.epochs import Lineage
from ..state.errors import InvalidRequest, TierstateError
from ..state.facts import LeaderElected
from ..state.ids import BrokerId, TopicIdPartition
from ..state.view import TierView

TIMEOUT_S = 1.0
AT_MOST = 8
"""The greatest number of agents that are queried, one after the other, while a term waits for them."""


def epochs_of(log: LocalLog, name: str, partition: int) -> dict[str, Any] | None:
    """Return an agent's answer: the checkpoint of its broker's replica. Returns None if there is no such replica."""
    for place, topic in log.listed().items():
        if (topic, place.partition) == (name, partition):
            with suppress(TierstateError):
                lineage = log.snapshot(place, name).checkpoint
                entries = [[entry.epoch, entry.start_offset] for entry in lineage.entries]
                return {"topic_id": place.topic_id, "epochs": entries}
    return None


def lineage_in_answer(answer: bytes, partition: TopicIdPartition) -> Lineage | None:
    """Return the lineage in another agent's answer; None if it is malformed, or about another topic of that name."""
    try:
        fields = json.loads(answer)
        if fields["topic_id"] != partition.topic_id:
            return None
        return Lineage.of(*((int(epoch), int(start)) for epoch, start in fields["epochs"]))
    except (ValueError, TypeError, KeyError, InvalidRequest):
        return None


def lineages_elsewhere(
    me: BrokerId, view: TierView, ask: Callable[[str], bytes | None], partition: TopicIdPartition, name: str
) -> list[Lineage]:
    """Return what a `term.OtherReplicas` returns. ``ask`` sends GET for a URL and returns the body; None without it.

    The newest `LeaderElected` of a broker, for any partition, has the address of its agent.
    """
    terms: list[LeaderElected] = []
    for each in view.partitions():
        with suppress(TierstateError):
            terms += [live.fact for live in view.facts(each) if isinstance(live.fact, LeaderElected)]
    others = [term for term in terms if term.broker_id not in (me, BrokerId(-1)) and term.management_address]
    others.sort(key=lambda term: (term.broker_id, term.elected_at, term.management_address))
    addresses = {term.broker_id: term.management_address for term in others}
    lineages = []
    for address in list(addresses.values())[:AT_MOST]:
        answer = ask(f"http://{address}/v1/epochs/{quote(name, safe='')}/{partition.partition}")
        lineage = None if answer is None else lineage_in_answer(answer, partition)
        if lineage is not None and lineage.entries:
            lineages.append(lineage)
    return lineages


def ask_by_http(url: str) -> bytes | None:
    """Return the body of one GET without retries; None when there is no answer in `TIMEOUT_S` seconds, or an error."""
    try:
        answer = urllib3.PoolManager(retries=False).request("GET", url, timeout=TIMEOUT_S)
    except urllib3.exceptions.HTTPError:
        return None
    return answer.data if answer.status == 200 else None
