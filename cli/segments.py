"""``tierstate segments``."""

from __future__ import annotations

import click

from .context import Context
from .flags import pass_context
from .topic_argument import TopicArgument, TopicType


@click.command("segments", epilog="Example: tierstate segments user_events:0 --json")
@click.argument("topic", type=TopicType(partition=True))
@click.option("--all", "every", is_flag=True, help="Also segments that are not readable: started, deleted, abandoned.")
@pass_context
def command(context: Context, topic: TopicArgument, every: bool) -> None:
    """The remote segments of a partition, oldest first, with states, offsets, sizes and object keys.

    A topic that is gone is named by its topic id.
    """
    from ..app.partitions import find_partitions
    from ..schemas.codec import descriptor_to_json
    from ..state.segment import SegmentState

    with context.connected() as connection:
        partitions = find_partitions(connection.broker.control, topic.topic, topic.partition)
        assert partitions is not None  # one is named
        view = connection.view(partitions).partition(partitions[0])
    found = sorted(
        (s for s in view.segments.values() if every or s.state is SegmentState.COPY_SEGMENT_FINISHED),
        key=lambda s: (s.subject.offsets.start if s.subject else -1, s.segment_id),
    )
    rows, document = [], []
    for segment in found:
        known, remote = segment.subject, segment.remote
        rows.append(
            (
                segment.segment_id,
                segment.state.value,
                known.offsets if known else None,
                remote.record_count if remote else None,
                remote.log_bytes if remote else None,
                remote.object_bytes if remote else None,
                known.object_key if known else None,
            )
        )
        descriptor = descriptor_to_json(known) if known else {}
        document.append({**descriptor, "segment_id": segment.segment_id, "state": segment.state.value})
    columns = ("segment", "state", "offsets", "records", "log bytes", "object bytes", "object key")
    context.output.table(columns, rows, document)
