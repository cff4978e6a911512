"""``tierstate replay``: rebuild the view from the topic or its archive, as of now or earlier; print or store it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .context import Context
from .flags import pass_context
from .opened import opened_broker, opened_topic, user_partitions
from .positions import TimeType
from .replayed import Target, identity_of, opened_archive, replay_from_archive, replay_from_topic
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..follower.rocksdb_view import ViewIdentity
    from ..follower.time_travel import Replayed
    from ..state.ids import TopicIdPartition
    from ..state.offsets import TimestampMs
    from ..state.view import ViewStore

TOPIC, ARCHIVE = "topic", "archive"


@click.command("replay", epilog="Example: tierstate replay --source archive --to-time -3d --out /tmp/view")
@click.argument("topic", type=TopicType(), required=False)
@click.option("--to-position", type=click.IntRange(0), help="Only facts below this position; needs T:P.")
@click.option("--to-time", type=TimeType(), help="Only facts before this time: ISO 8601, epoch ms, -3d.")
@click.option(
    "--source", type=click.Choice([TOPIC, ARCHIVE]), default=TOPIC, show_default=True, help="Where facts are read."
)
@click.option("--history", type=click.IntRange(0), help="Of the archive; by default the newest.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the view in this new folder.")
@click.option("--without", metavar="KEY", help="Withhold the fact under this key: how a damaged view looks to `diff`.")
@pass_context
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

    Time travel in the topic ends where compaction begins, and says so; the archive has every fact since it began.
    """
    from ..state.errors import InvalidRequest
    from ..state.offsets import Position

    if to_position is not None and (topic is None or topic.partition is None):
        raise InvalidRequest("--to-position is a place in one tier-state partition: name T:P")
    if to_position is not None and to_time is not None:
        raise InvalidRequest("--to-position or --to-time, not both")
    if out is not None and out.exists() and any(out.iterdir()):
        raise InvalidRequest("the folder is not empty", out=out)
    if history is not None and source != ARCHIVE:
        raise InvalidRequest("--history is of the archive: name --source archive")
    partitions = None
    if topic is not None:
        with opened_broker(context) as broker:
            partitions = user_partitions(broker, topic.topic, topic.partition)
    target = Target(None if to_position is None else Position(to_position), to_time, without)
    replay = partial(_from_archive, history=history) if source == ARCHIVE else _from_topic
    store, said = replay(context, partitions, target, out)
    try:
        _print(context, source, store, said, partitions)
    finally:
        store.close()


Rebuilt = tuple["ViewStore", "list[Replayed]"]


def _from_topic(
    context: Context, partitions: list[TopicIdPartition] | None, target: Target, out: Path | None
) -> Rebuilt:
    with opened_topic(context) as topic:
        identity = identity_of(context, topic)
        return _into(
            out,
            identity,
            lambda store: replay_from_topic(context, topic, _numbers(identity, partitions), store, target),
        )


def _from_archive(
    context: Context,
    partitions: list[TopicIdPartition] | None,
    target: Target,
    out: Path | None,
    history: int | None,
) -> Rebuilt:
    with opened_archive(context, history) as (objects, identity):
        return _into(
            out,
            identity,
            lambda store: replay_from_archive(
                context, objects, identity, _numbers(identity, partitions), store, target
            ),
        )


def _numbers(identity: ViewIdentity, partitions: list[TopicIdPartition] | None) -> list[int]:
    from ..state.keys import tier_partition_of

    if partitions is None:
        return list(range(identity.partitions))
    return sorted({tier_partition_of(each, identity.partitions) for each in partitions})


def _into(out: Path | None, identity: ViewIdentity, fill: Callable[[ViewStore], list[Replayed]]) -> Rebuilt:
    """In memory, or a view folder that counts only once it is complete."""
    from ..follower.resume import ViewFolder
    from ..schemas.codec import decode_fact
    from ..state.view import MemoryView

    if out is None:
        memory = MemoryView(decode_fact, identity.partitions)
        return memory, fill(memory)
    folder = ViewFolder(out / "view", decode_fact)
    view = folder.fresh(identity)
    try:
        said = fill(view)
    except BaseException:
        view.close()
        raise
    folder.install(view)
    return view, said


def _print(
    context: Context,
    source: str,
    store: ViewStore,
    said: list[Replayed],
    only: list[TopicIdPartition] | None,
) -> None:
    from ..follower.digests import digests_of

    rows = digests_of(store, only)
    document = {
        "source": source,
        "live_set_digest": rows.live_set,
        "facts": rows.facts,
        "tier_partitions": [asdict(each) for each in said],
        "partitions": [
            {"topic_id": p.topic_id, "partition": p.partition, "topic": topic, "meaning_digest": digest}
            for p, topic, digest in rows.meanings
        ],
    }
    missing = sum(each.holes for each in said)
    if source == ARCHIVE and missing:
        context.output.note(f"{missing} records were compacted away before they could be archived")
    if context.as_json:
        context.output.document(document)
        return
    context.output.line(f"{rows.facts} facts, live-set digest {rows.live_set}")
    for partition, topic, digest in rows.meanings:
        context.output.line(f"  {partition.named(topic)}  meaning {digest}")
