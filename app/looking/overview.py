"""All topics in one table, those with problems first: from the view, the agents' answers and the bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ...rules.decide import refusal
from ...rules.reasons import Reason
from ...state.ids import BrokerId, TopicId, TopicIdPartition
from ...state.partition_view import PartitionView
from ...state.retention import TopicConfig
from ...state.view import TierView
from ..opening.agent_boards import AgentBoards, Board
from ..opening.connection import Connection
from ..opening.kip405_connection import Kip405Connection
from .lost_state import without_facts
from .partition_facts import orders_in_words, troubles_of
from .remote_records import record_count

SILENT, FAILING, GAP, FACTS_LOST = "agent silent", "agent fails", "gap", "facts lost"
MISSING, CONTESTED, STORE_AWAY, MOVES = "objects missing", "prefix contested", "store away", "store moves"
NEVER_COPIED, RIGHT_LACKS = "never copied", "right lacks"
NAMED = 1000
"""Most partitions with problems that are listed for one topic. All of them are counted."""


@dataclass(frozen=True, slots=True)
class TopicOverview:
    """One row. ``local_log_bytes``: size of the brokers' logs. ``freed_bytes``: log bytes of segments that only the
    remote tier has. ``copy_lag_…``: of rolled segments that are not copied yet; None if no agent reported it. The
    seconds count from the newest record of the oldest such segment. ``in_trouble``: numbers of the first partitions
    with problems. ``rights_lacking``: rights that Kafka denies to the topic's agents, with the commands that add them.
    ``backup_problems``: what the newest backup of the whole cluster lacks, if an agent of this topic makes it.
    """

    topic: str
    topic_id: str
    partitions: int
    remote_segments: int
    remote_bytes: int
    remote_records: int | None
    local_log_bytes: int | None
    freed_bytes: int | None
    copy_lag_segments: int | None
    copy_lag_bytes: int | None
    copy_lag_seconds: float | None
    orders: tuple[str, ...]
    trouble: tuple[str, ...]
    partitions_in_trouble: int
    in_trouble: tuple[int, ...] = ()
    rights_lacking: tuple[str, ...] = ()
    backup_problems: tuple[str, ...] = ()


def addresses_of(views: Iterable[PartitionView]) -> set[str]:
    return {view.leader.management_address for view in views if view.leader and view.leader.management_address}


def overview(
    topic: str,
    views: Sequence[PartitionView],
    boards: Mapping[str, Board | None],
    lost: Collection[TopicIdPartition] = (),
    never: Collection[TopicIdPartition] = (),
) -> TopicOverview:
    """Return one topic's row. ``views``: one for each partition, by number. ``boards``: agents' answers by address,
    older than the views. So a trim in between shows no gap: facts are written before a trim. ``lost``: partitions
    without a fact but with segments in the bucket. ``never``: partitions that are to be tiered and have no term; unless
    their facts are lost, nothing of them was ever copied.
    """
    statuses = [status_of(topic, view, boards) for view in views]
    answered = [(view, status) for view, status in zip(views, statuses, strict=True) if isinstance(status, Mapping)]
    troubles = [
        _troubles(view, status)
        + ([FACTS_LOST] if view.partition in lost else [NEVER_COPIED] * (view.partition in never))
        for view, status in zip(views, statuses, strict=True)
    ]
    in_trouble = [view.partition.partition for view, words in zip(views, troubles, strict=True) if words]
    seconds = [status.get("copy_lag_s") for _, status in answered]
    return TopicOverview(
        topic=topic,
        topic_id=str(views[0].partition.topic_id) if views else "",
        partitions=len(views),
        remote_segments=sum(len(view.readable) for view in views),
        remote_bytes=sum(view.remote_bytes for view in views),
        remote_records=_records(views),
        local_log_bytes=_sum(answered, "local_log_bytes"),
        freed_bytes=sum(_freed(view, status) for view, status in answered) if answered else None,
        copy_lag_segments=_sum(answered, "copy_lag_segments"),
        copy_lag_bytes=_sum(answered, "copy_lag_bytes"),
        copy_lag_seconds=max((each for each in seconds if each is not None), default=0.0) if answered else None,
        orders=tuple(sorted({each for view in views for each in orders_in_words(view, None)})),
        trouble=tuple(sorted({word for words in troubles for word in words})),
        partitions_in_trouble=len(in_trouble),
        in_trouble=tuple(in_trouble[:NAMED]),
        rights_lacking=_all_of(answered, "rights_lacking"),
        backup_problems=_all_of(answered, "backup_problems"),
    )


def worst_first(overviews: Collection[TopicOverview]) -> list[TopicOverview]:
    """Sort by partitions with problems, then topics with open orders, then by bytes to copy; the most come first."""
    return sorted(
        overviews,
        key=lambda each: (-each.partitions_in_trouble, -bool(each.orders), -(each.copy_lag_bytes or 0), each.topic),
    )


def status_of(topic: str, view: PartitionView, boards: Mapping[str, Board | None]) -> Mapping[str, Any] | str | None:
    """Return the partition's status; `SILENT`; or None if no agent was queried or its broker no longer leads it.

    For a partition without a term, the agent that leads it but cannot begin a term may be any of the agents.
    """
    place = topic, view.partition.partition
    if view.leader is None:
        return next((board[place] for board in boards.values() if board and place in board), None)
    address = view.leader.management_address
    if address not in boards:
        return None
    board = boards[address]
    return SILENT if board is None else board.get(place)


def _troubles(view: PartitionView, status: Mapping[str, Any] | str | None) -> list[str]:
    answer = status if isinstance(status, Mapping) else {}
    words = {
        FACTS_LOST: answer.get("facts_lost"),
        GAP: not answer.get("facts_lost") and view.gaps_between(view.log_start, answer.get("local_log_start_offset")),
        MISSING: answer.get("missing_objects"),
        CONTESTED: answer.get("not_expired_reason") == Reason.PREFIX_CONTESTED,
        MOVES: answer.get("not_expired_reason") == Reason.STORE_MOVES,
        STORE_AWAY: answer.get("store_away"),
        SILENT: status == SILENT,
        FAILING: answer.get("consecutive_failures"),
        RIGHT_LACKS: answer.get("rights_lacking"),
    }
    return troubles_of(view) + [word for word, holds in words.items() if holds]


def _freed(view: PartitionView, status: Mapping[str, Any]) -> int:
    start = status.get("local_log_start_offset")
    return 0 if start is None else sum(each.log_bytes for each in view.readable if each.offsets.end < start)


def _records(views: Sequence[PartitionView]) -> int | None:
    counts = [record_count(view, view.log_start) for view in views]
    return None if None in counts else sum(each or 0 for each in counts)


def _all_of(statuses: Sequence[tuple[PartitionView, Mapping[str, Any]]], name: str) -> tuple[str, ...]:
    return tuple(sorted({each for _, status in statuses for each in status.get(name) or ()}))


def _sum(statuses: Sequence[tuple[PartitionView, Mapping[str, Any]]], name: str) -> int | None:
    return sum(status.get(name) or 0 for _, status in statuses) if statuses else None


def topics_now(connection: Connection, *, gone: bool = False) -> list[TopicOverview]:
    """Return an overview of each topic with facts, and of each that the settings choose, by name.

    ``gone``: also return topics that the cluster no longer has, with their id in the name. Their agents' answers are
    not used: agents have nothing to do for them.
    """
    view = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    with closing(AgentBoards(connection.clock)) as boards:
        answers = boards.now(sorted(addresses_of(view.partition(each) for each in view.partitions())))
    hidden = _hidden(answers, set(names.values()))
    names |= {partition.topic_id: topic for partition, topic in hidden.items()}
    for number in sorted({view.tier_partition(each) for each in view.partitions()}):
        view.require_fresh(number, 0)  # the views must be newer than the agents' answers: see `overview`
    here, older = defaultdict[str, list[PartitionView]](list), defaultdict[str, list[PartitionView]](list)
    for partition in view.partitions():
        partition_view = view.partition(partition)
        if partition.topic_id in names:
            here[names[partition.topic_id]].append(partition_view)
        elif gone:
            older[f"{partition_view.topic or 'unknown'} (gone, id {partition.topic_id})"].append(partition_view)
    lost, never = without_facts(connection, view), never_led(connection, view)
    never |= {each for each in hidden if view.partition(each).leader is None}
    for each in sorted({*lost, *never} - set(view.partitions())):
        here[names[each.topic_id]].append(view.partition(each))
    overviews = [overview(name, _by_number(views), answers, lost, never) for name, views in here.items()]
    overviews += [overview(name, views, {}) for name, views in older.items()]
    return sorted(overviews, key=lambda each: each.topic)


def _hidden(boards: Mapping[str, Board | None], names: Collection[str]) -> dict[TopicIdPartition, str]:
    """Return the partitions of topics without a name of ``names``, on which agents report missing rights.

    The broker also hides such a topic from a command with the agents' credentials.
    """
    return {
        TopicIdPartition(TopicId(status["topic_id"]), number): topic
        for board in boards.values()
        for (topic, number), status in (board or {}).items()
        if topic not in names and any(f" on {topic}: " in right for right in status.get("rights_lacking") or ())
    }


def kafkas_topics(connection: Kip405Connection) -> list[TopicOverview]:
    """Return an overview of each topic that Kafka itself tiers and that exists, by name. There is no agent to ask."""
    view = connection.view()
    names = {described.topic_id: described.name for described in connection.control.topics()}
    views = defaultdict[str, list[PartitionView]](list)
    for partition in view.partitions():
        if partition.topic_id in names:
            views[names[partition.topic_id]].append(view.partition(partition))
    return [overview(name, _by_number(each), {}) for name, each in sorted(views.items())]


def never_led(connection: Connection, view: TierView) -> set[TopicIdPartition]:
    """Return the partitions that these settings choose, that can be tiered, and that have never had a term."""
    control, settings = connection.control, connection.settings
    without = {
        TopicIdPartition(described.topic_id, each.partition): described.name
        for described in control.topics()
        if not described.internal and described.name != settings.tier_state.topic
        if settings.tiering.covers(described.name)
        for each in described.partitions
        if view.partition(TopicIdPartition(described.topic_id, each.partition)).leader is None
    }
    configs = control.configs(set(without.values()), broker=min(control.cluster().brokers)) if without else {}
    refused = {name for name, each in configs.items() if isinstance(each, TopicConfig) and refusal(each)}
    return {each for each, name in without.items() if name not in refused}


def agent_addresses(connection: Connection) -> dict[BrokerId, str]:
    """Return the address of each broker's agent, from the newest term that it began for any partition."""
    view = connection.view()
    leaders = [leader for each in view.partitions() if (leader := view.partition(each).leader) is not None]
    return {each.broker_id: each.management_address for each in sorted(leaders, key=lambda each: each.elected_at)}


def _by_number(views: list[PartitionView]) -> list[PartitionView]:
    return sorted(views, key=lambda view: view.partition.partition)
