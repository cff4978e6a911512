"""The HTTP gateway with one process, and with two workers that share its port and ask a third one for the view.

Eight clients as of `gateway`, that ask for 1 MiB as stored and throw away what they get; and eight that ask for one
record, so that the cost of a call without its bytes is seen. Sides take turns, medians of five. CPU is that of all
processes of the gateway. The clients are one process on the same two cores, and one process of a gateway and they have
these busy already (the rows of cores): what more cores would give is not in these rows, what sharing costs is.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tierstate.sandbox.kafka import KafkaSandbox

from .consumer import SIZES, TieredPlace
from .gateway import CALL_BYTES, FORMS
from .http_clients import taken
from .rows import RUNS, Row

CLIENTS, SECONDS = 8, 2.0
WHAT = "120 B zstd"
CALLS = {"1 MiB": f"max_bytes={CALL_BYTES}", "one record": "max_records=1"}
SPREAD = 64
"""The number of places that calls ask for, one after the other."""


class Side(NamedTuple):
    """A running gateway: the addresses of its API and of its management server."""

    address: str
    management: str

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its processes since they began."""
        with urllib.request.urlopen(f"http://{self.management}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("process_cpu_seconds_total ")))


def measure(quick: bool = False) -> list[Row]:
    """The run takes about 80 seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="tierstate-bench-") as folder,
        KafkaSandbox() as kafka,
        ExitStack() as opened,
    ):
        place = TieredPlace(kafka, Path(folder), '[trim]\ndelay = "0s"\nrespect_groups = false\n')
        value_bytes, codec, count = SIZES[WHAT]
        count = count // 20 if quick else count
        place.fill("bench-0", value_bytes, codec, count)
        sides = {number: opened.enter_context(_side(place.settings, number, Path(folder))) for number in (1, 2)}
        return [row for what in CALLS for row in _rows(sides, what, count * 3 // 4, quick)]


def _rows(sides: dict[int, Side], what: str, below: int, quick: bool) -> Iterator[Row]:
    media_type = FORMS["ndjson"][0]
    path = f"/v1/topics/bench-0/partitions/0/records?tier=remote&{CALLS[what]}&offset="
    paths = [f"{path}{below * number // SPREAD}" for number in range(SPREAD)]
    size = statistics.mean(_size(sides[1].address + each, media_type) for each in paths)
    calls: dict[int, list[float]] = {1: [], 2: []}
    costs: dict[int, list[float]] = {1: [], 2: []}
    seconds = 0.5 if quick else SECONDS
    busy: list[float] = []
    for turn in range(2 if quick else RUNS + 1):
        for number, side in sides.items():
            before, own = side.cpu_s(), time.process_time()
            took = asyncio.run(taken(side.address, paths, media_type, CLIENTS, seconds))
            if turn:  # the first one compiles, and fills caches
                calls[number].append(took.rate / size)
                spent = side.cpu_s() - before
                costs[number].append(spent / (took.rate / size * seconds) * 1e3)
                if number == 1:
                    busy.append((spent + time.process_time() - own) / seconds)
    of = f"ndjson, {what} a call, {CLIENTS} clients"
    peer = "one process"
    yield Row(f"{of}, two workers", statistics.median(calls[2]), "calls/s", statistics.median(calls[1]), peer)
    one, two = (statistics.median(costs[number]) for number in (1, 2))
    yield Row(f"{of}, one process and its clients", statistics.median(busy), "cores", os.cpu_count(), "all there are")
    yield Row(f"{of}, two workers, CPU", two, "ms a call, less is better", one, peer)


def _size(url: str, media_type: str) -> int:
    """Return the bytes of an answer's body."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": media_type}), timeout=60) as answer:
        return len(answer.read())


@contextmanager
def _side(settings: Path, workers: int, folder: Path) -> Iterator[Side]:
    command = [sys.executable, "-m", "tierstate.cli.main", "gateway", "--listen", "127.0.0.1:0", "--json"]
    command += ["--workers", str(workers), "--config", str(settings), "--set", f"state_dir={folder}/by-{workers}"]
    command += ["--set", "management.listen=127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield Side(**json.loads(process.stdout.readline()))
        finally:
            process.terminate()
