"""``tierstate diff``: two views compared, fact by fact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .context import Context
from .flags import pass_context
from .opened import opened_broker, opened_topic, opened_view

if TYPE_CHECKING:
    from ..state.view import ViewStore


@click.command("diff", epilog="Example: tierstate diff /var/lib/tierstate/agent topic")
@click.argument("one")
@click.argument("two")
@pass_context
def command(context: Context, one: str, two: str) -> None:
    """Compare two views: each a state folder (of a stopped process, or of `replay --out`), or `topic` for a replay.

    Exit code 1 when they differ, with every fact that only one of them has.
    """
    from ..follower.diff import differences
    from ..follower.digests import live_set_digest
    from ..state.errors import Difference

    with _view(context, one) as left, _view(context, two) as right:
        found = list(differences(left, right))
        digests = [live_set_digest(view.entries()).hexdigest() for view in (left, right)]
    document = [
        {"tier_partition": d.tier_partition, "key": d.key, "position_one": d.left, "position_two": d.right}
        for d in found
    ]
    if context.as_json:
        context.output.document(
            {"equal": not found, "digest_one": digests[0], "digest_two": digests[1], "differences": document}
        )
    elif found:
        columns = ("tier partition", "key", one, two)
        context.output.table(columns, [(d.tier_partition, d.key, d.left, d.right) for d in found])
    else:
        context.output.line(f"equal: live-set digest {digests[0]}")
    if found:
        raise Difference("the views differ", facts=len(found))


@contextmanager
def _view(context: Context, name: str) -> Iterator[ViewStore]:
    from ..follower.resume import ViewFolder
    from ..follower.rocksdb_view import ViewIdentity
    from ..runtime.clock import SystemClock
    from ..schemas.codec import decode_fact
    from ..state.errors import InvalidRequest

    if name == "topic":
        with opened_view(context) as follower:
            yield follower.store
        return
    path = Path(name)
    if not (path / "view").is_dir():
        raise InvalidRequest("no view in this folder", path=path)
    with opened_broker(context) as broker, opened_topic(context) as topic:
        identity = ViewIdentity(broker.control.cluster().cluster_id, topic.topic_id, topic.mapped_partitions)
    view = ViewFolder(path / "view", decode_fact).resume(identity, SystemClock().now_ms())
    if view is None:
        raise InvalidRequest("the folder holds no view of this tier-state topic", path=path)
    try:
        yield view
    finally:
        view.close()
