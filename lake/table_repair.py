"""Repairs a table whose place is lost, or whose catalog is older than its files, from the files in the store.

the catalog names older metadata      the catalog is set to the newest metadata that was made from it
no snapshot or property has a place   the place is computed from the rows, and proven: each row equals its record
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..runtime.operation import run
from ..state.errors import InvalidRequest, Unavailable
from ..state.offsets import Offset
from .log import Keep, TopicLog, no_lease
from .table import Change, LakeTable, PlaceLost
from .table_check import CheckedTable, check_table
from .table_commit import commit
from .table_files import Attempt, partitions_of
from .table_metadata import ForeignMetadata, foreign_metadata, listed, lost_its_race, place_of
from .table_place import Reach, TablePlace, VersionStart, place_kept


def newer_metadata(table: LakeTable) -> ForeignMetadata | None:
    """Return the newest metadata that was made from the catalog's. Returns None if the catalog has the newest.

    Raises InvalidRequest if two catalogs committed after that: a person must decide which metadata is the table's.
    """
    existing = {place_of(url) for url, _ in listed(table.iceberg.io, table.iceberg.location(), table.name)}
    later = [
        each
        for each in foreign_metadata(table)
        if each.is_after(table.iceberg.metadata_location) and not lost_its_race(table, each.metadata, existing)
    ]
    heads = [each for each in later if not any(other.is_after(each.url) for other in later)]
    if len(heads) > 1:
        raise InvalidRequest(
            "two catalogs committed to this table; decide which metadata file is the table's, and move the others away",
            table=table.name,
            metadata=" ".join(each.url for each in heads),
        )
    return heads[0] if heads else None


def place_of_rows(table: LakeTable, log: TopicLog) -> TablePlace:
    """Return the place computed from the rows: where those of each partition begin and end, in the current lineage.

    The place is valid only if every row equals its record; the caller checks that. Raises InvalidRequest if the columns
    evolved and it is unknown which version wrote which rows.
    """
    if table.facts.upsert:
        raise InvalidRequest(
            "the rows of a table that upserts do not say which deletes they include; create another table",
            table=table.name,
        )
    ranges: dict[int, tuple[Offset, Offset]] = {}
    for file in table.data_files():
        for number, (start, end) in partitions_of(table, file).items():
            before = ranges.get(number, (start, end))
            ranges[number] = min(before[0], start), max(before[1], end)
    property_place = place_kept(table.iceberg.properties, table.facts.topic_id)
    if property_place is None and table.facts.version:
        raise InvalidRequest(
            "the columns of this table evolved, and nothing says which rows are older; create another table",
            table=table.name,
        )
    reaches = {}
    for number, (start, end) in ranges.items():
        reach = Reach(start, start).to(end, log.lineage(number), table.facts.version)
        known_reach = None if property_place is None else property_place.partitions.get(number)
        reaches[number] = replace(reach, versions=known_reach.versions if known_reach else (VersionStart(0, start),))
    return TablePlace(reaches)


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair. ``place``: the computed place, or None if the table's place was not lost. ``checked``:
    the proof. If it has findings, nothing was changed.
    """

    place: TablePlace | None = None
    checked: CheckedTable | None = None


def repair(
    table: LakeTable, log: TopicLog, attempt_id: Callable[[], str], *, execute: bool, keep: Keep = no_lease
) -> Repaired:
    """Compute, prove and commit the place of a table that lost it. Raises the errors of reading and writing."""
    try:
        table.place()
    except PlaceLost:
        place = place_of_rows(table, log)
    else:
        return Repaired()
    checked = check_table(table, log, keep=keep, place=place)
    if execute and not checked.findings and not run(commit(table, Attempt(attempt_id()), Change(place))):
        raise Unavailable("another writer was first; repair the table again", table=table.name)
    return Repaired(place, checked)
