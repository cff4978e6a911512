"""``tierstate replay``: rebuild the view of now or of an earlier time from the topic or its archive."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..runtime.units import counted
from ..state.errors import InvalidRequest
from ..state.ids import TopicIdPartition
from ..state.offsets import Position, TimestampMs
from ..state.view import ViewStore
from .context import Context
from .flags import declare
from .parameter_types import TIME, TopicArgument

if TYPE_CHECKING:
    from ..follower.time_travel import Replayed

TOPIC, ARCHIVE = "topic", "archive"
NOT_SURE = "Kafka does not answer: what was said just before that time may not be archived"


@declare("replay --source archive --to-time -3d --out /tmp/view", topic="[T[:P]]")
@click.option("--to-position", type=click.IntRange(0), help="Only facts below this position; needs T:P.")
@click.option("--to-time", type=TIME, help="Only facts before this time: ISO 8601, epoch ms, -3d.")
@click.option(
    "--source", type=click.Choice([TOPIC, ARCHIVE]), default=TOPIC, show_default=True, help="Where facts are read."
)
@click.option("--history", type=click.IntRange(0), help="Of the archive; by default the newest.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the view in this new folder.")
@click.option("--without", metavar="KEY", help="Withhold the fact under this key: how a damaged view looks to `diff`.")
def command(
    context: Context,
    topic: TopicArgument | None,
    to_position: int | None,
    to_time: TimestampMs | None,
    source: str,
    history: int | None,
    out: Path | None,
    without: str | None,
) -> None:
    """Rebuild the view from recorded facts alone; print each partition's digests, or keep it with --out.

    The topic goes back to where compaction begins, and earlier positions are an error. The archive has every fact since
    it began.
    """
    from ..app.opening.connection import tier_partitions
    from ..app.opening.partitions import partitions_of
    from ..app.opening.rebuilt import archive_identity, rebuild_into, replay_from_archive, replay_from_topic
    from ..follower.time_travel import Target

    if to_position is not None and (topic is None or topic.partition is None):
        raise InvalidRequest("--to-position is a place in one tier-state partition: name T:P")
    if to_position is not None and to_time is not None:
        raise InvalidRequest("--to-position or --to-time, not both")
    if out is not None and out.exists() and any(out.iterdir()):
        raise InvalidRequest("the folder is not empty", out=out)
    if history is not None and source != ARCHIVE:
        raise InvalidRequest("--history is of the archive: name --source archive")
    target = Target(None if to_position is None else Position(to_position), to_time, without)
    with context.connected("store.url" if source == ARCHIVE else "kafka.bootstrap.servers") as connection:
        partitions = None
        if topic is not None:
            partitions = partitions_of(connection.broker.control, topic.topic, topic.partition)
        if source == ARCHIVE:
            identity, parted = archive_identity(connection, history)
            if parted is not None:
                context.output.note(parted)
            numbers = tier_partitions(identity.partitions, partitions)
            store, replayed = rebuild_into(
                out, identity, lambda store: replay_from_archive(connection, identity, numbers, store, target)
            )
            if to_time is not None and not all(each.reached for each in replayed):
                context.output.note(NOT_SURE)
        else:
            identity = connection.topic_identity
            numbers = tier_partitions(identity.partitions, partitions)
            store, replayed = rebuild_into(
                out, identity, lambda store: replay_from_topic(connection, numbers, store, target)
            )
        try:
            _print(context, source, store, replayed, partitions)
        finally:
            store.close()


def _print(
    context: Context, source: str, store: ViewStore, replays: list[Replayed], only: list[TopicIdPartition] | None
) -> None:
    from ..follower.digests import digests_of

    rows = digests_of(store, only)
    document = {
        "source": source,
        "live_set_digest": rows.live_set,
        "facts": rows.facts,
        "tier_partitions": [asdict(each) for each in replays],
        "partitions": [
            {"topic_id": p.topic_id, "partition": p.partition, "topic": topic, "meaning_digest": digest}
            for p, topic, digest in rows.meanings
        ],
    }
    missing = sum(each.holes for each in replays)
    if source == ARCHIVE and missing:
        context.output.note(
            f"{counted(missing, 'record was', 'records were')} compacted away before they could be archived"
        )
    if context.as_json:
        context.output.document(document)
        return
    context.output.line(f"{counted(rows.facts, 'fact')}, live-set digest {rows.live_set}")
    for partition, topic, digest in rows.meanings:
        context.output.line(f"  {partition.named(topic)}  meaning {digest}")
