"""Names and types of the columns of decoded records. Planners read no records, so this module loads no kernels."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..state.errors import InvalidRequest

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""The columns of Spark's Kafka source, in its order, all nullable. Times are Kafka's own milliseconds."""
MICROSECONDS = pa.timestamp("us", tz="UTC")
"""The unit of times in Spark and Iceberg, which have no milliseconds."""


def record_schema(
    *, include_headers: bool = True, columns: Sequence[str] | None = None, milliseconds: bool = False
) -> pa.Schema:
    """Return the Arrow schema of decoded records. Raises InvalidRequest for an unknown column.

    ``milliseconds``: keep Kafka's unit of times, for all readers except Spark and tables. Otherwise times are
    `MICROSECONDS`, and times outside ± `record_block.MAX_MILLIS` become the nearer of these two bounds.
    """
    kinds = FIELDS if milliseconds else FIELDS | {"timestamp": MICROSECONDS}
    names = [name for name in FIELDS if include_headers or name != "headers"]
    if columns is not None:
        unknown = [name for name in columns if name not in FIELDS]
        if unknown:
            raise InvalidRequest("unknown column", column=unknown[0], columns=",".join(FIELDS))
        names = list(columns)
    return pa.schema([pa.field(name, kinds[name]) for name in names])


RECORD_SCHEMA = record_schema(milliseconds=True)
"""All columns, with Kafka's milliseconds."""
