"""``tierstate recover --begin-history``: a person makes the topic authoritative, not its diverged archive."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..runtime.units import counted
from ..state.errors import CorruptData, Difference
from .context import Context

if TYPE_CHECKING:
    from ..app.operating.recovery import Break
    from ..follower.archives import Parting
    from ..rules.lost_facts import Aftermath
    from ..state.segment import RemoteSegment

KEYS_SHOWN = 20


def begin(context: Context, execute: bool) -> None:
    """Show where topic and archive diverge, and the facts that only the archive has. ``execute`` begins a new history.

    Raises InvalidRequest if topic and archive have not diverged. After the output, raises CorruptData if segments
    that the topic calls readable were deleted, or Difference if only the lost history knew some segments. Raises
    Fenced while another command has the lock of the bucket prefix.
    """
    from ..app.operating.recovery import begin_after, find_break

    with context.alone("recover --begin-history", execute) as (connection, _):
        history_break = find_break(connection)
        if execute:
            begin_after(connection, history_break)
    _show(context, history_break, execute)
    _judge(history_break)


def _document(break_: Break, executed: bool) -> dict[str, Any]:
    def rows(segments: tuple[RemoteSegment, ...]) -> list[dict[str, object]]:
        return [
            {"segment_id": each.segment_id, "offsets": asdict(each.offsets), "object_key": each.object_key}
            for each in segments
        ]

    return {
        "topic_id": break_.topic_id,
        "executed": executed,
        "left": break_.history,
        "begun": break_.history + 1,
        "tier_partitions": [
            {
                "tier_partition": each.tier_partition,
                "common": each.common,
                "parted_at": each.at,
                "archived_to": each.archived_to,
                "end": each.end,
                "lost": [
                    {"position": one.position, "key": one.entry.key, "tombstone": one.entry.value is None}
                    for one in each.lost
                ],
            }
            for each in break_.partings
        ],
        "partitions": [
            {
                "topic": each.view.topic,
                "topic_id": each.partition.topic_id,
                "partition": each.partition.partition,
                "log_start_offset": each.view.log_start,
                "readable": rows(each.view.readable),
                "left": rows(each.left),
                "gone": rows(each.gone),
            }
            for each in break_.after
        ],
    }


def _show(context: Context, break_: Break, executed: bool) -> None:
    if context.as_json:
        context.output.document(_document(break_, executed))
        return
    line = context.output.line
    line(f"tier-state topic {break_.topic_id}: history {break_.history} is left, history {break_.history + 1} begins")
    for parting in break_.partings:
        _show_parting(context, parting)
    for aftermath in break_.after:
        _show_aftermath(context, aftermath)
    text = f"history {break_.history + 1} has begun: agents that run end by themselves; start them again"
    line(text if executed else f"history {break_.history + 1} to be begun; --execute does it")


def _show_parting(context: Context, parting: Parting) -> None:
    if parting.at is None:
        return
    line = context.output.line
    agree = "nowhere" if parting.common is None else f"up to position {parting.common}"
    line(
        f"tier-state partition {parting.tier_partition}: topic and archive agree {agree}, and have parted at "
        f"{parting.at}; archived to {parting.archived_to}, the topic ends at {parting.end}"
    )
    for fact in parting.lost[:KEYS_SHOWN]:
        line(f"  lost fact  {fact.position}  {fact.entry.key}{' (tombstone)' if fact.entry.value is None else ''}")
    if len(parting.lost) > KEYS_SHOWN:
        line(f"  lost facts {len(parting.lost) - KEYS_SHOWN} more; --json names them all")


def _show_aftermath(context: Context, each: Aftermath) -> None:
    line, view = context.output.line, each.view
    line(f"{each.partition.named(view.topic or 'unknown')}  (topic id {each.partition.topic_id})")
    records = sum(segment.record_count for segment in view.readable)
    readable = f"{counted(len(view.readable), 'segment')}, {counted(records, 'record')}"
    line(f"  readable   {readable}, log start {view.log_start}")
    for segment in each.left:
        line(f"  LOST       {segment.offsets} {segment.segment_id}: no fact names it: {segment.object_key}")
    for segment in each.gone:
        line(f"  GONE       {segment.offsets} {segment.segment_id}: said to be readable, deleted in the lost history")


def _judge(break_: Break) -> None:
    gone, left = sum(len(each.gone) for each in break_.after), sum(len(each.left) for each in break_.after)
    if gone:
        raise CorruptData("not everything is there that the topic calls readable", segments=gone)
    if left:
        raise Difference("segments are left that only the lost history knew", segments=left)
