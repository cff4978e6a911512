"""``tierstate rescue``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..rules.reasons import about_size
from ..runtime.units import counted
from ..state.errors import CorruptData, Difference, ObjectNotFound
from .context import Context
from .flags import declare
from .parameter_types import SIZE

if TYPE_CHECKING:
    from ..app.operating.rescue import LeadingSegment, RescuedPartition


@declare("rescue /var/lib/kafka --free 20GiB --execute", execute=False)
@click.argument("log_dir", metavar="LOG-DIR", type=click.Path(path_type=Path))
@click.option("--free", type=SIZE, metavar="SIZE", help="Stop when so much is free again; without it all goes.")
def command(context: Context, log_dir: Path, free: int | None, execute: bool) -> None:
    """Take copied segments from the full disk of a broker that is down, so that it starts.

    Only leading segments go, and only those whose copy is read back whole and is the same as the local file. The view
    comes from the bucket; no broker is asked. The newest segment of a partition always stays.

    Consumer groups cannot be asked. A plain consumer that has not read what goes is reset when the broker is back: let
    it read through the proxy, or by tierstate's own clients. Exit code 1 when a copy is damaged.
    """
    from ..app.operating.rescue import find_leading_segments, hold_broker_lock, prove, remove

    damaged = list[str]()
    context.overrides += ("view.source=bucket",)
    with hold_broker_lock(log_dir), context.reading() as connection:
        partitions = list(find_leading_segments(log_dir, connection.view()))
        gone: dict[Path, LeadingSegment] = {}
        left = free
        with context.output.progress("reading copies back", sum(len(each.segments) for each in partitions)) as advance:
            for partition in partitions:
                for segment in partition.segments:
                    if left is not None and left <= 0:
                        break
                    try:
                        if execute:
                            prove(segment, connection.store, connection.keys)
                            remove(segment)
                    except (CorruptData, ObjectNotFound) as error:
                        damaged.append(str(error))
                        break
                    gone[segment.path] = segment
                    left = None if left is None else left - segment.disk_bytes
                    advance(1)
    _show(context, partitions, gone, execute)
    for problem in damaged:
        context.output.note(f"stays: {problem}")
    if damaged:
        raise Difference("copies are not what they must be: their local segments stay", segments=len(damaged))


def _show(
    context: Context, partitions: list[RescuedPartition], gone: dict[Path, LeadingSegment], execute: bool
) -> None:
    columns = ("topic", "partition", "segments", "bytes", "log_begins_at", "why_no_more")
    rows = []
    for partition in partitions:
        going = [segment for segment in partition.segments if segment.path in gone]
        why = partition.why if len(going) == len(partition.segments) else "enough is free" if not execute else ""
        begins = going[-1].next_base if going else None
        size = sum(segment.disk_bytes for segment in going)
        rows.append((partition.topic, partition.partition, len(going), size, begins, why))
    freed = sum(segment.disk_bytes for segment in gone.values())
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    context.output.table(columns, rows, {"executed": execute, "bytes": freed, "partitions": named})
    what = f"{counted(len(gone), 'segment')}, {about_size(freed)}"
    if execute:
        context.output.note(f"{what}, taken away: start the broker, then tierstate check")
    else:
        context.output.note(f"{what}, may go once proven: nothing was done, --execute reads each copy back and does it")
