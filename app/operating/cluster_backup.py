"""Backups of what a restore needs in addition to records: one small JSON object for each, named by its time.

    _tierstate_backup/<cluster id>/<milliseconds>     15 digits, so that a LIST returns them in ascending order

    {"cluster_id", "at", "previous": {"at", "sha256"},
     "topics":   {"orders": {"topic_id", "partitions", "replication_factor", "config"}},
     "groups":   {"billing": {"orders": {"0": 4711}}},
     "acls", "quotas": […], or null if there are none to read,
     "subjects": {"orders-value": {"1": {"id", "type", "schema", "references"}}} or null,
     "problems": ["what could not be read, and why"]}

``previous`` chains a backup to the one before. This file alone creates and parses these keys. Secrets are never in a
backup: no passwords, no SCRAM hashes, no delegation tokens, no settings that Kafka marks as sensitive.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ...broker.acls import TO_BACK_UP, Resource, lacking
from ...broker.administration import acls, all_committed, quotas, topic_settings
from ...broker.raw import RawClient
from ...broker.topics import describe_topics
from ...follower.object_names import BACKUPS
from ...runtime.units import counted
from ...runtime.watchdog import alive
from ...state.errors import CorruptData, ObjectExists, TierstateError
from ...state.offsets import Offset, TimestampMs
from ...storage.object_store import ObjectReader, ObjectStore
from ...values.schema_registry import SchemaReference, SchemaRegistry

A = TypeVar("A")
_TIME = re.compile("[0-9]{15}")
DEFINITIONS = ("topics", "acls", "quotas")
"""The parts that people define. They change seldom, and are looked at more often than offsets and schemas."""

HIDING = tuple(right for right in TO_BACK_UP if right.resource is not Resource.CLUSTER)
"""Kafka hides topics and groups from credentials without these rights. For all else it returns an error."""


def backups_prefix(cluster_id: str) -> str:
    return f"{BACKUPS}{cluster_id}/"


def backup_key(cluster_id: str, at: TimestampMs) -> str:
    return f"{backups_prefix(cluster_id)}{at:015d}"


def backup_times(store: ObjectReader, cluster_id: str) -> list[TimestampMs]:
    """Return the times of all backups of a cluster, in ascending order."""
    prefix = backups_prefix(cluster_id)
    keys = (each.key for each in store.list(prefix))
    return sorted(TimestampMs(int(key[len(prefix) :])) for key in keys if _TIME.fullmatch(key, len(prefix)))


@dataclass(frozen=True, slots=True)
class TopicBackup:
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup. ``groups``: the committed offset by group, topic and partition. ``sha256``: of the object."""

    cluster_id: str
    at: TimestampMs
    topics: Mapping[str, TopicBackup]
    groups: Mapping[str, Mapping[str, Mapping[int, Offset]]]
    problems: tuple[str, ...]
    document: Mapping[str, Any] = field(repr=False)
    sha256: str = ""


class _Tried:
    """Collects as problems what cannot be read, and goes on."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, name: str, read: Callable[[], A]) -> A | None:
        try:
            return read()
        except TierstateError as error:
            self.problems.append(f"{name}: {error}")
            return None


def read_cluster(
    raw: RawClient, tier_topic: str, registry: SchemaRegistry | None, previous: Backup | None
) -> dict[str, Any]:
    """Return the content of a backup of this cluster, without its time. A part that cannot be read becomes a problem.

    ``tier_topic``: the name of the tier-state topic. ``previous``: versions of subjects are not requested again, they
    never change. Raises BrokerUnavailable, TimedOut or AccessDenied if not even the topics can be read.
    """
    content = read_definitions(raw)
    tried = _Tried()
    missing = tried("rights", lambda: lacking(raw, tier_topic, (), HIDING)) or ()
    tried.problems += [f"a right lacks: {each}" for each in missing]
    groups: dict[str, dict[str, dict[str, int]]] = {}
    committed, of_groups = tried("groups", lambda: all_committed(raw)) or ({}, [])
    for group, offsets in sorted(committed.items()):
        for (topic, partition), offset in sorted(offsets.items()):
            groups.setdefault(group, {}).setdefault(topic, {})[str(partition)] = offset
    subjects = None
    if registry is not None:
        versions = (previous.document.get("subjects") if previous else None) or {}
        subjects = tried("subjects", lambda: _subjects(registry, versions))
    return {
        **content,
        "groups": groups,
        "subjects": subjects,
        "problems": content["problems"] + tried.problems + of_groups,
    }


def read_definitions(raw: RawClient) -> dict[str, Any]:
    """Return the cluster's id, its `DEFINITIONS` and their problems. Raises as `read_cluster`."""
    metadata = raw.metadata(None)
    tried = _Tried()
    topics = {}
    refused: dict[str, TierstateError] = {}
    described = [each for each in describe_topics(metadata) if not each.internal]
    settings = tried("settings of topics", lambda: topic_settings(raw, [each.name for each in described])) or {}
    for each in described:
        config = settings.get(each.name, {})
        if isinstance(config, TierstateError):
            refused[each.name], config = config, {}
        replicas = min((len(part.replicas) for part in each.partitions), default=1)
        topics[each.name] = {
            "topic_id": str(each.topic_id),
            "partitions": len(each.partitions),
            "replication_factor": replicas,
            "config": config,
        }
    if refused:
        first = min(refused)
        tried.problems.append(f"settings of {counted(len(refused), 'topic')}, such as {first}: {refused[first]}")
    return {
        "cluster_id": metadata.cluster_id,
        "topics": topics,
        "acls": tried("access lists", lambda: acls(raw)),
        "quotas": tried("quotas", lambda: quotas(raw)),
        "problems": tried.problems,
    }


def _subjects(registry: SchemaRegistry, versions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        subject: {
            str(version): versions.get(subject, {}).get(str(version)) or _version(registry, subject, version)
            for version in registry.versions(subject)
        }
        for subject in sorted(registry.subjects())
    }


def _version(registry: SchemaRegistry, subject: str, version: int) -> dict[str, Any]:
    alive()
    schema = registry.referenced(SchemaReference("", subject, version))
    references = [asdict(each) for each in schema.references]
    return {"id": schema.id, "type": schema.kind, "schema": schema.text, "references": references}


def put_backup(store: ObjectStore, content: Mapping[str, Any], at: TimestampMs, previous: Backup | None) -> str | None:
    """Put a backup of this time. Return its key, or None if nothing has changed since ``previous``.

    A backup is never older than the one before, whichever machine's clock is behind: otherwise it would not be found.
    Another process that puts a backup of the same millisecond wins: the content is then that of the same moment.
    """
    if previous is not None and all(previous.document.get(name) == value for name, value in content.items()):
        return None
    at = at if previous is None else TimestampMs(max(at, previous.at + 1))
    chain = None if previous is None else {"at": previous.at, "sha256": previous.sha256}
    document = {"at": at, "previous": chain, **content}
    key = backup_key(content["cluster_id"], at)
    try:
        store.put_if_absent(key, json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())
    except ObjectExists:
        pass
    return key


def backed_up_clusters(store: ObjectReader) -> list[str]:
    """Return the ids of all clusters with a backup."""
    keys = (each.key.removeprefix(BACKUPS).split("/") for each in store.list(BACKUPS))
    return sorted({parts[0] for parts in keys if len(parts) == 2})


def newest_backup(store: ObjectReader, cluster_id: str, until: TimestampMs | None = None) -> Backup | None:
    """Return the newest backup of the cluster, taken at ``until`` or before. Raises CorruptData if it is damaged."""
    times = backup_times(store, cluster_id)
    newest = max((at for at in times if until is None or at <= until), default=None)
    if newest is None:
        return None
    key = backup_key(cluster_id, newest)
    data = store.get(key)
    try:
        document = json.loads(data)
        topics = {name: TopicBackup(**each) for name, each in document["topics"].items()}
        groups = {
            group: {topic: {int(number): Offset(at) for number, at in parts.items()} for topic, parts in each.items()}
            for group, each in document["groups"].items()
        }
        problems = tuple(document["problems"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData("not a backup of a cluster", file=key) from error
    return Backup(cluster_id, newest, topics, groups, problems, document, hashlib.sha256(data).hexdigest())
