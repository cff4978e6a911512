"""The state of a partition for people: both tiers, from a view and the broker, and the answer of its agent."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ...fetch.verify import out_of_lineage
from ...rules.decide import excluded, internal, refusal
from ...rules.orders import lost_orders, order_done, standing
from ...rules.reasons import Reason, Why
from ...rules.trim import cut_elsewhere
from ...runtime.settings import Settings
from ...runtime.units import counted
from ...state.errors import AccessDenied, UnknownTopic
from ...state.facts import OperatorOrder, OrderKind
from ...state.ids import BrokerId, writer_of
from ...state.offsets import Offset, OffsetRange, moment
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds, in_force, log_start
from ..opening.agent_boards import asked_of_agent, may_ask
from .remote_records import record_count

if TYPE_CHECKING:
    from ...broker.control import BrokerControl
    from ...fetch.gateway import GatewayClient

NOT_ASKED = "not asked: the bucket alone is read"
"""Replaces the agent's answer if no agent and no broker is queried."""
OF_GATEWAY = (
    "topic partition topic_id log_start_offset local_log_start_offset high_watermark last_stable_offset term "
    "highest_remote_offset remote_segments remote_bytes remote_records lineage_unknown lost_branch"
).split()
LISTS_OF_GATEWAY = ("accepted_gaps", "orders", "degraded", "holds", "contradictions", "kept")
"""Fields of `PartitionFacts` that a gateway's answer has under the same names."""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The commands of Kafka's own tool for the transaction that prevents the copying of a partition.

    ``find_hanging`` shows whether the coordinator still knows the transaction; ``abort`` ends it in this partition.

    An abort queries no coordinator. A transaction in progress would lose this partition's part and keep the rest.
    """

    find_hanging: str
    abort: str


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition. Offsets named ``highest`` are inclusive, all others are as in Kafka. None means unknown."""

    topic: str
    partition: int
    topic_id: str
    log_start_offset: int | None
    local_log_start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    highest_remote_offset: int | None
    remote_segments: int
    remote_bytes: int
    remote_records: int | None
    term: str | None
    gaps: tuple[OffsetRange, ...]
    orders: tuple[str, ...]
    """Orders that are not carried out yet."""
    degraded: tuple[str, ...]
    holds: tuple[str, ...]
    contradictions: tuple[str, ...]
    lineage_unknown: bool
    unconfirmed: str | None
    """Why remote records may not be in this leader's log, and which of them readers get then."""
    agent: dict[str, Any] | str | None
    """The agent's answer; a text if it did not answer; None if no term names an agent."""
    cut_elsewhere: str | None = None
    """Which records others deleted on the broker, and the command that extends the deletion to the remote tier."""
    untiered: str | None = None
    """Why the topic is not tiered, according to its name, its configuration and this process's settings."""
    untiered_reason: str | None = None
    end_transaction: EndTransaction | None = None
    """How to end the transaction that the agent names."""
    accepted_gaps: tuple[str, ...] = ()
    """Offsets that a person accepted as lost, and why."""
    kept: tuple[str, ...] = ()
    """Segments whose objects a person keeps."""
    lost: str | None = None
    """Why facts of the partition must be missing, and the command that adds them."""
    lost_branch: str | None = None
    """Which copied offsets are not in the log, and why."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def end_transaction(agent: object, topic: str, partition: int, bootstrap: str) -> EndTransaction | None:
    """Return the commands, or None if ``agent`` (an agent's answer) names no open transaction."""
    by: Any = agent.get("open_transaction") if isinstance(agent, dict) else None
    if not isinstance(by, dict) or "start_offset" not in by:
        return None
    tool = f"kafka-transactions.sh --bootstrap-server {shlex.quote(bootstrap)}"
    place = f"--topic {topic} --partition {partition}"
    return EndTransaction(
        find_hanging=f"{tool} find-hanging {place}",
        abort=f"{tool} abort {place} --start-offset {by['start_offset']}",
    )


def why_untiered(broker: BrokerControl, settings: Settings, topic: str) -> Why | None:
    """Return why every agent with these settings would refuse the topic, or None. Raises the broker's errors."""
    if broker.topic(topic).internal or topic == settings.tier_state.topic:
        return internal(topic)
    refused = refusal(broker.config(topic))
    if refused is None and settings.tiering.include and not settings.tiering.covers(topic):
        return excluded(topic)
    return refused


def look_at(
    view: PartitionView,
    bounds: LocalBounds | None,
    topic: str,
    untiered: Why | None = None,
    bootstrap: str = "HOST:PORT",
    lost: str | None = None,
    leader: BrokerId | None = None,
) -> PartitionFacts:
    """Return the facts, with the agent's answer. ``bounds`` are older than ``view`` (`both_tiers_now`); None: unknown.

    ``bootstrap``: the bootstrap servers in the Kafka commands that are shown. ``leader``: the broker that leads now.
    """
    partition = view.partition.partition
    agent = _no_agent_yet(view, leader) or ask_agent(view, topic)
    status = agent if isinstance(agent, dict) else {}
    lost = status.get("facts_lost") if lost is None else lost
    start = view.log_start if bounds is None else log_start(view, bounds) if view.log_start is None else view.log_start
    local_start = bounds.local_start if bounds else None
    return PartitionFacts(
        topic=topic,
        partition=partition,
        topic_id=view.partition.topic_id,
        log_start_offset=start,
        local_log_start_offset=local_start,
        high_watermark=bounds.high_watermark if bounds else None,
        last_stable_offset=bounds.last_stable_offset if bounds else None,
        highest_remote_offset=view.coverage.owned[-1].offsets.end if view.coverage.owned else None,
        remote_segments=len(view.readable),
        remote_bytes=view.remote_bytes,
        remote_records=record_count(view, start),
        term=str(view.term) if view.term else None,
        gaps=tuple(view.gaps_between(start, local_start)),
        orders=orders_in_words(view, local_start),
        degraded=view.degraded,
        holds=tuple(hold.reason for hold in view.holds),
        contradictions=view.contradictions,
        lineage_unknown=view.lineage_unknown,
        unconfirmed=_unconfirmed(view, bounds),
        agent=agent,
        cut_elsewhere=None if lost or is_archive(agent) else cut_elsewhere(view, topic, local_start),
        untiered=None if untiered is None else untiered.text,
        untiered_reason=None if untiered is None else untiered.kind.value,
        end_transaction=end_transaction(agent, topic, partition, bootstrap),
        lost=lost,
        lost_branch=lost_branch(view),
        accepted_gaps=accepted_in_words(view),
        kept=kept_in_words(view),
    )


def is_archive(agent: Mapping[str, Any] | str | None) -> bool:
    """Return whether the agent trims nothing. Kafka's retention then cuts the local tier all the time."""
    return isinstance(agent, Mapping) and agent.get("not_trimmed_reason") == Reason.TRIM_DISABLED.value


def look_at_past(view: PartitionView, topic: str) -> PartitionFacts:
    """Return the facts of a bucket view. No broker and no agent is queried; gaps end below the remote tier's end."""
    leader = None if view.leader is None else replace(view.leader, management_address="")
    facts = look_at(replace(view, leader=leader), None, topic)
    owned, gaps = view.coverage.owned, list[OffsetRange]()
    if owned and view.log_start is not None and view.log_start <= owned[-1].offsets.end:
        gaps = view.gaps(OffsetRange(view.log_start, owned[-1].offsets.end))
    return replace(facts, agent=NOT_ASKED, gaps=tuple(gaps))


def _unconfirmed(view: PartitionView, bounds: LocalBounds | None) -> str | None:
    if bounds is None or not view.readable or in_force(view, bounds):
        return None
    epoch = "none" if view.leader is None else view.leader.epoch
    return (
        f"the leader's epoch {bounds.leader_epoch} has no term yet, the newest is of epoch {epoch}: remote records are "
        "served as far as the broker confirms that its log has them"
    )


def _no_agent_yet(view: PartitionView, leader: BrokerId | None) -> str | None:
    """Return a sentence if broker ``leader`` has begun no term yet: the old term's agent cannot answer for it."""
    if leader is None or view.leader is None or view.leader.broker_id == leader:
        return None
    return (
        f"none for broker {leader}, which leads now, has begun a term: is one running there, over all its log folders, "
        f"or one by Fetch? The newest term, of epoch {view.leader.epoch}, was for {writer_of(view.leader.broker_id)}"
    )


def kept_in_words(view: PartitionView) -> tuple[str, ...]:
    """Return a sentence for each segment whose objects a person keeps."""
    return tuple(f"objects of segment {each} are never deleted" for each in sorted(view.kept))


def accepted_in_words(view: PartitionView) -> tuple[str, ...]:
    """Return a sentence for each gap that a person accepted. Readers still get those offsets that a tier has."""
    return tuple(
        f"{fact.offsets} by {fact.accepted_by} at {moment(fact.at)}: {fact.reason}" for fact in view.accepted_gaps
    )


def lost_branch(view: PartitionView) -> str | None:
    """Return a sentence on copied offsets that are not in the log, or None (also if the lineage is unknown)."""
    lost: dict[str, dict[OffsetRange, int]] = {}
    for segment in () if view.lineage_unknown else view.readable:
        for cause, count in out_of_lineage(view, segment).items():
            lost.setdefault(cause, {})[segment.offsets] = count
    if not lost:
        return None
    sentences = [
        f"{counted(sum(counts.values()), 'offset')} in {counted(len(counts), 'segment')} within "
        f"{min(each.start for each in counts)}..{max(each.end for each in counts)} {cause}"
        for cause, counts in lost.items()
    ]
    return f"{'; '.join(sentences)}: readers are not given them, retention takes them"


def troubles_of(view: PartitionView) -> list[str]:
    """Return a word for each problem that the view alone shows. It cannot show a gap: that needs the broker."""
    words = {
        "read only": view.degraded,
        "held": view.holds,
        "contradiction": view.contradictions,
        "lineage unknown": view.lineage_unknown,
    }
    return [word for word, so in words.items() if so]


def orders_in_words(view: PartitionView, local_start: Offset | None) -> tuple[str, ...]:
    """Return the open orders. A finished delete-records order is still a fact until it is archived."""
    now = standing(view)
    cutting = [order for order in view.orders if order.kind is OrderKind.DELETE_RECORDS]
    left = [order for order in cutting if local_start is None or not order_done(order, view, local_start)]
    lost = lost_orders(view)
    left = [order for order in left if all(order is not each for _, each in lost)]
    standing_now = tuple(describe_order(order) for order in (*([now] if now else []), *left))
    return standing_now + tuple(f"{describe_order(order)}: {why}" for why, order in lost)


def silent(broker_id: int, address: str) -> str:
    """Return the sentence about an agent that did not answer: that of the broker's machine, or one by Fetch."""
    return (
        f"agent for broker {broker_id} ({address}) did not answer: "
        "it is stopped or cannot be reached; reads go on, copies and trims wait for it"
    )


def never_led(topic: str, partition: int, leader: BrokerId | None, address: str | None) -> dict[str, Any] | str:
    """Return the status of a partition that is to be tiered and has no term. ``address``: the leader's agent."""
    status: dict[str, Any] | None = asked_of_agent(address, f"/v1/status/{topic}/{partition}") if address else None
    return status or (
        "none has led this partition yet, and tiering.include chooses it: nothing of it is copied, and Kafka's "
        f"retention deletes it. Is an agent running beside broker {leader}, or one by Fetch? `tierstate check` with "
        "its settings names what it lacks"
    )


def ask_agent(view: PartitionView, topic: str, hosts: Collection[str] = ()) -> dict[str, Any] | str | None:
    """Return the status from the agent of the term in force: a text if it is silent, None if no term names an agent.

    ``hosts``: the hosts that may be queried; empty: all. An agent on any other host counts as silent.
    """
    if view.leader is None or not view.leader.management_address:
        return None
    answer = None
    if may_ask(view.leader.management_address, hosts):
        answer = asked_of_agent(view.leader.management_address, f"/v1/status/{topic}/{view.partition.partition}")
    if answer is None:
        return silent(view.leader.broker_id, view.leader.management_address)
    status: dict[str, Any] = answer
    return status


def describe_order(order: OperatorOrder) -> str:
    what = order.kind.value if order.before is None else f"{order.kind.value} before {order.before}"
    forced = " with --force" if order.force else ""
    return f"{what}{forced} since {moment(order.at)} by {order.issued_by}"


def facts_by_gateway(
    client: GatewayClient, topic: str, partition: int | None, bootstrap: str
) -> Iterator[PartitionFacts]:
    """Yield the facts of ``partition`` (None: of all partitions). ``bootstrap``: as for `look_at`.

    A gateway does not report why a topic is not tiered, nor whether the leader has confirmed remote records. It reports
    lost facts only as far as the agent knows them.

    Raises UnknownTopic, AccessDenied, Unavailable.
    """
    described = client.describe(topic)
    if partition is not None and partition not in [each["partition"] for each in described]:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(described))
    for each in described:
        if partition in (None, each["partition"]):
            yield _of_answer(each, _agent_by_gateway(client, topic, each["partition"]), bootstrap)


def _agent_by_gateway(client: GatewayClient, topic: str, partition: int) -> dict[str, Any] | str | None:
    try:
        answer = client.agent(topic, partition)
    except AccessDenied as error:  # it may name consumer groups, which clients with only Describe may not see
        return f"is not asked: {error.message}"
    status: dict[str, Any] | None = answer["status"]
    return silent(answer["broker_id"], answer["address"]) if answer["silent"] else status


def _of_answer(answer: dict[str, Any], agent: dict[str, Any] | str | None, bootstrap: str) -> PartitionFacts:
    lists: dict[str, Any] = {name: tuple(answer[name]) for name in LISTS_OF_GATEWAY}
    return PartitionFacts(
        **{name: answer[name] for name in OF_GATEWAY},
        **lists,
        gaps=tuple(OffsetRange(Offset(gap["start"]), Offset(gap["end"])) for gap in answer["gaps"]),
        unconfirmed=None,
        agent=agent,
        cut_elsewhere=None if is_archive(agent) else answer["cut_elsewhere"],  # a gateway may not have asked it yet
        end_transaction=end_transaction(agent, answer["topic"], answer["partition"], bootstrap),
        lost=answer["facts_lost"],
    )
