"""``tierstate sweep``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TextIO

import click

from .archived_deletes import ArchivedDeletes
from .context import Context
from .flags import acts, pass_context
from .keeping import newest_identity
from .meant import facts_of, ids_meant, wanted_of
from .opened import following, object_names, open_store_of, opened_broker, opened_topic
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..broker.tier_topic import KafkaTierTopic
    from ..follower.follower import Follower
    from ..leader.sweeper import Look, SweepTools
    from ..runtime.listener import Event
    from ..state.ids import TopicId, TopicIdPartition
    from ..state.partition_view import PartitionView
    from ..state.routing import LocalBounds
    from .sweep_plan import Row


@click.command("sweep", epilog="Example: tierstate sweep orders --execute")
@click.argument("topic", type=TopicType(), required=False)
@acts(unasked=False)
@click.option("--orphan", "orphans", multiple=True, metavar="KEY", help="Delete this too, though no fact names it.")
@click.option("--orphans-from", type=click.File(), metavar="FILE", help="And what is listed here, one key a line.")
@pass_context
def command(
    context: Context,
    topic: TopicArgument | None,
    execute: bool,
    orphans: tuple[str, ...],
    orphans_from: TextIO | None,
) -> None:
    """Show the objects of a partition, a topic or all topics that no segment needs, and delete what may go.

    condemned: a fact says that its segment was deleted; it goes with --execute. upload: never ended, and its attempt
    did; likewise. orphan, unknown: no fact names it. It may be of another cluster, of Kafka's own plugin or of a lost
    history, and goes only when its key is given. abandoned: agents sweep those by themselves.
    Agents do all this too, but for orphans: after sweep.grace. Exit code 1 when something stays that no agent needs.
    """
    explicit = frozenset(_keys(orphans, orphans_from))
    with _opened(context) as (tools, broker, tier_topic):
        names = {described.topic_id: described.name for described in broker.topics()}
        meant = ids_meant(context, topic) if topic is not None else (None, None)
        with following(context, tier_topic, wanted_of(*meant)) as follower:
            partitions = _partitions(context, broker, follower, *meant)
            sweep = _Sweep(tools, follower, names)
            with context.output.progress("listing objects", len(partitions)) as advance:
                for partition in partitions:
                    sweep.look(partition, broker, explicit)
                    advance(1)
            sweep.check(explicit, execute=execute)
            swept: set[str] = set()
            try:
                if execute:
                    with context.output.progress("sweeping", sum(row.sweep for row in sweep.rows)) as advance:
                        for key in sweep.delete():
                            swept.add(key)
                            advance(1)
            finally:
                _show(context, sweep, swept, execute)
    _judge(sweep.rows, swept)


class _Sweep:
    """What was found, partition by partition, and its deletion."""

    def __init__(self, tools: SweepTools, follower: Follower, names: dict[TopicId, str]) -> None:
        self._tools, self._follower, self._names = tools, follower, names
        self.rows: list[Row] = []
        self.looks: list[Look] = []

    def look(self, partition: TopicIdPartition, broker: BrokerControl, explicit: frozenset[str]) -> None:
        """Its objects are listed before its facts are read once more."""
        from ..leader.sweeper import look
        from ..runtime.clock import SystemClock
        from .sweep_plan import rows_of

        before = self._follower.partition(partition)
        name = before.topic or self._names.get(partition.topic_id)
        if name is None:
            return
        found = look(self._tools, name, before, lambda: self._fresh(partition), SystemClock().now_ms())
        self.looks.append(found)
        self.rows += rows_of(name, found, _bounds(broker, name, partition), explicit)

    def check(self, explicit: frozenset[str], *, execute: bool) -> None:
        """Before anything is deleted. Raises InvalidRequest, Fenced."""
        from .sweep_plan import check_explicit, check_may_act

        check_explicit(self.rows, self.looks, explicit)
        for row in self.rows:
            if execute and row.sweep:
                check_may_act(row.view)

    def delete(self) -> Iterator[str]:
        """Each key once it is gone. Every one is judged anew, by facts up to that moment."""
        from ..leader.sweeper import delete_orphan

        for row in self.rows:
            if row.sweep and row.item is not None:
                trusted = partial(self._trusted, row.view.partition)
                delete_orphan(self._tools, row.item, row.topic, trusted, condemned_only=row.condemned)
                yield row.key

    def _trusted(self, partition: TopicIdPartition) -> PartitionView:
        from .sweep_plan import check_may_act

        return check_may_act(self._fresh(partition))

    def _fresh(self, partition: TopicIdPartition) -> PartitionView:
        self._follower.require_fresh(self._follower.tier_partition(partition), 0)
        return self._follower.partition(partition)


def _keys(orphans: Iterable[str], lines: Iterable[str] | None) -> Iterator[str]:
    yield from orphans
    yield from (line.strip() for line in lines or () if line.strip())


@contextmanager
def _opened(context: Context) -> Iterator[tuple[SweepTools, BrokerControl, KafkaTierTopic]]:
    from ..leader.quarantine import Quarantine
    from ..leader.sweeper import SweepTools
    from ..runtime.clock import SystemClock
    from ..runtime.listener import ChoreFailed, ignore

    settings = context.settings_with("kafka.bootstrap.servers", "store.url")
    store = open_store_of(settings)

    def doubts(event: Event) -> None:
        if isinstance(event, ChoreFailed):
            context.output.note(f"the archive condemns nothing: {event.error}")

    try:
        with opened_topic(context) as topic, opened_broker(context) as broker:
            identity = newest_identity(store, broker.control.cluster().cluster_id, topic)
            keys = object_names(settings, identity.cluster_id)
            archived = ArchivedDeletes(store, identity, SystemClock(), doubts)
            aside = Quarantine(settings.sweep.quarantine_prefix)
            yield SweepTools(store, keys, archived, settings.sweep.grace, ignore, aside), broker.control, topic
    finally:
        store.close()


def _partitions(
    context: Context, broker: BrokerControl, follower: Follower, topic_id: TopicId | None, number: int | None
) -> list[TopicIdPartition]:
    """Those that facts name, and those of topics that are tiered or meant: what is left may have no fact any more."""
    from ..state.ids import TopicIdPartition

    found = set(facts_of(follower, topic_id, number))
    for described in broker.topics():
        tiered = topic_id is None and not described.internal and context.settings.tiering.covers(described.name)
        if tiered or described.topic_id == topic_id:
            found |= {TopicIdPartition(described.topic_id, each.partition) for each in described.partitions}
    return sorted(each for each in found if number in (None, each.partition))


def _bounds(broker: BrokerControl, name: str, partition: TopicIdPartition) -> LocalBounds | None:
    from ..state.errors import TierstateError

    try:
        return broker.bounds(name, partition.partition)
    except TierstateError:
        return None


def _show(context: Context, sweep: _Sweep, swept: set[str], execute: bool) -> None:
    from .sweep_plan import totals

    out, rows = context.output, sweep.rows
    for unseen in {each.uploads_unseen for each in sweep.looks if each.uploads_unseen}:
        out.note(f"uploads that never ended are not shown: {unseen}")
    if out.as_json:
        documents = [row.as_json(row.key in swept) for row in rows]
        out.document({"executed": execute, "found": documents, "totals": totals(rows)})
        return
    done = "swept" if execute else "would go"
    shown = [
        (
            row.view.partition.named(row.topic),
            row.kind,
            row.bytes,
            ((row.key in swept if execute else row.sweep) and done) or "stays",
            row.key,
            row.why,
        )
        for row in rows
    ]
    if shown:
        out.table(("partition", "what", "bytes", "outcome", "object", "why"), shown)
    out.line(", ".join(f"{each['count']:,} {kind} ({each['bytes']:,} bytes)" for kind, each in totals(rows).items()))
    if not execute:
        out.note("nothing was done: --execute does it")


def _judge(rows: list[Row], swept: set[str]) -> None:
    from ..state.errors import Difference

    left = [row for row in rows if row.item is not None and row.key not in swept]
    if left:
        raise Difference("objects are left that no segment needs", objects=len(left))
