"""What a table needs beside its rows: large files instead of many small ones, and no files that nobody needs.

    compact   the small files of a partition's day, made one; the rows are the same, one by one
    expire    snapshots that are old and not among the newest; never the one that says the table's place
    sweep     files that no snapshot names, once they are older than any attempt can be

Each of them again does nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from ..leader.act import Act, run
from ..state.errors import CorruptData, InvalidRequest, Unavailable
from ..state.offsets import TimestampMs
from .file_bounds import bounds_of, single_partition
from .table import Change, LakeTable, foreign
from .table_files import (
    Attempt,
    day_folder,
    give_back,
    grouped,
    nothing_left,
    partitions_of,
    rewrite,
)
from .table_metadata import Place, foreign_metadata, listed, lost_its_race, place_of
from .table_place import OFFSETS
from .table_rows import first_difference, of_partition, rows_of_file

TARGET_BYTES = 128 * 2**20
"""Of a compacted file; one of half of that is left as it is."""


COMMIT_BINS = 8
"""Compacted files of one commit."""

WRITTEN_BY_US = re.compile(
    r"/data/date=[^/]+/[A-Za-z0-9_-]{22}-[^/]+\.parquet|/metadata/[^/]+(\.avro|\.metadata\.json)"
)
"""Files below a table's own location: data files are named after an attempt, whose id has 22 characters."""

KEPT_SNAPSHOTS = 10
"""The newest, however old."""
EXPIRED_AT_ONCE = 100
"""By a follower: that is a commit of its own."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Small files that follow each other, of one partition and one day; or its rows in one file of several partitions,
    which another engine wrote.
    """

    partition: int
    day: str
    files: tuple[DataFile, ...]
    first_offset: int


def bins(table: LakeTable, target_bytes: int = TARGET_BYTES) -> list[Bin]:
    """What is to be compacted now; files of several partitions first, one after another."""
    offset_id = table.iceberg.schema().find_field("offset").field_id
    partition_id = table.iceberg.schema().find_field("partition").field_id
    groups: dict[tuple[int, str], list[tuple[int, DataFile]]] = defaultdict(list)
    found = []
    for file in table.data_files():
        if (number := single_partition(file, partition_id)) is None:
            parts = partitions_of(table, file).items()
            found += [Bin(part, day_folder(file), (file,), extent.start) for part, extent in parts]
        else:
            groups[number, day_folder(file)].append((bounds_of(file, offset_id)[0], file))
    for (number, day), files in sorted(groups.items()):
        for small in _runs(sorted(files, key=lambda each: each[0]), target_bytes):
            found.append(Bin(number, day, tuple(file for _, file in small), small[0][0]))
    return found


def _runs(files: Sequence[tuple[int, DataFile]], target_bytes: int) -> Iterator[list[tuple[int, DataFile]]]:
    """Of two small files or more, in the order of offsets, with ``target_bytes`` at most."""
    run: list[tuple[int, DataFile]] = []
    size = 0
    for each in files:
        bytes_ = each[1].file_size_in_bytes
        small = bytes_ < target_bytes // 2
        if run and (not small or size + bytes_ > target_bytes):
            if len(run) > 1:
                yield run
            run, size = [], 0
        if small:
            run.append(each)
            size += bytes_
    if len(run) > 1:
        yield run


@dataclass
class Compacted:
    """What was made of what; or would be, of what is there now."""

    small: int = 0
    large: int = 0
    commits: int = 0


def compact(table: LakeTable, attempt_id: Callable[[], str], *, execute: bool, bins_of: int = COMMIT_BINS) -> Compacted:
    """Until nothing is left of what is small and can be larger. Raises what reading and writing do."""
    done = Compacted()
    while found := bins(table):
        groups = list(_groups(found, bins_of))
        if not execute:
            return Compacted(len(_files(found)), len(found), len(groups))
        if run(compact_bins(table, Attempt(attempt_id()), groups[0])):
            done.small += len(_files(groups[0]))
            done.large += len(groups[0])
            done.commits += 1
    return done


def _groups(found: Sequence[Bin], bins_of: int) -> Iterator[Sequence[Bin]]:
    """The bins of each commit. A file of several partitions has a commit of its own, for all of its rows."""
    parts: dict[str, list[Bin]] = defaultdict(list)
    for each in found:
        if len(each.files) == 1:
            parts[each.files[0].file_path].append(each)
    yield from parts.values()
    whole = [each for each in found if len(each.files) > 1]
    yield from (whole[at : at + bins_of] for at in range(0, len(whole), bins_of))


def _files(group: Sequence[Bin]) -> list[DataFile]:
    return list({file.file_path: file for each in group for file in each.files}.values())


def compact_bins(table: LakeTable, attempt: Attempt, group: Sequence[Bin]) -> Act[bool]:
    """One commit for these. False: what was read is not the table's any more, or a writer was always first.

    Rows that come meanwhile do not disturb it: only that all of its files are still there counts.
    """
    with nothing_left(table, attempt):
        for each in group:
            name = f"{each.day}/{attempt.id}-{each.partition:05d}-{each.first_offset:020d}-compacted.parquet"
            yield from rewrite(table, attempt, name, _rows_of(table, each))
            _require_same(table, attempt.files[-1], each)
    drop = _files(group)
    while True:
        with nothing_left(table, attempt):
            yield "write manifests"
            transaction = table.prepared(Change(table.place(), tuple(attempt.files), drop), attempt.id)
        yield "commit"
        if table.commit(transaction, attempt.id):
            return True
        there = {file.file_path for file in table.data_files()}
        if not all(file.file_path in there for file in drop):
            yield from give_back(table, attempt)
            return False


def _require_same(table: LakeTable, file: DataFile, small: Bin) -> None:
    """What was written is read beside what it was made of: nothing goes before its rows are somewhere else."""
    pairs = zip_longest(rows_of_file(table, file), _rows_of(table, small), fillvalue=table.schema.empty_table())
    if any(have.num_rows != want.num_rows or first_difference(have, want) for have, want in pairs):
        raise CorruptData(
            "a compacted file does not have the rows that were read", table=table.name, file=file.file_path
        )


def _rows_of(table: LakeTable, small: Bin) -> Iterator[pa.Table]:
    """In the row groups of the file that they become."""
    rows = chain.from_iterable(rows_of_file(table, file) for file in small.files)
    return grouped(of_partition(each, small.partition) for each in rows)


def old_snapshots(table: LakeTable, keep: int, older_than: TimestampMs) -> list[int]:
    """Of the main branch, all but the newest ``keep`` (the current one is one of them), and those that are as young.

    What a branch or a tag names stays, and the way from the current one to the newest that says the table's place*: it
    is found by going from child to parent.
    """
    if keep < 1:
        raise InvalidRequest("a table keeps one snapshot at least", keep=keep)
    named = {each.snapshot_id for each in table.iceberg.refs().values()}
    at = table.iceberg.current_snapshot()
    while at is not None:
        named.add(at.snapshot_id)
        if at.summary is not None and OFFSETS in at.summary.additional_properties:
            break
        at = None if at.parent_snapshot_id is None else table.iceberg.snapshot_by_id(at.parent_snapshot_id)
    by_age = sorted(table.iceberg.snapshots(), key=lambda each: each.sequence_number or 0, reverse=True)
    return [
        each.snapshot_id for each in by_age[keep:] if each.timestamp_ms < older_than and each.snapshot_id not in named
    ]


def expire(table: LakeTable, snapshots: Sequence[int]) -> bool:
    """False: another writer was first, nothing went."""
    if not snapshots:
        return True
    with foreign(table=table.name):
        try:
            table.iceberg.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()
        except CommitFailedException:
            table.refresh()
            return False
    table.refresh()
    return True


def expire_some(table: LakeTable, older_than: TimestampMs) -> bool:
    """What a follower does after its commits: snapshots that are older go, once there are `EXPIRED_AT_ONCE` of them.

    Each commit writes all snapshots again, so without it a follower's commits cost ever more: after a week of a commit
    a minute many seconds each. False: nothing was to go, or another writer was first.
    """
    old = old_snapshots(table, KEPT_SNAPSHOTS, older_than)
    return len(old) >= EXPIRED_AT_ONCE and expire(table, old)


@dataclass(frozen=True, slots=True)
class Stray:
    """A file below the table's location that no snapshot names."""

    url: str
    bytes: int


def strays(table: LakeTable, older_than: TimestampMs) -> list[Stray]:
    """Files are listed before snapshots are asked*: one that is committed in between is named then.

    A file that only a foreign metadata file names is no stray: another catalog may keep the table, or this one was
    restored from a backup (`table_metadata`). ``older_than``: when an attempt that is still at work cannot have begun.
    Raises InvalidRequest for a store that cannot be listed, Unavailable while another catalog commits.
    """
    found = list(listed(table.iceberg.io, table.iceberg.location(), table.name))
    existing = {place_of(url) for url, _ in found}
    table.refresh()
    named = {place_of(each) for each in _named(table, table.iceberg.metadata)}
    others = foreign_metadata(table)
    for each in others:
        if not lost_its_race(table, each.metadata, existing):
            named |= {place_of(each.url), *map(place_of, _named(table, each.metadata, missing=True))}
    table.refresh()  # a commit of this catalog that came meanwhile is none of another
    if {each.url for each in foreign_metadata(table)} - {each.url for each in others}:
        raise Unavailable("another catalog commits to this table now; try again", table=table.name)
    own = None if table.has_own_location else _once_named(table)
    location = table.iceberg.location().rstrip("/")
    return [
        Stray(url, info.size)
        for url, info in found
        if info.mtime_ns is not None
        and info.mtime_ns // 1_000_000 < older_than
        and place_of(url) not in named
        and (_is_ours(url.removeprefix(location)) if own is None else place_of(url) in own)
    ]


def _is_ours(path: str) -> bool:
    """Return whether a path below a table's own location has a name that an attempt of tierstate writes."""
    return WRITTEN_BY_US.fullmatch(path) is not None


def _once_named(table: LakeTable) -> set[Place]:
    """Return what the table's earlier metadata files name, as far as those and their manifests still exist.

    This is the only proof for a table of an earlier version, whose location another table may share.
    """
    found: set[Place] = set()
    for entry in table.iceberg.metadata.metadata_log:
        try:
            with foreign(table=table.name):
                earlier = FromInputFile.table_metadata(table.iceberg.io.new_input(entry.metadata_file))
        except CorruptData:
            continue
        if earlier.table_uuid == table.iceberg.metadata.table_uuid:
            found |= {place_of(each) for each in _named(table, earlier, missing=True)}
    return found


def sweep(table: LakeTable, found: Sequence[Stray], advance: Callable[[int], None]) -> None:
    for each in found:
        with suppress(FileNotFoundError):
            table.remove(each.url)
        advance(1)


def _named(table: LakeTable, metadata: TableMetadata, *, missing: bool = False) -> set[str]:
    """Return every file that a snapshot of this metadata, or the table itself, needs.

    ``missing``: skip manifests that were deleted. Without it they raise CorruptData.
    """
    named = {table.iceberg.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    named |= {each.statistics_path for each in metadata.statistics}
    manifests = {}
    gone: tuple[type[CorruptData], ...] = (CorruptData,) if missing else ()
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        with suppress(*gone), foreign(table=table.name):
            manifests.update({each.manifest_path: each for each in snapshot.manifests(table.iceberg.io)})
    for path, manifest in manifests.items():
        named.add(path)
        with suppress(*gone), foreign(table=table.name):
            entries = manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=True)
            named |= {entry.data_file.file_path for entry in entries}
    return named
