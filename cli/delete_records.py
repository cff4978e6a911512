"""``tierstate delete-records``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, assert_never

import click

from .context import Context
from .flags import acts, pass_context
from .meant import moment
from .opened import following, opened_broker, opened_topic, user_partitions
from .positions import AtOffset, AtTime, Earliest, FromEnd, Latest, Position, PositionType
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..broker.groups import TopicGroups
    from ..follower.follower import Follower
    from ..runtime.clock import Clock
    from ..state.offsets import Offset
    from ..state.partition_view import PartitionView
    from ..state.routing import LocalBounds
    from .delete_plan import DeletePlan, Obeyed

WAIT_S = 60.0
"""For the log start; agents look at a partition every few seconds."""
LINGER_S = 5.0
"""For the rest that happens at once, after the log start moved: the broker's log, and readable segments."""
LOOK_S = 0.5
SHOWN = 20
"""Segments that are named one by one; all are counted."""
EXAMPLE = """\b
Example: tierstate delete-records orders:0 --before 40000
         tierstate delete-records orders:0 --before @-30d --execute
"""


@click.command("delete-records", epilog=EXAMPLE)
@click.argument("topic", type=TopicType(partition=True))
@click.option(
    "--before", type=PositionType(), required=True, help="The new beginning: earliest, latest, N, -N or @TIME."
)
@click.option("--force", is_flag=True, help="Delete objects under readers' leases too.")
@click.option("--no-wait", is_flag=True, help="Do not wait until agents obey.")
@acts(unasked=False)
@pass_context
def command(
    context: Context, topic: TopicArgument, before: Position, force: bool, no_wait: bool, execute: bool
) -> None:
    """Delete the records of a partition below an offset, from both tiers.

    The log start moves to exactly that offset and nobody reads below it any more. Then whole segments below it are
    deleted, from the broker and from the store; leases of readers keep objects longer, unless --force. Refused above
    the last stable offset, and until an agent has begun a term in the leader's epoch: the records that are there now
    are meant, not what another election puts in their place.
    """
    from ..runtime.clock import SystemClock
    from ..runtime.id_source import RandomIds
    from ..state.facts import OrderKind
    from .delete_plan import plan_delete
    from .give_order import give, new_order

    clock = SystemClock()
    with opened_broker(context) as broker:
        (partition,) = user_partitions(broker, topic.topic, topic.partition)
        _refuse_untiered(context, broker.control, topic)
        meant = AtOffset(_first_at(context, topic, before)) if isinstance(before, AtTime) else before
        with opened_topic(context) as tier_topic, following(context, tier_topic, [partition]) as follower:
            view, bounds = follower.partition(partition), _bounds(broker.control, topic)
            wanted, groups = offset_meant(meant, view, bounds), _groups(broker.control, topic)
            plan = plan_delete(view, bounds, wanted, force, clock.now_ms(), groups)
            document: dict[str, Any] = {"topic": topic.topic, **plan.as_json(), "executed": False}
            document |= {"order": None, "obeyed": None}
            _show(context, topic, plan)
            if execute and not plan.nothing:
                order = plan.already
                if order is None:
                    kind, ids = OrderKind.DELETE_RECORDS, RandomIds()
                    order = new_order(
                        partition, kind, clock, ids, before=plan.before, force=force, lineage=plan.lineage
                    )
                    give(tier_topic, follower, order)
                document |= {"executed": True, "order": order.id}
                context.output.note(f"{'ordered already' if plan.already else 'ordered'}: {order.id}")
            else:
                context.output.note(
                    "it begins there already: nothing to do" if plan.nothing else "nothing was done: --execute does it"
                )
            obeyed = None
            if document["order"] and not no_wait and not plan.waits:
                obeyed = _wait(context, topic, plan, follower, broker.control, clock)
                document["obeyed"] = asdict(obeyed)
            if context.as_json:
                context.output.document(document)
            if obeyed is not None:
                _conclude(context, topic, plan, obeyed)


def _refuse_untiered(context: Context, broker: BrokerControl, topic: TopicArgument) -> None:
    """No agent cuts the log of a topic that it refuses. Raises NotTiered."""
    from ..rules.reasons import Reason
    from ..state.errors import NotTiered
    from .partition_facts import why_untiered

    why = why_untiered(broker, context.settings, topic.topic)
    if why is not None and why.kind is not Reason.EXCLUDED:
        raise NotTiered(
            "no agent deletes records of this topic: use Kafka's own tool; `tierstate disable --remote delete` gives "
            "up what is remote",
            **topic.facts,
            because=why,
        )


def _bounds(broker: BrokerControl, topic: TopicArgument) -> LocalBounds:
    assert topic.partition is not None
    return broker.bounds(topic.topic, topic.partition)


def _groups(broker: BrokerControl, topic: TopicArgument) -> TopicGroups:
    """They are told of, and hold nothing up: a listing that fails is shown."""
    from ..broker.groups import GroupProblem, TopicGroups
    from ..state.errors import AccessDenied, Unavailable

    try:
        return broker.groups(topic.topic)
    except (Unavailable, AccessDenied) as error:
        return TopicGroups((), (GroupProblem(None, str(error)),))


def offset_meant(before: Earliest | Latest | AtOffset | FromEnd, view: PartitionView, bounds: LocalBounds) -> Offset:
    """Counted from the last stable offset. A partition without a log start is refused by the plan."""
    from ..state.offsets import Offset

    start = bounds.local_start if view.log_start is None else view.log_start
    match before:
        case Earliest():
            return start
        case Latest():
            return bounds.last_stable_offset
        case AtOffset(offset=offset):
            return offset
        case FromEnd(count=count):
            return Offset(max(start, bounds.last_stable_offset - count))
        case _:
            assert_never(before)


def _first_at(context: Context, topic: TopicArgument, before: AtTime) -> Offset:
    """The first record at or after a time, over both tiers; the last stable offset when all are older."""
    from ..state.routing import Isolation, Tier
    from .reading import opened_source, resolve

    assert topic.partition is not None
    level = Isolation.READ_COMMITTED
    with opened_source(context, topic, "reader", level) as source:
        return resolve(source, topic.topic, topic.partition, before, level, Tier.AUTO)


def _show(context: Context, topic: TopicArgument, plan: DeletePlan) -> None:
    if context.as_json:
        return
    line, remote = context.output.line, plan.as_json()["remote"]
    line(f"{topic}  delete before {plan.before}{' with --force' if plan.force else ''}")
    stable = max(0, plan.bounds.last_stable_offset - plan.log_start)
    line(
        f"  log start     {plan.log_start} becomes {plan.before}: {plan.offset_count:,} of {stable:,} stable offsets go"
    )
    line(
        f"  remote tier   {len(plan.going)} segments go: {remote['records']:,} records, {remote['bytes']:,} bytes"
        + (f"; {len(plan.condemned)} more are condemned already" if plan.condemned else "")
    )
    for each in plan.going[:SHOWN]:
        line(f"    {each.segment_id}  {each.offsets}")
    if len(plan.going) > SHOWN:
        line(f"    … and {len(plan.going) - SHOWN} more")
    for each in plan.across:
        line(f"    {each.segment_id}  {each.offsets} stays whole, and is read from {plan.before} on")
    line(
        f"  local tier    {plan.local_offsets:,} offsets go, {plan.never_copied:,} of them never copied "
        f"({plan.local_copied_bytes:,} bytes of whole copied segments)"
    )
    for lease in plan.leases:
        effect = "is overridden" if plan.force else "keeps the objects of its segments so long"
        line(f"  LEASE  {lease.offsets} of {lease.holder} until {moment(lease.expires_at)} {effect}")
    for group in plan.losing:
        stands = "has committed nothing" if group.committed is None else f"stands at {group.committed}"
        line(f"  GROUP  {group.group} {stands}: what it has not read below {plan.before} goes")
    if (unknown := plan.groups.why_incomplete()) is not None:
        line(f"  GROUP  not all groups are known: {unknown}")
    for reason in plan.waits:
        line(f"  WAITS  {reason}")


def _wait(
    context: Context, topic: TopicArgument, plan: DeletePlan, follower: Follower, broker: BrokerControl, clock: Clock
) -> Obeyed:
    """Until both tiers begin there, or it takes too long."""
    from .delete_plan import Obeyed

    partition = plan.view.partition
    deadline, lingering = clock.monotonic() + WAIT_S, False
    context.output.note(f"waiting until agents obey, at most {WAIT_S:g} s")
    while True:
        follower.require_fresh(follower.tier_partition(partition), LOOK_S)
        obeyed = Obeyed.of(plan, follower.partition(partition), _bounds(broker, topic))
        if obeyed.reached(plan.before) and not lingering:
            lingering, deadline = True, clock.monotonic() + LINGER_S
        if obeyed.settled(plan.before) or clock.monotonic() >= deadline:
            return obeyed
        clock.sleep(LOOK_S)


def _conclude(context: Context, topic: TopicArgument, plan: DeletePlan, obeyed: Obeyed) -> None:
    """Raises TimedOut when no agent obeyed yet; the order stands."""
    from ..state.errors import TimedOut
    from .partition_facts import ask_agent

    if not obeyed.reached(plan.before):
        said = ask_agent(plan.view, topic.topic)
        if isinstance(said, dict):
            said = said.get("refused") or said.get("last_error") or said.get("not_expired")
        raise TimedOut(
            "the order stands, and no agent has obeyed yet", log_start_offset=obeyed.log_start_offset, agent=said
        )
    line = context.output.note
    line(f"the log begins at {obeyed.log_start_offset}, the broker's at {obeyed.local_log_start_offset}")
    line(
        f"segments: {obeyed.gone} are gone, {obeyed.condemned} are condemned and wait for expire.grace and leases, "
        f"{obeyed.readable} are yet to be condemned"
    )
