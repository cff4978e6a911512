"""Access lists, quotas and schemas: compare a backup with a new cluster, and add what is missing.

Nothing that exists is changed or removed: a difference is a conflict, which a person decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..app.operating.cluster_backup import Backup
from ..broker.administration import acls, create_acls, quotas, set_quotas
from ..broker.open import Broker
from ..state.errors import InvalidRequest
from ..values.schema_registry import RegisteredSchema, SchemaReference, SchemaRegistry

NEW, SAME, CONFLICT = "new", "there", "conflict"


@dataclass(frozen=True, slots=True)
class Definition:
    """``row``: one access list, quota or schema version of the backup. ``state``: `NEW`, `SAME` or `CONFLICT`."""

    row: Mapping[str, Any]
    state: str


def part_of(backup: Backup, name: str) -> Any:
    """Return a part of the backup. Raises InvalidRequest if it could not be read when the backup was made."""
    part = backup.document.get(name)
    if part is None:
        raise InvalidRequest(f"the backup has no {name}", problems="; ".join(backup.problems) or "there were none")
    return part


def acl_definitions(broker: Broker, backup: Backup) -> list[Definition]:
    """Compare access lists. Raises InvalidRequest if a cluster has no authorizer."""
    present = acls(broker.raw)
    if present is None:
        raise InvalidRequest("the target has no authorizer, and so no access lists: set authorizer.class.name")
    return [Definition(row, SAME if row in present else NEW) for row in part_of(backup, "acls")]


def quota_definitions(broker: Broker, backup: Backup) -> list[Definition]:
    """Compare quotas, one definition for each value."""
    present = {_entity(row): row["values"] for row in quotas(broker.raw)}
    definitions = []
    for row in part_of(backup, "quotas"):
        for name, value in sorted(row["values"].items()):
            there = present.get(_entity(row), {}).get(name)
            state = NEW if there is None else SAME if there == value else CONFLICT
            definitions.append(Definition({"entity": row["entity"], "values": {name: value}}, state))
    return definitions


def _entity(row: Mapping[str, Any]) -> frozenset[tuple[str, str | None]]:
    return frozenset(row["entity"].items())


def subject_definitions(registry: SchemaRegistry, backup: Backup) -> list[Definition]:
    """Compare schema versions. Each comes after the versions that it refers to. An id is part of a schema here:
    records name their schemas by it.
    """
    subjects = part_of(backup, "subjects")
    there = set(registry.subjects())
    definitions = []
    for subject, version, schema in _in_order(subjects):
        row = {"subject": subject, "version": version, **schema}
        present = _version(registry, subject, version) if subject in there else None
        state = NEW if present is None else SAME if present == registered(row) else CONFLICT
        definitions.append(Definition(row, state))
    return definitions


def _version(registry: SchemaRegistry, subject: str, version: int) -> RegisteredSchema | None:
    if version not in registry.versions(subject):
        return None
    return registry.referenced(SchemaReference("", subject, version))


def _in_order(subjects: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield all versions in ascending order of a subject, references first. Missing references are left out."""
    done: set[tuple[str, int]] = set()
    open_at: list[tuple[str, int]] = [
        (subject, version) for subject in sorted(subjects) for version in sorted(map(int, subjects[subject]))
    ][::-1]
    began: set[tuple[str, int]] = set()
    while open_at:
        place = open_at[-1]
        schema = subjects.get(place[0], {}).get(str(place[1]))
        needed = [(each["subject"], int(each["version"])) for each in (schema or {}).get("references", ())]
        waits = [each for each in needed if each not in done and each not in began]
        if schema is not None and place not in done and waits:
            began.add(place)
            open_at += waits
            continue
        open_at.pop()
        if schema is not None and place not in done:
            yield *place, schema
        done.add(place)


def registered(row: Mapping[str, Any]) -> RegisteredSchema:
    references = tuple(SchemaReference(each["name"], each["subject"], each["version"]) for each in row["references"])
    return RegisteredSchema(row["type"], row["schema"], references, row["id"])


def add_acls(broker: Broker, definitions: Sequence[Definition]) -> None:
    if rows := _new(definitions):
        create_acls(broker.raw, rows)


def add_quotas(broker: Broker, definitions: Sequence[Definition]) -> None:
    values: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}
    for row in _new(definitions):
        values.setdefault(_entity(row), {}).update(row["values"])
    if values:  # Kafka refuses a request that names an entity twice
        set_quotas(broker.raw, [{"entity": dict(entity), "values": each} for entity, each in values.items()])


def add_subjects(registry: SchemaRegistry, definitions: Sequence[Definition]) -> None:
    """Register what is new. Killed and run again, it goes on. Raises InvalidRequest if the registry refuses one."""
    for row in _new(definitions):
        registry.register(row["subject"], row["version"], registered(row))


def _new(definitions: Sequence[Definition]) -> list[Mapping[str, Any]]:
    return [each.row for each in definitions if each.state == NEW]
