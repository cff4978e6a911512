"""``tierstate restore acls``, ``quotas`` and ``subjects``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..state.errors import Difference, InvalidRequest
from ..state.offsets import TimestampMs, moment
from .context import Context
from .flags import declare
from .parameter_types import TIME
from .restore_target import command_config, target_broker

if TYPE_CHECKING:
    from ..app.operating.cluster_backup import Backup
    from ..restore.definitions import Definition

Target = TypeVar("Target")

as_of = click.option(
    "--as-of", "until", type=TIME, metavar="TIME", help="Take the newest backup of this time or before."
)
of_cluster = click.option("--cluster-id", metavar="ID", help="The cluster of the backup, if the bucket has several.")


@declare("restore acls --execute", name="acls", execute=False)
@command_config
@of_cluster
@as_of
def acls(context: Context, command_config: Path | None, **flags: Any) -> None:
    """Add the access lists of a backup to a cluster. None is removed. Users and passwords are not in a backup."""
    from ..restore.definitions import acl_definitions, add_acls

    _restore(context, target_broker(context, command_config), acl_definitions, add_acls, _acl, **flags)


@declare("restore quotas --execute", name="quotas", execute=False)
@command_config
@of_cluster
@as_of
def quotas(context: Context, command_config: Path | None, **flags: Any) -> None:
    """Set the quotas of a backup in a cluster. A quota that has another value there stays: exit code 1."""
    from ..restore.definitions import add_quotas, quota_definitions

    _restore(context, target_broker(context, command_config), quota_definitions, add_quotas, _quota, **flags)


@declare("restore subjects --set registry.url=https://new:8081 --execute", name="subjects", execute=False)
@of_cluster
@as_of
def subjects(context: Context, **flags: Any) -> None:
    """Register the schemas of a backup, with their ids, in the schema registry of [registry].

    A version that is another schema there stays as it is: exit code 1. Each subject is in mode IMPORT for a moment.
    """
    from ..restore.definitions import add_subjects, subject_definitions
    from ..runtime.clock import SystemClock
    from ..values.schema_registry import SchemaRegistry, registry_access

    access = registry_access(context.settings_with("registry.url").registry)
    assert access is not None
    registry = SchemaRegistry(access, SystemClock(), retries=3)
    _restore(context, nullcontext(registry), subject_definitions, add_subjects, _subject, **flags)


def _restore(
    context: Context,
    opened: AbstractContextManager[Target],
    definitions_of: Callable[[Target, Backup], Sequence[Definition]],
    add: Callable[[Target, Sequence[Definition]], object],
    shown: Callable[[Any], dict[str, object]],
    cluster_id: str | None,
    until: TimestampMs | None,
    execute: bool,
) -> None:
    with _backup(context, cluster_id, until) as backup, opened as target:
        definitions = definitions_of(target, backup)
        if execute:
            add(target, definitions)
    _show(context, backup, definitions, shown, execute)


@contextmanager
def _backup(context: Context, cluster_id: str | None, until: TimestampMs | None) -> Iterator[Backup]:
    from ..app.opening.moved import open_followed
    from ..app.operating.cluster_backup import backed_up_clusters, newest_backup

    with closing(open_followed(context.settings_with("store.url"))) as store:
        clusters = [cluster_id] if cluster_id else backed_up_clusters(store)
        if len(clusters) > 1:
            raise InvalidRequest(
                "the bucket has backups of several clusters: --cluster-id", clusters=",".join(clusters)
            )
        backup = newest_backup(store, clusters[0], until) if clusters else None
        if backup is None:
            raise InvalidRequest("the bucket has no backup of this cluster: tierstate backup", cluster_id=cluster_id)
        context.output.note(f"backup of cluster {backup.cluster_id}, {moment(backup.at)}")
        yield backup


def _acl(row: Any) -> dict[str, object]:
    from confluent_kafka.admin import AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    return {
        "principal": row["principal"],
        "permission": AclPermissionType(row["permission"]).name,
        "operation": AclOperation(row["operation"]).name,
        "resource": ResourceType(row["resource_type"]).name,
        "name": row["name"],
        "pattern": ResourcePatternType(row["pattern_type"]).name,
        "host": row["host"],
    }


def _quota(row: Any) -> dict[str, object]:
    ((name, value),) = row["values"].items()
    entity = ", ".join(f"{kind}={each or '<default>'}" for kind, each in sorted(row["entity"].items()))
    return {"entity": entity, "quota": name, "value": value}


def _subject(row: Any) -> dict[str, object]:
    return {"subject": row["subject"], "version": row["version"], "id": row["id"], "type": row["type"]}


def _show(
    context: Context,
    backup: Backup,
    definitions: Sequence[Definition],
    shown: Callable[[Any], dict[str, object]],
    execute: bool,
) -> None:
    from ..restore.definitions import CONFLICT, NEW

    rows = [{**shown(each.row), "state": each.state} for each in definitions]
    document = {"backup_at": backup.at, "cluster_id": backup.cluster_id, "executed": execute, "definitions": rows}
    columns = list(rows[0]) if rows else ["state"]
    context.output.table(columns, [list(row.values()) for row in rows], document)
    new, conflicts = ([each.state for each in definitions].count(state) for state in (NEW, CONFLICT))
    context.output.note(f"{new} added" if execute else f"nothing was done: --execute adds {new}")
    if conflicts:
        raise Difference("the target has others of the same name: they stay", conflicts=conflicts)
