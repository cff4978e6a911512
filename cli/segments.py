"""``tierstate segments``."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from ..state.segment import SegmentState
from .context import Context
from .flags import declare, view_source
from .parameter_types import TopicArgument
from .reading import gateway_client


@declare("segments user_events:0 --json", topic="T:P")
@click.option("--all", "every", is_flag=True, help="Also segments that are not readable: started, deleted, abandoned.")
@view_source()
def command(context: Context, topic: TopicArgument, every: bool) -> None:
    """The remote segments of a partition, oldest first, with states, offsets, sizes and object keys.

    Records are those at or above the log start: at most so many, of a segment that has it inside.

    A topic that is gone is named by its topic id.
    """
    columns = ("segment", "state", "offsets", "records", "log bytes", "object bytes", "object key")
    document = _of_gateway(context, topic) if context.gateway is not None else _of_view(context, topic)
    document = [each for each in document if every or each["state"] == SegmentState.COPY_SEGMENT_FINISHED.value]
    context.output.table(columns, [_row(each) for each in document], document)


def _of_view(context: Context, topic: TopicArgument) -> list[dict[str, Any]]:
    from ..app.looking.remote_records import segments_as_json
    from ..app.opening.partitions import find_partitions

    with context.reading() as connection:
        partitions = find_partitions(connection.control, topic.topic, topic.partition)
        assert partitions is not None  # the argument requires a partition
        return segments_as_json(connection.view(partitions).partition(partitions[0]))


def _of_gateway(context: Context, topic: TopicArgument) -> list[dict[str, Any]]:
    assert topic.partition is not None
    with closing(gateway_client(context)) as client:
        return client.segments(topic.topic, topic.partition)


def _row(segment: dict[str, Any]) -> tuple[object, ...]:
    offsets = segment.get("offsets")
    sizes = [segment.get(name) for name in ("log_object_bytes", "indexes_object_bytes", "manifest_bytes")]
    objects = [size for size in sizes if size is not None]
    return (
        segment["segment_id"],
        segment["state"],
        f"{offsets['start']}..{offsets['end']}" if offsets else None,
        segment.get("remote_records", segment.get("record_count")),
        segment.get("log_bytes"),
        sum(objects) if objects else None,
        segment.get("object_key"),
    )
