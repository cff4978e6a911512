"""``tierstate init``, ``check`` and ``config``: what comes before an agent starts."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import click

from ..runtime.clock import SystemClock
from ..state.errors import Difference, TierStateLost
from ..state.object_keys import ObjectKind
from .context import Context
from .flags import declare

if TYPE_CHECKING:
    from ..storage.object_store import ObjectStore

LOOKED_AT = 1_000


@declare("init --bootstrap-server 127.0.0.1:9092 --replication-factor 1", execute=True)
@click.option("--partitions", type=click.IntRange(1, 10_000), help="Partitions; fixed for the topic's life.")
@click.option("--replication-factor", type=click.IntRange(1, 100), help="Copies of each partition.")
def init(context: Context, partitions: int | None, replication_factor: int | None, execute: bool) -> None:
    """Create the tier-state topic, or check the one that is there; and the store's folder, where the store is one.

    Refuses a topic with a wrong configuration, or one that lost facts, and says what is wrong with it. A folder that is
    missing later is away (a disk that is not mounted): only this command makes it, before the topic has facts.
    """
    from ..app.opening.connection import open_store_of, tier_topic_spec
    from ..app.opening.moved import place_of
    from ..app.operating.topic_stores import make_store_of_topics
    from ..broker.tier_topic_setup import TierTopicSpec, create_tier_topic, has_facts, look_at_tier_topic

    with context.connected() as connection:
        settings = connection.reachable
    spec = tier_topic_spec(settings)
    spec = TierTopicSpec(spec.name, partitions or spec.partitions, replication_factor or spec.replication_factor)
    output = context.output
    if not execute:
        there = look_at_tier_topic(settings.kafka, spec).there
        document = {"topic": spec.name, "executed": False, "would_create": not there, **spec.config}
        output.table(("setting", "value"), list(document.items()), document)
        return
    used = False
    if settings.store.url:
        make = not has_facts(settings.kafka, spec.name)  # an empty folder in the place of a used one hides its loss
        with closing(open_store_of(settings, listener=context.note_event, make=make)) as store:
            used = _is_used(store)
            for topics in place_of(settings).topics:
                make_store_of_topics(store, topics)
    created = create_tier_topic(settings.kafka, spec, SystemClock().now_ms())
    look_at_tier_topic(settings.kafka, spec).require_safe()
    if output.as_json:
        output.document(
            {"topic": spec.name, "executed": True, "created": created, "bucket_is_used": used, "problems": []}
        )
    else:
        output.line(f"{spec.name}: {'created' if created else 'already there'}, checked, ready")
    if created and used:
        output.note(f"the bucket was used before. If {spec.name} was lost: {TierStateLost.WAY_OUT}")


def _is_used(store: ObjectStore) -> bool:
    """Return whether the store has an archived tier-state topic, or a manifest in its first ``LOOKED_AT`` objects."""
    from ..follower.object_names import ROOT

    first = (entry.key for entry in islice(store.list(), LOOKED_AT))
    return next(iter(store.list(ROOT)), None) is not None or any(key.endswith(ObjectKind.MANIFEST) for key in first)


@declare("check --config /etc/tierstate/tierstate.toml")
def check(context: Context) -> None:
    """Check settings, broker, log folders, store and topic before anything starts.

    Exit code 1 when one of them is not fit for an agent, 4 when facts of the tier-state topic are lost. A warning, as
    of a pattern that matches no topic, changes no exit code. A check that was not possible has the state -. Each row is
    printed as it ends, and has a deadline: a part that does not answer by then is wrong.
    """
    from ..app.operating.checks import Row, checked
    from ..runtime.settings import needed_by_agent

    rows: list[Row] = []
    with context.connected(*needed_by_agent(context.settings)) as connection:
        if not context.as_json:
            context.output.row(COLUMNS, WIDTHS)
        for row in checked(connection):
            rows.append(row)
            if not context.as_json:
                context.output.row((row.check, row.state, row.detail), WIDTHS)
    if context.as_json:
        context.output.document(
            [
                {"check": each.check, "ok": each.state != "wrong", "state": each.state, "detail": each.detail}
                for each in rows
            ]
        )
    wrong = [each.check for each in rows if each.state == "wrong"]
    if any(each.facts_lost for each in rows):
        raise TierStateLost("facts are lost", wrong=",".join(wrong))
    if wrong:
        raise Difference("not ready for an agent", wrong=",".join(wrong))


COLUMNS, WIDTHS = ("check", "state", "detail"), (len("tier-state topic"), len("warning"), 0)


@declare("config --set copy.concurrency=8")
def config(context: Context) -> None:
    """Show the effective settings and where each came from. Secrets are hidden."""
    from ..runtime.effective_settings import effective

    rows = effective(context.settings)
    document = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
    context.output.table(("key", "value", "origin"), rows, document)
