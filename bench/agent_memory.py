"""Peak memory (VmHWM) of an agent that copies eight segments of 1 GiB at a time, until 2 GiB are stored. One run each.

The bound is six parts of 8 MiB for all uploads to S3 (`store.upload_concurrency` + 2), plus 5 MiB for each copy, or
9 MiB with zstd, above the idle agent.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.storage.object_store import MIB

from .agent_site import RunningAgent, Site, bytes_below
from .bucket import bucket
from .rows import Row

PARTITIONS, SEGMENT_BYTES = 8, 1024 * MIB
STORED_BYTES = 2048 * MIB
QUICK_BYTES = 64 * MIB
VALUE_BYTES = 16_000
LONGEST_S = 45.0
TOPIC = "large"


def measure(quick: bool = False) -> list[Row]:
    """About 4 minutes, 11 GiB of disk."""
    segment_bytes = QUICK_BYTES if quick else SEGMENT_BYTES
    rows = []
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(folder=folder / "kafka"))
        s3 = opened.enter_context(bucket(folder))
        directory = Site(kafka, folder / "directory")
        directory.create(TOPIC, PARTITIONS, segment_bytes)
        directory.fill(TOPIC, PARTITIONS, segment_bytes, 1, VALUE_BYTES)
        sites = {"S3": (Site(kafka, folder / "s3", s3.section), s3.folder), "a directory": (directory, None)}
        for where, (site, stored) in sites.items():
            for form in ("none", "zstd"):
                idle, most = _run(site, stored, form, STORED_BYTES if not quick else 4 * QUICK_BYTES)
                what = f"copying 8 segments of 1 GiB to {where}, {'plain' if form == 'none' else form}"
                rows.append(Row(what, most, "MiB, less is better", idle, "the same agent idle", "<= 256"))
    return rows


def _run(site: Site, stored: Path | None, form: str, enough: int) -> tuple[float, float]:
    """Return the MiB of the process when it was ready, and its peak."""
    config = site.begin(
        TOPIC, copy='concurrency = 8\nlag = "5s"', format=f'compression = "{form}"', trim='delay = "1h"'
    )
    folder = stored or config.parent / "store"
    try:
        before = bytes_below(folder)
        with RunningAgent(config) as agent:
            idle = agent.memory()["VmHWM"]
            deadline = time.monotonic() + LONGEST_S
            while bytes_below(folder) - before < enough and time.monotonic() < deadline:
                time.sleep(0.2)
            most, sent = agent.memory()["VmHWM"], bytes_below(folder) - before
        print(f"  {form}: idle {idle:.0f}, most {most:.0f} MiB after {sent >> 20} MiB", file=sys.stderr, flush=True)
        return idle, most
    finally:
        site.end(config)
