"""A drill: partitions are restored from the bucket alone into a throw-away topic, and compared with the bucket.

    choose by seed  →  for each topic: create, restore, compare, measure, delete  →  report

The topic's name carries its time, so that a drill deletes what a killed one left a day ago. Its ledger is in memory: a
drill leaves one object in the bucket, its report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from ..app.operating.cluster_backup import Backup
from ..broker.administration import delete_topic
from ..broker.answers import FetchSpec
from ..broker.open import Broker
from ..broker.topics import describe_topic
from ..log.batch import iter_batches
from ..runtime.settings import DRILL_TOPICS
from ..state.errors import TierstateError
from ..state.ids import TopicId
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation
from ..storage.memory import MemoryStore
from .partition import Tools
from .target import opened_topic, plan_target
from .topic import Source, Target, restore_topic
from .verify import EQUAL, Compared, compared, report

_NAME = re.compile(re.escape(DRILL_TOPICS) + "([0-9]{15})-[A-Za-z0-9_-]{22}")
LEFT_MS = 86_400_000
"""The age from which a drill's topic is what a killed process left."""
LOOK_BYTES = 1024 * 1024
"""Bytes behind the bucket's end in which the first record is looked for."""
KEPT_WHILE_COMPARED = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A partition that can be chosen. ``topic``: as the reader knows it."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The distance of the bucket to the end of one partition. ``by``: the source of that end: the cluster, the offsets
    of groups in the backup, or none. That of groups is a lower bound. ``seconds``: the age of the oldest record that
    the bucket lacks, if it is known. ``reason``: why the cluster did not tell the end.
    """

    by: str
    offsets: int | None = None
    seconds: float | None = None
    reason: str | None = None


@dataclass(slots=True)
class TopicDrill:
    """The result for one topic. ``seconds``: to create, restore and compare. ``log_bytes``: of what was restored.
    ``topic_bytes``: of the whole topic in the bucket.
    """

    source: Source
    target: Target | None = None
    rows: list[Compared] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    log_bytes: int = 0
    topic_bytes: int = 0
    behind: dict[int, Behind] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.errors and all(each.outcome == EQUAL for each in self.rows)

    @property
    def whole_topic_s(self) -> float:
        """Return the estimated seconds for the whole topic, at the rate of this drill."""
        return self.seconds * max(1.0, self.topic_bytes / max(1, self.log_bytes))

    def as_json(self) -> dict[str, Any]:
        return {
            **report(self.source, self.target, self.rows),
            "good": self.good,
            "errors": self.errors,
            "rto": {
                "seconds": round(self.seconds, 3),
                "log_bytes": self.log_bytes,
                "topic_log_bytes": self.topic_bytes,
                "topic_seconds_estimated": round(self.whole_topic_s, 1),
            },
            "rpo": {str(number): asdict(each) for number, each in sorted(self.behind.items())},
        }


def chosen(places: Iterable[Place], seed: str, count: int) -> list[Place]:
    """Return ``count`` of the partitions, by chance: the same ones for the same seed and the same partitions."""
    ordered = sorted(places, key=lambda each: sha256(f"{seed} {each.topic} {each.partition}".encode()).digest())
    return sorted(ordered[:count])


@contextmanager
def throw_away(broker: Broker, now: TimestampMs, unique: TopicId) -> Iterator[str]:
    """Yield the name of a topic that does not exist yet. It is deleted after the block, however that ends."""
    name = f"{DRILL_TOPICS}{now:015d}-{unique}"
    try:
        yield name
    finally:
        delete_topic(broker.raw, name)


def delete_left_behind(broker: Broker, now: TimestampMs) -> list[str]:
    """Delete and return the topics that killed drills left a day ago or earlier."""
    names = [(each.name, _NAME.fullmatch(each.name)) for each in broker.control.topics()]
    left = [name for name, match in names if match and now - int(match[1]) > LEFT_MS]
    for name in left:
        delete_topic(broker.raw, name)
    return left


def drill_topic(source: Source, broker: Broker, backup: Backup | None, tools: Tools, unique: TopicId) -> TopicDrill:
    """Restore the partitions of ``source``, compare them, delete what was made. Errors become part of the result."""
    clock = tools.clock
    began, now = clock.monotonic(), clock.now_ms()
    drill = TopicDrill(source)
    try:
        with throw_away(broker, now, unique) as name:
            described = None if backup is None else backup.topics.get(source.name)
            plan = plan_target(broker, name, max(source.ranges) + 1, described, KEPT_WHILE_COMPARED, (None, now))
            topic = opened_topic(broker, plan, clock)
            cluster_id = broker.control.cluster().cluster_id
            drill.target = target = Target(broker, cluster_id, name, topic.topic_id, MemoryStore())
            result = restore_topic(source, target, tools)
            drill.errors |= {str(number): str(error) for number, error in result.errors.items()}
            for number in sorted(result.partitions):
                drill.rows += _compared(source, target, number, drill.errors)
            drill.seconds = clock.monotonic() - began
    except TierstateError as error:
        drill.errors["topic"] = str(error)
    for number in range(source.reader.topic(source.topic).partitions):
        size = sum(each.log_bytes for each in source.reader.view(source.topic, number).readable)
        drill.topic_bytes += size
        drill.log_bytes += size if number in source.ranges else 0
    return drill


def _compared(source: Source, target: Target, partition: int, errors: dict[str, str]) -> list[Compared]:
    try:
        return list(compared(source, target, partition))
    except TierstateError as error:
        errors[str(partition)] = str(error)
        return []


def behind(source: Source, cluster: Broker | None, backup: Backup | None, now: TimestampMs) -> Mapping[int, Behind]:
    """Return how far the bucket is behind the newest record of each partition that the cluster or the backup knows."""
    try:
        if cluster is None:
            reason = "the settings name no cluster"
        elif describe_topic(cluster.raw, source.name).topic_id == source.topic_id:
            return {number: _behind_cluster(source, number, cluster, now) for number in source.ranges}
        else:
            reason = "the cluster has a newer topic of this name"
    except TierstateError as error:  # the cluster is away, or has lost the topic: the case that a restore is made for
        reason = str(error)
    committed = _committed(source, backup)
    return {
        number: Behind("groups", max(0, committed[number] - extent.end), reason=reason)
        if number in committed
        else Behind("nobody", reason=reason)
        for number, extent in source.ranges.items()
    }


def _behind_cluster(source: Source, partition: int, cluster: Broker, now: TimestampMs) -> Behind:
    end = source.ranges[partition].end
    offsets = cluster.reads.bounds(source.name, partition).last_stable_offset - end
    if offsets <= 0:
        return Behind("cluster", 0, 0.0)
    spec = FetchSpec(source.name, partition, end, LOOK_BYTES, Isolation.READ_COMMITTED, topic_id=source.topic_id)
    batches = iter_batches(cluster.reads.fetch(spec).batches, source=f"{source.name}-{partition}", verify_crc=False)
    oldest = next((each.max_timestamp for each in batches if not each.is_control), now)  # markers are no records
    return Behind("cluster", offsets, max(0.0, (now - oldest) / 1000))


def _committed(source: Source, backup: Backup | None) -> dict[int, Offset]:
    """Return the highest committed offset of any group, by partition."""
    described = None if backup is None else backup.topics.get(source.name)
    if backup is None or (described is not None and described.topic_id != str(source.topic_id)):
        return {}
    highest: dict[int, Offset] = {}
    for topics in backup.groups.values():
        for number, offset in topics.get(source.name, {}).items():
            highest[number] = max(offset, highest.get(number, offset))
    return highest
