"""One process of `bench consumer`: it imports the client that it measures, and nothing of ours for a peer.

Imported modules cost CPU later: Python's collector looks through it again and again.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

WARM = 10_000


def consume(tiered: bool, topic: str, count: int, config: dict[str, Any]) -> dict[str, float]:
    """Return CPU seconds a million records from the `WARM`-th on, peak memory, and seconds to the first record."""
    began = time.monotonic()
    module, name = ("tierstate", "TieredConsumer") if tiered else ("confluent_kafka", "Consumer")
    opened = getattr(importlib.import_module(module), name)
    first_s, cpu, total, from_found = 0.0, 0.0, 0, 0
    with opened(config) as consumer:
        consumer.subscribe([topic])
        while total < count:
            got = consumer.consume(min(1000, count - total), 1.0) if first_s else [consumer.poll(1.0)]
            records = [message for message in got if message is not None and message.error() is None]
            for message in records:
                message.value()
            if records and not total:
                first_s = time.monotonic() - began
            total += len(records)
            if not cpu and total >= WARM:
                cpu, from_found = time.process_time(), total
        cpu = time.process_time() - cpu
    return {"cpu": cpu * 1e6 / max(1, total - from_found), "peak_bytes": _peak_bytes(), "first_s": first_s}


def _peak_bytes() -> int:
    """Return the peak, but not by `getrusage`: a process begins with the peak of the one that began it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(consume(*json.loads(sys.argv[1]))))
