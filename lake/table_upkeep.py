"""The upkeep of a table: large files instead of many small ones, and no files that are not needed.

    compact   the small files of a partition's day become one; the rows are compared one by one
    expire    snapshots that are old and not among the newest; never the one that has the table's place
    sweep     files that no snapshot names, once they are older than any attempt can be

Run again, each of them does nothing.
"""

from __future__ import annotations

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
from pyiceberg.table.snapshots import ancestors_of

from ..runtime.operation import Operation, run
from ..state.errors import CorruptData, InvalidRequest, Unavailable
from ..state.offsets import TimestampMs
from .columns import first_difference
from .names import is_table_file, rewritten_file
from .table import Change, LakeTable, foreign
from .table_files import Attempt, give_back, grouped, nothing_left, of_partition, partitions_of, rewrite, rows_of_file
from .table_metadata import Place, foreign_metadata, listed, lost_its_race, place_of
from .table_place import OFFSETS, summary_of

TARGET_BYTES = 128 * 2**20
"""The size of a compacted file; a file of half of that is left as it is."""
COMMIT_BINS = 8
"""The number of compacted files in one commit."""
KEPT_SNAPSHOTS = 10
"""The number of newest snapshots that stay, however old."""
EXPIRED_AT_ONCE = 100
"""How many a follower expires at once: that is a commit of its own."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Small files that follow each other, of one partition and one day; or one file of several partitions, which
    another engine wrote, with the rows of one of them.
    """

    partition: int
    day: int
    files: tuple[DataFile, ...]
    first_offset: int


def bins(table: LakeTable, target_bytes: int = TARGET_BYTES) -> list[Bin]:
    """Return what is to be compacted now; files of several partitions first, one after another."""
    groups: dict[tuple[int, int], list[tuple[int, DataFile]]] = defaultdict(list)
    all_bins = []
    for file in table.data_files():
        day = file.partition[0]
        if (own := table.extent_of(file)) is None:
            parts = partitions_of(table, file).items()
            all_bins += [Bin(part, day, (file,), extent.start) for part, extent in parts]
        else:
            groups[own[0], day].append((own[1].start, file))
    for (number, day), files in sorted(groups.items()):
        for small in _runs(sorted(files, key=lambda each: each[0]), target_bytes):
            all_bins.append(Bin(number, day, tuple(file for _, file in small), small[0][0]))
    return all_bins


def _runs(files: Sequence[tuple[int, DataFile]], target_bytes: int) -> Iterator[list[tuple[int, DataFile]]]:
    """Yield runs of at least two small files, in the order of offsets, of ``target_bytes`` at most."""
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
    """The number of small files that became large ones, or would."""

    small: int = 0
    large: int = 0
    commits: int = 0


def compact(table: LakeTable, attempt_id: Callable[[], str], *, execute: bool, bins_of: int = COMMIT_BINS) -> Compacted:
    """Compact until no small files are left that can be joined. Raises what reading and writing raise."""
    compacted = Compacted()
    while to_compact := bins(table):
        groups = list(_groups(to_compact, bins_of))
        if not execute:
            return Compacted(len(_files(to_compact)), len(to_compact), len(groups))
        if run(compact_bins(table, Attempt(attempt_id()), groups[0])):
            compacted.small += len(_files(groups[0]))
            compacted.large += len(groups[0])
            compacted.commits += 1
    return compacted


def _groups(all_bins: Sequence[Bin], bins_of: int) -> Iterator[Sequence[Bin]]:
    """Yield the bins of each commit. A file of several partitions has its own commit, for all of its rows."""
    parts: dict[str, list[Bin]] = defaultdict(list)
    for each in all_bins:
        if len(each.files) == 1:
            parts[each.files[0].file_path].append(each)
    yield from parts.values()
    whole = [each for each in all_bins if len(each.files) > 1]
    yield from (whole[at : at + bins_of] for at in range(0, len(whole), bins_of))


def _files(group: Sequence[Bin]) -> list[DataFile]:
    return list({file.file_path: file for each in group for file in each.files}.values())


def compact_bins(table: LakeTable, attempt: Attempt, group: Sequence[Bin]) -> Operation[bool]:
    """Make one commit for these. False: files that were read are no longer the table's, or a writer was always first.

    Rows that are added at the same time do not matter: only that all of its files are still there counts.
    """
    with nothing_left(table, attempt):
        for each in group:
            name = rewritten_file(attempt.id, each.day, each.partition, each.first_offset, "compacted")
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
    """Compare the written file with its sources: no file is removed before its rows are in another."""
    pairs = zip_longest(rows_of_file(table, file), _rows_of(table, small), fillvalue=table.schema.empty_table())
    if any(have.num_rows != want.num_rows or first_difference(have, want) for have, want in pairs):
        raise CorruptData(
            "a compacted file does not have the rows that were read", table=table.name, file=file.file_path
        )


def _rows_of(table: LakeTable, small: Bin) -> Iterator[pa.Table]:
    """Yield its rows in the row groups of the file that they become."""
    rows = chain.from_iterable(rows_of_file(table, file) for file in small.files)
    return grouped(of_partition(each, small.partition) for each in rows)


def old_snapshots(table: LakeTable, keep: int, older_than: TimestampMs) -> list[int]:
    """Return the snapshots of the main branch, but for the newest ``keep`` (with the current one) and those as young.

    Snapshots that a branch or a tag names stay, and the way from the current one to the newest with the table's place*:
    it is found by going from child to parent.
    """
    if keep < 1:
        raise InvalidRequest("a table keeps one snapshot at least", keep=keep)
    needed = {each.snapshot_id for each in table.iceberg.refs().values()}
    for snapshot in ancestors_of(table.iceberg.current_snapshot(), table.iceberg.metadata):
        needed.add(snapshot.snapshot_id)
        if OFFSETS in summary_of(snapshot):
            break
    by_age = sorted(table.iceberg.snapshots(), key=lambda each: each.sequence_number or 0, reverse=True)
    return [
        each.snapshot_id for each in by_age[keep:] if each.timestamp_ms < older_than and each.snapshot_id not in needed
    ]


def expire(table: LakeTable, snapshots: Sequence[int]) -> bool:
    """Expire snapshots. False: another writer was first, and nothing changed."""
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
    """Expire older snapshots once there are `EXPIRED_AT_ONCE` of them, as a follower does after its commits.

    Each commit writes all snapshots again, so without this a follower's commits cost ever more: after a week with one
    commit a minute many seconds each. False: nothing was to expire, or another writer was first.
    """
    old = old_snapshots(table, KEPT_SNAPSHOTS, older_than)
    return len(old) >= EXPIRED_AT_ONCE and expire(table, old)


@dataclass(frozen=True, slots=True)
class Stray:
    """A file below the table's location that no snapshot names."""

    url: str
    bytes: int


def strays(table: LakeTable, older_than: TimestampMs) -> list[Stray]:
    """Return the strays. Files are listed before snapshots are asked for*: a file committed in between is named then.

    A file that only a foreign metadata file names is no stray: another catalog may keep the table, or this one was
    restored from a backup (`table_metadata`). ``older_than``: no attempt that still works can have begun before it.
    Raises InvalidRequest for a store that cannot be listed, Unavailable while another catalog commits.
    """
    files = list(listed(table.iceberg.io, table.iceberg.location(), table.name))
    existing = {place_of(url) for url, _ in files}
    table.refresh()
    needed = {place_of(each) for each in _named(table, table.iceberg.metadata)}
    others = foreign_metadata(table)
    for each in others:
        if not lost_its_race(table, each.metadata, existing):
            needed |= {place_of(each.url), *map(place_of, _named(table, each.metadata, missing=True))}
    table.refresh()  # a commit of this catalog in between is not another catalog's
    if {each.url for each in foreign_metadata(table)} - {each.url for each in others}:
        raise Unavailable("another catalog commits to this table now; try again", table=table.name)
    own = None if table.has_own_location else _once_named(table)
    location = table.iceberg.location().rstrip("/")
    return [
        Stray(url, info.size)
        for url, info in files
        if info.mtime_ns is not None
        and info.mtime_ns // 1_000_000 < older_than
        and place_of(url) not in needed
        and (is_table_file(url.removeprefix(location)) if own is None else place_of(url) in own)
    ]


def _once_named(table: LakeTable) -> set[Place]:
    """Return what the table's earlier metadata files name, as far as those and their manifests still exist.

    This is the only proof for a table of an earlier version, whose location another table may share.
    """
    places: set[Place] = set()
    for entry in table.iceberg.metadata.metadata_log:
        try:
            with foreign(table=table.name):
                earlier = FromInputFile.table_metadata(table.iceberg.io.new_input(entry.metadata_file))
        except CorruptData:
            continue
        if earlier.table_uuid == table.iceberg.metadata.table_uuid:
            places |= {place_of(each) for each in _named(table, earlier, missing=True)}
    return places


def sweep(table: LakeTable, stray_files: Sequence[Stray], advance: Callable[[int], None]) -> None:
    for each in stray_files:
        with suppress(FileNotFoundError):
            table.remove(each.url)
        advance(1)


def _named(table: LakeTable, metadata: TableMetadata, *, missing: bool = False) -> set[str]:
    """Return every file that a snapshot of this metadata, or the table itself, needs.

    ``missing``: skip manifests that were deleted. Without it they raise CorruptData.
    """
    needed = {table.iceberg.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    needed |= {each.statistics_path for each in metadata.statistics}
    manifests = {}
    ignored: tuple[type[CorruptData], ...] = (CorruptData,) if missing else ()
    for snapshot in metadata.snapshots:
        needed.add(snapshot.manifest_list)
        with suppress(*ignored), foreign(table=table.name):
            manifests.update({each.manifest_path: each for each in snapshot.manifests(table.iceberg.io)})
    for path, manifest in manifests.items():
        needed.add(path)
        with suppress(*ignored), foreign(table=table.name):
            entries = manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=True)
            needed |= {entry.data_file.file_path for entry in entries}
    return needed
