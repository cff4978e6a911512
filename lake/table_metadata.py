"""Foreign metadata files: metadata files of a table that its catalog does not know.

Each commit writes a metadata file, and then the catalog names it. A file below the table's location is foreign if it is
neither the one that the catalog names nor an ancestor of it. Another catalog over the same files wrote it, or this
catalog before a restore from a backup, or a writer that died during its commit.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3

from ..state.errors import CorruptData, InvalidRequest
from .table import LakeTable
from .table_errors import foreign

SUFFIX = ".metadata.json"
Place = tuple[str, str]
"""Bucket and path of a file. Java catalogs write ``file:/lake`` and ``s3a://`` where the table's location differs."""


@dataclass(frozen=True, slots=True)
class ForeignMetadata:
    """A metadata file of a table: its URL and its content."""

    url: str
    metadata: TableMetadataV2 | TableMetadataV3

    def is_after(self, url: str) -> bool:
        """Return whether this file was made from the file at ``url``, directly or through other files."""
        return place_of(url) in {place_of(each.metadata_file) for each in self.metadata.metadata_log}


def place_of(url: str) -> Place:
    _, host, path = PyArrowFileIO.parse_location(url)
    return host, path


def listed(io: FileIO, location: str, name: str) -> Iterator[tuple[str, FileInfo]]:
    """Yield the URL and details of each file below a location. Raises InvalidRequest if the store has no listing."""
    if not isinstance(io, PyArrowFileIO):
        raise InvalidRequest("only files that pyarrow reads can be listed", table=name, io=type(io).__name__)
    location = location.rstrip("/")
    scheme, host, path = PyArrowFileIO.parse_location(location)
    with foreign(table=name):
        infos = io.fs_by_scheme(scheme, host).get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    for each in infos:
        if each.type == FileType.File:
            yield location + each.path.removeprefix(path), each


def metadata_below(io: FileIO, location: str, name: str, own_files: Container[Place] = ()) -> list[ForeignMetadata]:
    """Return the metadata files below a table's location, except ``own_files``, with the newest last.

    An incomplete file is left out, because no catalog can name it.
    """
    files = []
    for url, _ in listed(io, f"{location.rstrip('/')}/metadata", name):
        if url.endswith(SUFFIX) and place_of(url) not in own_files:
            with suppress(ValueError, ValidationError), foreign(table=name):
                metadata = FromInputFile.table_metadata(io.new_input(url))
                if not isinstance(metadata, TableMetadataV1):  # tierstate writes no tables of format 1
                    files.append(ForeignMetadata(url, metadata))
    return sorted(files, key=lambda each: (each.metadata.last_sequence_number, each.metadata.last_updated_ms))


def foreign_metadata(table: LakeTable) -> list[ForeignMetadata]:
    """Return the metadata files of this table that its loaded catalog entry does not know, with the newest last."""
    iceberg = table.iceberg
    own = {place_of(each.metadata_file) for each in iceberg.metadata.metadata_log}
    files = metadata_below(iceberg.io, iceberg.location(), table.name, own | {place_of(iceberg.metadata_location)})
    return [each for each in files if each.metadata.table_uuid == iceberg.metadata.table_uuid]


def lost_its_race(table: LakeTable, metadata: TableMetadata, existing: Container[Place]) -> bool:
    """Return whether this metadata belongs to a failed attempt: another writer was first, and the files were removed.

    ``existing``: the places of the files below the table's location.
    """
    added = []
    with suppress(CorruptData), foreign(table=table.name):
        snapshot = metadata.snapshot_by_name(table.facts.branch)
        for manifest in [] if snapshot is None else snapshot.manifests(table.iceberg.io):
            if snapshot is not None and manifest.added_snapshot_id == snapshot.snapshot_id:
                entries = manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=True)
                added += [each.data_file.file_path for each in entries if each.status == ManifestEntryStatus.ADDED]
    return bool(added) and not any(place_of(each) in existing for each in added)
