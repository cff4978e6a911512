"""The smallest and the largest values of a data file's columns, as the table's manifests have them."""

from __future__ import annotations

from pyiceberg.manifest import DataFile


def bounds_of(file: DataFile, field_id: int) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer column."""
    lower, upper = file.lower_bounds[field_id], file.upper_bounds[field_id]
    return int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)


def single_partition(file: DataFile, partition_id: int) -> int | None:
    """Return the one Kafka partition of a file's rows, or None for a file of several: another engine wrote it."""
    lower, upper = file.lower_bounds.get(partition_id), file.upper_bounds.get(partition_id)
    return None if lower is None or lower != upper else int.from_bytes(lower, "little", signed=True)
