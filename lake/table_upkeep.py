"""Maintenance of a table: joins small files into large ones, and removes files that are not needed.

    compact   joins the small files of one Kafka partition and table partition, and compares the rows one by one
    sweep     removes files that no snapshot names and that are older than any running attempt can be

If nothing changed since, a second run does nothing. Rules marked * prevent a loss that a model or a review found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from ..runtime.operation import Operation, run
from ..state.errors import CorruptData, Unavailable
from ..state.offsets import TimestampMs
from .names import is_table_file, rewritten_file
from .proof import difference, in_step
from .table import Change, LakeTable
from .table_errors import foreign
from .table_files import Attempt, give_back, nothing_left, of_partition, partitions_of, put_rows, rows_of_file
from .table_metadata import Place, foreign_metadata, listed, lost_its_race, place_of

TARGET_BYTES = 128 * 2**20
"""The size of a compacted file, at most. Files of at least half this size are left as they are."""
IN_MEMORY_BYTES = 32 * 2**20
"""The same for files whose rows are divided or sorted again: memory holds them three times, uncompressed."""
EARLIER = ""
"""The table partition of files of an earlier spec, in which they are all joined."""
COMMIT_BINS = 8
"""The number of compacted files in one commit."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The sources of one compacted file: consecutive small files of one Kafka partition and table partition. Or small
    files of an earlier spec, of any table partition: they become a file for each partition of the current spec. Or the
    rows of ``partition`` in one file of several Kafka partitions, which another engine wrote.
    """

    partition: int
    files: tuple[DataFile, ...]
    first_offset: int


def bins(table: LakeTable, target_bytes: int = TARGET_BYTES) -> list[Bin]:
    """Return the bins to compact now. Files of several partitions come first, with one bin for each partition."""
    groups: dict[tuple[int, str], list[tuple[int, DataFile]]] = defaultdict(list)
    all_bins = []
    for file in table.data_files():
        if (own := table.extent_of(file)) is None:
            parts = partitions_of(table, file).items()
            all_bins += [Bin(part, (file,), extent.start) for part, extent in parts]
        else:
            key = str(file.partition) if file.spec_id == table.iceberg.spec().spec_id else EARLIER
            groups[own[0], key].append((own[1].start, file))
    for (number, key), files in sorted(groups.items()):
        most = min(target_bytes, IN_MEMORY_BYTES) if key == EARLIER or table.layout.is_sorted else target_bytes
        for small in _runs(sorted(files, key=lambda each: each[0]), most):
            all_bins.append(Bin(number, tuple(file for _, file in small), small[0][0]))
    return all_bins


def _runs(files: Sequence[tuple[int, DataFile]], target_bytes: int) -> Iterator[list[tuple[int, DataFile]]]:
    """Yield runs of at least two small files in order of offset. Each run has at most ``target_bytes`` bytes."""
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
    """The numbers of small files that were joined, of large files that were written, and of commits."""

    small: int = 0
    large: int = 0
    commits: int = 0


def compact(table: LakeTable, attempt_id: Callable[[], str], *, execute: bool, bins_of: int = COMMIT_BINS) -> Compacted:
    """Compact until no files can be joined. Without ``execute``, only return the numbers. Raises the errors of
    reading and writing.
    """
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
    """Yield the bins of each commit. A file of several partitions has a commit of its own, with all of its bins."""
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
    """Make one commit for these bins. Returns False if files that were read no longer belong to the table.

    Other writers may add rows at the same time. The commit is repeated as long as the table still has the files that
    were read.
    """
    with nothing_left(table, attempt):
        for each in group:
            names, written = (
                partial(rewritten_file, attempt.id, each.partition, each.first_offset, "compacted"),
                len(attempt.files),
            )
            yield from put_rows(table, attempt, names, _rows_of(table, each), None)
            _require_same(table, attempt.files[written:], each)
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


def _require_same(table: LakeTable, files: Sequence[DataFile], small: Bin) -> None:
    """Raise CorruptData if the written files differ from their sources, which are removed only afterwards."""
    written: Iterator[pa.Table] = chain.from_iterable(rows_of_file(table, file) for file in files)
    sources, none, offset = _rows_of(table, small), table.schema.empty_table(), table.column("offset")
    if len(files) > 1 or table.layout.is_sorted:
        written, sources = (iter([pa.concat_tables([none, *rows]).sort_by(offset)]) for rows in (written, sources))
    if any(difference(*pair, offset) for pair in in_step(written, sources, none)):
        raise CorruptData(
            "a compacted file does not have the rows that were read", table=table.name, file=files[0].file_path
        )


def _rows_of(table: LakeTable, small: Bin) -> Iterator[pa.Table]:
    """Yield the rows of a bin, from one file after another."""
    rows = chain.from_iterable(rows_of_file(table, file) for file in small.files)
    return (of_partition(table, each, small.partition) for each in rows)


@dataclass(frozen=True, slots=True)
class Stray:
    """A file below the table's location that no snapshot names."""

    url: str
    bytes: int


def strays(table: LakeTable, older_than: TimestampMs) -> list[Stray]:
    """Return the strays. Files are listed before snapshots are read*, which then name each file committed in between.

    A file that only a foreign metadata file (`table_metadata`) names is not a stray. Another catalog may keep the
    table, or this catalog was restored from a backup. ``older_than``: no running attempt can have begun before it.
    Raises InvalidRequest if the store cannot be listed, and Unavailable if another catalog commits during the call.
    """
    files = list(listed(table.iceberg.io, table.iceberg.location(), table.name))
    existing = {place_of(url) for url, _ in files}
    table.refresh()
    needed = {place_of(each) for each in _named(table, table.iceberg.metadata)}
    others = foreign_metadata(table)
    for each in others:
        if not lost_its_race(table, each.metadata, existing):
            needed |= {place_of(each.url), *map(place_of, _named(table, each.metadata, missing=True))}
    table.refresh()  # so that a concurrent commit by this catalog is not taken for another catalog's
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
    """Return the places of files that the table's earlier metadata names. Deleted metadata and manifests are skipped.

    In a location that tables share (earlier versions), only this proves that a file belongs to the table.
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
    """Return the URLs of all files that a snapshot of this metadata, or the table itself, needs.

    ``missing``: skip manifests that were deleted. Otherwise a deleted manifest raises CorruptData.
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
