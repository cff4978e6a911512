"""All verifications of some partitions: the view, the objects behind it, the archive; level by level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...fetch.verify import Finding, Severity, check_view, overlap_bytes
from ...fetch.verify_objects import Checked, Verifier
from ...follower.archive_chain import verify_archive
from ...follower.archives import Archives
from ...follower.follower import Follower
from ...state.errors import TierstateError, UnknownTopic
from ...state.ids import TopicIdPartition
from ...state.object_keys import ObjectKeys
from ...state.partition_view import PartitionView
from ..opening.connection import Connection, view_now
from ..opening.kip405_connection import Kip405Connection
from ..opening.partitions import both_tiers_now, follow_facts, partitions_of
from .lost_state import why_lost


@dataclass
class Verification:
    """The result. ``overlapping``: bytes that several segments have. Objects that agents will delete are no finding."""

    findings: list[Finding] = field(default_factory=list)
    checked: Checked = field(default_factory=Checked)
    overlapping: int = 0


def verify(connection: Connection, topic: str, partition: int | None, level: int) -> Verification:
    """Verify a topic, by its name or the id of one that no longer exists, or one partition (None: all of them), up to
    ``level``. 0: the view against itself and the broker. 1: objects exist, and facts name every object.
    2: sizes and manifests, and that the archive is complete and agrees with the topic. 3: every byte, by checksum.
    """
    verification, broker = Verification(), connection.broker.control
    try:
        places = partitions_of(broker, topic, partition)
        follower = connection.view(places)
    except UnknownTopic:
        follower, places = follow_facts(connection, topic, partition)
        if not places:
            raise
    views = []
    for place in places:
        bounds, view = both_tiers_now(broker, follower, topic, place)
        views.append(view)
        verification.findings += check_view(view, bounds)
        if (lost := why_lost(connection, follower, view.topic or topic, view, bounds)) is not None:
            verification.findings.append(Finding(0, Severity.CORRUPT, place, lost))
        verification.overlapping += overlap_bytes(view)
    if level >= 1:
        with connection.progress("verifying segments", sum(len(view.readable) for view in views)) as advance:
            verifier = Verifier(
                connection.store,
                level,
                partial(view_now, follower),
                connection.keys,
                connection.names,
                advance,
                verification.checked,
            )
            for view in views:
                verification.findings += verifier.objects(view)
            if level >= 2:
                verification.findings += _archives(connection, follower, places)
    return verification


def verify_kafkas(
    connection: Kip405Connection, topic: str, partitions: Sequence[TopicIdPartition], level: int
) -> Verification:
    """Verify what Kafka itself tiered, up to ``level`` (`kip405/verify.py`)."""
    from ...kip405.tiers import KafkasRemoteTier
    from ...kip405.verify import KafkasVerifier, check_kafkas_view

    verification, view = Verification(), connection.view(partitions)

    def look(partition: TopicIdPartition) -> PartitionView:
        view.require_fresh(view.tier_partition(partition), 0.0)
        return view.partition(partition)

    views = []
    for partition in partitions:
        bounds = connection.bounds(topic, partition.partition)
        views.append(look(partition))
        verification.findings += check_kafkas_view(views[-1], bounds, connection.clock.now_ms())
        verification.overlapping += overlap_bytes(views[-1])
    if level >= 1:
        remote = connection.reader(view).remote
        assert isinstance(remote, KafkasRemoteTier)
        with connection.progress("verifying segments", sum(len(each.readable) for each in views)) as advance:
            names = ObjectKeys(connection.settings.kip405.key_prefixes[0])
            verifier = KafkasVerifier(
                connection.store, level, look, connection.keys, names, advance, verification.checked, remote
            )
            for each in views:
                verification.findings += verifier.objects(each)
    return verification


def _archives(connection: Connection, follower: Follower, partitions: Sequence[TopicIdPartition]) -> Iterator[Finding]:
    """Yield damage of the archives, and whether topic and archive have diverged, even if each of them is complete."""
    store, identity = connection.store, connection.identity
    archives = Archives(connection.topic, store, identity, connection.clock)
    for number in sorted({follower.tier_partition(each) for each in partitions}):
        for damage in verify_archive(store, identity.place(number)):
            at = f" at position {damage.position}" if damage.position is not None else ""
            yield Finding(2, Severity.CORRUPT, None, f"archive: {damage.problem}{at}", object=damage.object_key)
        try:
            archives.check(number)
        except TierstateError:
            if archives.broken is None:  # the break counts even where this process may not write it to the store
                raise
            yield Finding(2, Severity.CORRUPT, None, f"archive: {archives.broken}")
