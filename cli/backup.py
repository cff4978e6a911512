"""``tierstate backup``."""

from __future__ import annotations

from ..runtime.units import counted
from ..state.offsets import moment
from .context import Context
from .flags import declare


@declare("backup", execute=True)
def command(context: Context, execute: bool) -> None:
    """Keep in the bucket what a restore needs in addition to records: topics, groups, access lists, quotas, schemas.

    Agents do it each hour (`backup.every`). Nothing is written if nothing has changed. Secrets are never in it.
    """
    from ..app.operating.cluster_backup import newest_backup, put_backup, read_cluster
    from ..values.schema_registry import SchemaRegistry, registry_access

    with context.connected("kafka.bootstrap.servers", "store.url", only_kafka=True) as connection:
        context.wait_for_kafka(connection)
        access = registry_access(connection.settings.registry)
        registry = None if access is None else SchemaRegistry(access, connection.clock, retries=3)
        previous = newest_backup(connection.store, connection.cluster_id)
        content = read_cluster(connection.broker.raw, connection.settings.tier_state.topic, registry, previous)
        at = connection.clock.now_ms()
        key = put_backup(connection.store, content, at, previous) if execute else None
    document = {
        "cluster_id": content["cluster_id"],
        "at": at,
        "key": key,
        "executed": execute,
        "topics": len(content["topics"]),
        "groups": len(content["groups"]),
        "acls": None if content["acls"] is None else len(content["acls"]),
        "quotas": None if content["quotas"] is None else len(content["quotas"]),
        "subjects": None if content["subjects"] is None else len(content["subjects"]),
        "problems": content["problems"],
    }
    if context.as_json:
        context.output.document(document)
    else:
        names = ("topics", "groups", "acls", "quotas", "subjects")
        context.output.table(("what", "number"), [(name, document[name]) for name in names])
    for problem in content["problems"]:
        context.output.note(f"not in it: {problem}")
    if key is not None:
        context.output.note(f"{moment(at)}: {key}")
    elif execute and previous is not None:
        context.output.note(f"nothing has changed since the backup of {moment(previous.at)}")
    else:
        context.output.note(f"nothing was done; {counted(len(content['problems']), 'problem')}")
