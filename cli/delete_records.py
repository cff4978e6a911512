"""``tierstate delete-records``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..app.opening.positions import AtOffset, AtTime, Position, offset_before, offset_of
from ..runtime.units import counted
from ..state.offsets import Offset, moment
from ..state.routing import Isolation, Tier
from .context import Context
from .flags import declare
from .parameter_types import POSITION, TopicArgument

if TYPE_CHECKING:
    from ..app.opening.connection import Connection
    from ..app.operating.deletion import DeletePlan
    from ..follower.follower import Follower

SHOWN = 20
"""Number of segments that are listed. The counts include all segments."""


@declare(
    "delete-records orders:0 --before 40000",
    "delete-records orders:0 --before @-30d --execute",
    topic="T:P",
    execute=False,
)
@click.option(
    "--before", type=POSITION, required=True, help="The new beginning: earliest, latest, N, -N or a time, as -3d."
)
@click.option("--force", is_flag=True, help="Delete objects under readers' leases too.")
@click.option("--no-wait", is_flag=True, help="Do not wait until agents obey.")
def command(
    context: Context, topic: TopicArgument, before: Position, force: bool, no_wait: bool, execute: bool
) -> None:
    """Delete the records of a partition below an offset, from both tiers.

    The log start moves to exactly that offset, and no client reads below it from then on. Whole segments below it are
    deleted, from the broker and from the store; leases of readers keep objects longer, unless --force. Refused above
    the last stable offset, and until an agent has begun a term in the leader's epoch: the records that are there now
    are meant, not what another election puts in their place. Refused too while facts are lost: recover them first.
    """
    from ..app.looking.lost_state import require_nothing_lost
    from ..app.opening.connection import view_now
    from ..app.opening.partitions import partitions_of
    from ..app.operating.deletion import (
        WAIT_S,
        groups_reading,
        order_delete,
        plan_delete,
        require_obeyed,
        require_reached,
        wait_obeyed,
    )

    note = context.output.note
    with context.connected() as connection:
        broker = connection.broker.control
        (partition,) = partitions_of(broker, topic.topic, topic.partition)
        require_obeyed(connection, topic.topic)
        follower = connection.view([partition])
        meant = AtOffset(_first_at(connection, follower, topic, before)) if isinstance(before, AtTime) else before
        view, bounds = view_now(follower, partition), broker.bounds(topic.topic, partition.partition)
        require_nothing_lost(connection, follower, topic.topic, view, bounds)
        offset, groups = offset_before(meant, view, bounds), groups_reading(broker, topic.topic)
        plan = plan_delete(view, bounds, offset, force, connection.clock.now_ms(), groups)
        document: dict[str, Any] = {"topic": topic.topic, **plan.as_json(), "executed": False}
        document |= {"order": None, "obeyed": None}
        _show(context, topic, plan)
        obeyed = None
        if plan.nothing:
            note("it begins there already: nothing to do")
        elif not execute:
            note("nothing was done: --execute does it")
        else:
            document |= {"executed": True, "order": order_delete(connection, follower, plan).id}
            note(f"{'ordered already' if plan.already else 'ordered'}: {document['order']}")
            if not no_wait and not plan.waits:
                note(f"waiting until agents obey, at most {WAIT_S:g} s")
                obeyed = wait_obeyed(connection, follower, topic.topic, plan)
                document["obeyed"] = asdict(obeyed)
        if context.as_json:
            context.output.document(document)
        if obeyed is not None:
            require_reached(plan, obeyed, topic.topic)
            note(f"the log begins at {obeyed.log_start_offset}, the broker's at {obeyed.local_log_start_offset}")
            note(
                f"segments: {obeyed.gone} are gone, {obeyed.condemned} are condemned and wait for expire.grace and "
                f"leases, {obeyed.readable} are yet to be condemned"
            )


def _first_at(connection: Connection, follower: Follower, topic: TopicArgument, before: AtTime) -> Offset:
    """Return the offset of the first record at or after a time, or the last stable offset if all are older."""
    assert topic.partition is not None
    reader = connection.reader(follower)
    return offset_of(before, reader, topic.topic, topic.partition, Isolation.READ_COMMITTED, Tier.AUTO)


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
        f"  remote tier   {counted(len(plan.going), 'segment goes', 'segments go')}: "
        f"{counted(remote['records'], 'record')}, {counted(remote['bytes'], 'byte')}"
        + (f"; {len(plan.condemned)} more are condemned already" if plan.condemned else "")
    )
    for segment in plan.going[:SHOWN]:
        line(f"    {segment.segment_id}  {segment.offsets}")
    if len(plan.going) > SHOWN:
        line(f"    … and {len(plan.going) - SHOWN} more")
    for segment in plan.across:
        line(f"    {segment.segment_id}  {segment.offsets} stays whole, and is read from {plan.before} on")
    line(
        f"  local tier    {counted(plan.local_offsets, 'offset goes', 'offsets go')}, "
        f"{plan.never_copied:,} of them never copied ({plan.local_copied_bytes:,} bytes of whole copied segments)"
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
