"""Encodes rows as the bytes of a Parquet file.

Encodings are those that every reader of Parquet knows since 2021: deltas for offsets and times, a dictionary for every
other column, zstd over all of it. The encoder gives up a dictionary that reaches 1 MiB; the rest of the row group is
plain: values that never repeat cost no more than without. Each column chunk has its smallest and largest value, so that
readers find offsets and times without reading the rest.
"""

from __future__ import annotations

from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

ENCODED = 2
"""Increase it whenever the same rows become other bytes."""
WRITER = f"pyarrow {pa.__version__}, {ENCODED}"
DELTAS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
LEVEL = 1
"""Compression level of zstd."""


def writer_of(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with the encodings above."""
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=[leaf for each in schema if each.name not in DELTAS for leaf in _leaves(each.name, each.type)],
        column_encoding={name: how for name, how in DELTAS.items() if name in schema.names},
        write_page_index=True,
    )


def _leaves(name: str, kind: pa.DataType) -> list[str]:
    """Return the columns that Parquet has for one of our columns."""
    if pa.types.is_struct(kind):
        return [leaf for each in kind for leaf in _leaves(f"{name}.{each.name}", each.type)]
    if pa.types.is_list(kind):
        return _leaves(f"{name}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return [f"{name}.key_value.key", *_leaves(f"{name}.key_value.value", kind.item_type)]
    return [name]
