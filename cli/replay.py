"""``tierstate replay``: rebuild the view from the topic, and print or store it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .context import Context
from .flags import pass_context
from .opened import opened_broker, opened_topic, user_partitions
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..broker.tier_topic import KafkaTierTopic
    from ..state.ids import TopicIdPartition
    from ..state.offsets import Position
    from ..state.view import ViewStore


@click.command("replay", epilog="Example: tierstate replay --out /tmp/view && tierstate diff /tmp/view topic")
@click.argument("topic", type=TopicType(), required=False)
@click.option("--to-position", type=click.IntRange(0), help="Only facts below this position; needs T:P.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the view in this new folder.")
@click.option("--without", metavar="KEY", help="Withhold the fact under this key: how a damaged view looks to `diff`.")
@pass_context
def command(
    context: Context, topic: TopicArgument | None, to_position: int | None, out: Path | None, without: str | None
) -> None:
    """Rebuild the view from the tier-state topic alone; print each partition's digests, or keep it with --out.

    Time travel ends where compaction begins: erased facts are gone from the topic (the archive comes later).
    """
    from ..state.errors import InvalidRequest
    from ..state.keys import tier_partition_of

    if to_position is not None and (topic is None or topic.partition is None):
        raise InvalidRequest("--to-position is a place in one tier-state partition: name T:P")
    if out is not None and out.exists() and any(out.iterdir()):
        raise InvalidRequest("the folder is not empty", out=out)
    with opened_topic(context) as tier_topic:
        numbers, partitions = list(range(tier_topic.mapped_partitions)), None
        if topic is not None:
            with opened_broker(context) as broker:
                partitions = user_partitions(broker, topic.topic, topic.partition)
            numbers = sorted({tier_partition_of(each, tier_topic.mapped_partitions) for each in partitions})
        with context.output.progress("reading the tier-state topic") as advance:
            ends = {number: tier_topic.end(number) for number in numbers}
            if to_position is not None:
                ends = {number: min(end, _position(to_position)) for number, end in ends.items()}
            store = _replayed(context, tier_topic, ends, out, without, advance)
    try:
        _print(context, store, partitions)
    finally:
        store.close()


def _position(number: int) -> Position:
    from ..state.offsets import Position

    return Position(number)


def _replayed(
    context: Context,
    topic: KafkaTierTopic,
    ends: dict[int, Position],
    out: Path | None,
    without: str | None,
    advance: Any,
) -> ViewStore:
    from ..follower.replay import catch_up
    from ..follower.resume import ViewFolder
    from ..follower.rocksdb_view import ViewIdentity
    from ..schemas.codec import decode_fact
    from ..state.view import MemoryView

    seen = 0

    def progress(read: int) -> None:
        nonlocal seen
        advance(read - seen)
        seen = read

    keep = None if without is None else lambda number, entry: entry.key != without
    if out is None:
        memory = MemoryView(decode_fact)
        catch_up(topic, memory, ends, keep=keep, progress=progress)
        return memory
    with opened_broker(context) as broker:
        identity = ViewIdentity(broker.control.cluster().cluster_id, topic.topic_id, topic.mapped_partitions)
    folder = ViewFolder(out / "view", decode_fact)
    view = folder.fresh(identity)
    catch_up(topic, view, ends, keep=keep, progress=progress)
    folder.install(view)
    return view


def _print(context: Context, store: ViewStore, only: list[TopicIdPartition] | None) -> None:
    from ..follower.digests import digests_of

    rows = digests_of(store, only)
    document = {
        "live_set_digest": rows.live_set,
        "facts": rows.facts,
        "partitions": [
            {"topic_id": p.topic_id, "partition": p.partition, "topic": topic, "meaning_digest": digest}
            for p, topic, digest in rows.meanings
        ],
    }
    if context.as_json:
        context.output.document(document)
        return
    context.output.line(f"{rows.facts} facts, live-set digest {rows.live_set}")
    for partition, topic, digest in rows.meanings:
        context.output.line(f"  {topic or partition.topic_id}:{partition.partition}  meaning {digest}")
