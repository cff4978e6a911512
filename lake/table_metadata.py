"""Metadata files of a table that its catalog does not know.

Each commit writes a metadata file, and then the catalog names it. A file below the table's location that is neither the
catalog's nor one of its ancestors was written by another catalog over the same files, by this one before it was
restored from a backup, or by a writer that died in the middle of its commit.
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
from .table import LakeTable, foreign

SUFFIX = ".metadata.json"
Place = tuple[str, str]
"""Bucket and path: catalogs written in Java write ``file:/lake`` and ``s3a://`` where the table's location differs."""


@dataclass(frozen=True, slots=True)
class ForeignMetadata:
    """A metadata file of this table, and the file that it was made from."""

    url: str
    metadata: TableMetadataV2 | TableMetadataV3

    def is_after(self, url: str) -> bool:
        """Return whether this file was made from the one at ``url``, directly or over other files."""
        return place_of(url) in {place_of(each.metadata_file) for each in self.metadata.metadata_log}


def place_of(url: str) -> Place:
    _, host, path = PyArrowFileIO.parse_location(url)
    return host, path


def listed(io: FileIO, location: str, name: str) -> Iterator[tuple[str, FileInfo]]:
    """List the files below a location. Raises InvalidRequest for a store that has no listing."""
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
    """Return the metadata files below a table's location, except ``own_files``; the newest last.

    An incomplete file is left out: no catalog can name it.
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
    """Return the metadata files of this table that its catalog, as it was loaded, does not know; the newest last."""
    iceberg = table.iceberg
    own = {place_of(each.metadata_file) for each in iceberg.metadata.metadata_log}
    files = metadata_below(iceberg.io, iceberg.location(), table.name, own | {place_of(iceberg.metadata_location)})
    return [each for each in files if each.metadata.table_uuid == iceberg.metadata.table_uuid]


def lost_its_race(table: LakeTable, metadata: TableMetadata, existing: Container[Place]) -> bool:
    """Return whether this metadata belongs to an attempt that another writer preceded and that removed its files.

    ``existing``: the places of the files below the table's location.
    """
    added = []
    with suppress(CorruptData), foreign(table=table.name):
        snapshot = metadata.current_snapshot()
        for manifest in [] if snapshot is None else snapshot.manifests(table.iceberg.io):
            if manifest.added_snapshot_id == metadata.current_snapshot_id:
                entries = manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=True)
                added += [each.data_file.file_path for each in entries if each.status == ManifestEntryStatus.ADDED]
    return bool(added) and not any(place_of(each) in existing for each in added)
