"""``tierstate verify``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .context import Context
from .flags import pass_context
from .keeping import newest_identity
from .lost_state import why_lost
from .opened import (
    both_tiers_now,
    following,
    object_names,
    open_store_of,
    opened_broker,
    opened_topic,
    user_partitions,
    view_now,
)
from .topic_argument import TopicArgument, TopicType

if TYPE_CHECKING:
    from ..fetch.verify import Finding
    from ..fetch.verify_objects import Checked
    from ..follower.archives import Archives
    from ..follower.rocksdb_view import ViewIdentity
    from ..storage.object_store import ObjectStore
    from ..storage.segment.encryption import KeyUnwrapper

HIGHEST_LEVEL = 3


@click.command("verify", epilog="Example: tierstate verify user_events:0 --level 2")
@click.argument("topic", type=TopicType())
@click.option(
    "--level", type=click.IntRange(0, 4), default=2, show_default=True, help="See above; each adds to the last."
)
@pass_context
def command(context: Context, topic: TopicArgument, level: int) -> None:
    """Verify what the tier-state topic says of a topic or partition, and what lies behind it.

    Level 0: the view contradicts neither itself nor the broker. 1: its objects exist, and facts name every object.
    2: sizes and manifests are as described, and the archive is whole and the topic's own. 3: every byte, by checksum.
    Exit code 4 when something is corrupt or missing, 1 for any other finding. What waits to go by itself is none.
    """
    from ..fetch.verify import Finding, Severity, check_view, overlap_bytes
    from ..fetch.verify_objects import Checked, Verifier
    from ..follower.archives import Archives
    from ..runtime.clock import SystemClock
    from ..state.errors import InvalidRequest

    if level > HIGHEST_LEVEL:
        raise InvalidRequest("not in this version: level 4 (compare with the local copy)", highest=HIGHEST_LEVEL)
    findings: list[Finding] = []
    checked, overlapping = Checked(), 0
    with opened_broker(context) as broker:
        partitions = user_partitions(broker, topic.topic, topic.partition)
        with opened_topic(context) as tier_topic, following(context, tier_topic, partitions) as follower:
            views = []
            for partition in partitions:
                bounds, view = both_tiers_now(broker.control, follower, topic.topic, partition)
                views.append(view)
                findings += check_view(view, bounds)
                if (lost := why_lost(context, broker.control, follower, topic.topic, view)) is not None:
                    findings.append(Finding(0, Severity.CORRUPT, partition, lost))
                overlapping += overlap_bytes(view)
            if level >= 1:
                total = sum(len(view.readable) for view in views)
                cluster_id = broker.control.cluster().cluster_id
                names = object_names(context.settings, cluster_id)
                with _store(context) as store, context.output.progress("verifying segments", total) as advance:
                    verifier = Verifier(
                        store,
                        tier_topic.topic_id,
                        level,
                        partial(view_now, follower),
                        _key_ring(context),
                        names,
                        advance,
                        checked,
                    )
                    for view in views:
                        findings += verifier.objects(view)
                    if level >= 2:
                        identity = newest_identity(store, cluster_id, tier_topic)
                        archives = Archives(tier_topic, store, identity, SystemClock())
                        for number in sorted({follower.tier_partition(each) for each in partitions}):
                            findings += _archive(store, identity, number)
                            findings += _parted(archives, number)
    _print(context, topic.topic, findings, checked, overlapping)
    _judge(findings)


@contextmanager
def _store(context: Context) -> Iterator[ObjectStore]:
    store = open_store_of(context.settings_with("store.url"))
    try:
        yield store
    finally:
        store.close()


def _key_ring(context: Context) -> KeyUnwrapper | None:
    from ..storage.segment.keyring import KeyRing

    found = context.settings.encryption.keyring
    return KeyRing.load(found) if found else None


def _archive(store: ObjectStore, identity: ViewIdentity, tier_partition: int) -> Iterator[Finding]:
    from ..fetch.verify import Finding, Severity
    from ..follower.archive_reader import verify_archive

    for found in verify_archive(store, identity.topic_id, tier_partition, identity.history):
        at = f" at position {found.position}" if found.position is not None else ""
        yield Finding(2, Severity.CORRUPT, None, f"archive: {found.problem}{at}", object=found.object_key)


def _parted(archives: Archives, tier_partition: int) -> Iterator[Finding]:
    """Each of the two may be whole, and of another history."""
    from ..fetch.verify import Finding, Severity
    from ..state.errors import TierstateError

    try:
        archives.check(tier_partition)
    except TierstateError:
        if archives.broken is None:  # also where it could not be written down for everybody: readers may not
            raise
        yield Finding(2, Severity.CORRUPT, None, f"archive: {archives.broken}")


def _print(context: Context, topic: str, findings: list[Finding], checked: Checked, overlapping: int) -> None:
    from ..fetch.verify import Severity

    counts = Counter(each.severity for each in findings)
    summary: dict[str, Any] = {
        **{severity.value: counts[severity] for severity in Severity},
        **checked.counts(),
        "overlap_bytes": overlapping,
    }
    if context.as_json:
        context.output.document({"topic": topic, "findings": [_row(each) for each in findings], "summary": summary})
        return
    for each in findings:
        row = [f"L{each.level}", each.severity, each.partition and each.partition.named(topic)]
        row += [each.segment_id, each.object, each.what]
        context.output.line("  ".join(str(cell) for cell in row if cell is not None))
    context.output.line(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in summary.items()))


def _row(found: Finding) -> dict[str, Any]:
    return {
        "level": found.level,
        "severity": found.severity.value,
        "partition": found.partition.partition if found.partition else None,
        "segment_id": found.segment_id,
        "object_key": found.object,
        "what": found.what,
    }


def _judge(findings: list[Finding]) -> None:
    from ..fetch.verify import Severity
    from ..state.errors import CorruptData, Difference

    counts = Counter(each.severity for each in findings)
    if counts[Severity.CORRUPT] or counts[Severity.GAP]:
        raise CorruptData("verification failed", corrupt=counts[Severity.CORRUPT], gaps=counts[Severity.GAP])
    if counts[Severity.FINDING]:
        raise Difference("verification found something", findings=counts[Severity.FINDING])
