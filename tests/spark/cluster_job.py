"""The job that runs on the cluster: reads a topic, holds its tasks if asked to, and prints its findings as one line of
JSON."""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HELD_AT_MOST_S = 600


def main(options: dict[str, str], flags: str, hold: bool, config: dict[str, str]) -> None:
    """Hold tasks until the file ``flags``-go is there: then a test knows what runs while it does something."""
    import tierstate.spark

    spark = tierstate.spark.session("cluster job", config=config)

    def summed(batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one row a task: its process, and a summary of its rows. Rows of a repeated task count once."""
        import pyarrow as pa

        seen: dict[int, list[int]] = {}
        Path(flags, f"task-{os.getpid()}-{time.monotonic_ns()}").touch()
        for batch in batches:
            for row in batch.to_pylist():
                sums = seen.setdefault(row["partition"], [0, 0, 0])
                sums[0] += 1
                sums[1] += row["offset"]
                sums[2] += zlib.crc32(b"%d %s %s" % (row["offset"], row["key"], row["value"]))
        ends = time.monotonic() + HELD_AT_MOST_S
        while hold and not Path(f"{flags}-go").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        columns = [[partition, *sums] for partition, sums in seen.items()]
        yield pa.RecordBatch.from_pydict(
            {name: [each[at] for each in columns] for at, name in enumerate(("partition", "count", "offsets", "sums"))}
        )

    frame = spark.read.format("tierstate").options(**options).load().select("partition", "offset", "key", "value")
    kinds = "partition bigint, count bigint, offsets bigint, sums bigint"
    rows = frame.mapInArrow(summed, kinds).groupBy("partition").sum("count", "offsets", "sums").collect()
    print(json.dumps({"found": sorted([list(row) for row in rows])}))
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
