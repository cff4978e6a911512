"""Times that a table cannot have. Kafka takes any int64 of milliseconds; a table is partitioned by days, and pyiceberg,
Python and Spark name only those of the years 1 to 9999. Another time is written as the nearest microsecond within them
that is no whole millisecond, so that its row differs from all others.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

FIRST_US = -62_135_596_800_000_000 + 1
"""0001-01-01T00:00:00.000001Z."""
LAST_US = 253_402_300_800_000_000 - 1
"""9999-12-31T23:59:59.999999Z."""


def within_years(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records with the times that a table has: `FIRST_US` and `LAST_US` where theirs lie beyond."""
    times = batch.column("timestamp")
    micros = times.cast(pa.int64())
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is None or FIRST_US - 1 <= bounds["min"] <= bounds["max"] <= LAST_US:
        return batch
    early, late = pc.less(micros, FIRST_US - 1), pc.greater(micros, LAST_US)
    bounded = pc.if_else(early, FIRST_US, pc.if_else(late, LAST_US, micros))
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, batch.schema.field(at), bounded.cast(times.type))


def beyond_years(times: pa.Array) -> pa.Array:
    """Return for each time of `within_years` whether it stands for a time beyond the years."""
    return pc.is_in(times.cast(pa.int64()), value_set=pa.array([FIRST_US, LAST_US]))
