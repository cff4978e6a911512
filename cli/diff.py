"""``tierstate diff``: compare two views, fact by fact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from ..state.errors import Difference, InvalidRequest
from ..state.offsets import Position
from ..state.view import ViewStore
from .context import Context
from .flags import declare
from .parameter_types import TIME

TOPIC = "topic"
_PLACE = re.compile("([0-9]{1,9})/([0-9]{1,18})")


@declare("diff @-3d topic")
@click.argument("one")
@click.argument("two")
def command(context: Context, one: str, two: str) -> None:
    """Compare two views, each one of these:

    \b
    a folder       of a stopped process, or of `replay --out`
    topic          as the tier-state topic has it now
    @TIME          as the archive had it (@2026-11-21T10:00:00Z, @-3d)
    NUMBER/POSITION  one tier-state partition below a position, from the archive

    Exit code 1 when they differ, with every fact that only one of them has.
    """
    from ..follower.digests import differences, live_set_digest

    only = _one_partition(one, two)
    with _view(context, one) as left, _view(context, two) as right:
        differing = list(differences(left, right, only))
        digests = [live_set_digest(view.entries(only)).hexdigest() for view in (left, right)]
    document = [
        {"tier_partition": d.tier_partition, "key": d.key, "position_one": d.left, "position_two": d.right}
        for d in differing
    ]
    if context.as_json:
        context.output.document(
            {"equal": not differing, "digest_one": digests[0], "digest_two": digests[1], "differences": document}
        )
    elif differing:
        columns = ("tier partition", "key", one, two)
        context.output.table(columns, [(d.tier_partition, d.key, d.left, d.right) for d in differing])
    else:
        context.output.line(f"equal: live-set digest {digests[0]}")
    if differing:
        raise Difference("the views differ", facts=len(differing))


def _one_partition(*names: str) -> int | None:
    """Return the tier-state partition that a name restricts the comparison to. Raises InvalidRequest for two."""
    numbers = {int(place[1]) for name in names if (place := _PLACE.fullmatch(name))}
    if len(numbers) > 1:
        raise InvalidRequest("these are positions of different tier-state partitions", one=names[0], two=names[1])
    return next(iter(numbers), None)


@contextmanager
def _view(context: Context, name: str) -> Iterator[ViewStore]:
    from ..app.opening.rebuilt import archived_view, stored_view
    from ..follower.time_travel import Target

    place = _PLACE.fullmatch(name)
    if name == TOPIC:
        with context.connected() as connection:
            yield connection.view().store
        return
    archived = place is not None or name.startswith("@")
    with context.connected("store.url" if archived else "kafka.bootstrap.servers") as connection:
        if place is not None:
            target, number = Target(position=Position(int(place[2]))), int(place[1])
        elif archived:
            target, number = Target(time=TIME.convert(name, None, None)), None
        else:
            with closing(stored_view(connection, Path(name))) as view:
                yield view
            return
        store, parted = archived_view(connection, target, number)
        if parted is not None:
            context.output.note(parted)
    yield store
