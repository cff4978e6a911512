"""Answers of the HTTP gateway, compared with a server that returns the same bytes from memory.

Both are one process of uvicorn. Clients are connections of one process; each asks for 1 MiB as stored, one call after
the other, of the remote tier of one partition in a directory: the same 64 places, whose bytes are in the chunk cache.
In ``each call once`` no two calls are equal.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from tierstate.sandbox.kafka import KafkaSandbox

from .consumer import SIZES, TieredPlace
from .http_clients import Taken, taken
from .rows import RUNS, Row

BARE = "the same bytes from memory"
CALL_BYTES = 1 << 20
SECONDS = 1.5
CLIENTS = (1, 64)
ONCE = 10_000
FORMS = {
    "batches": ("application/vnd.tierstate.batches", "≥ 0.7x"),
    "Arrow": ("application/vnd.apache.arrow.stream", "≥ 0.5x"),
    "ndjson": ("application/x-ndjson", "≥ 0.25x"),
}


def measure(quick: bool = False) -> list[Row]:
    """The run takes about 9 minutes."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as folder, KafkaSandbox() as kafka:
        place = TieredPlace(kafka, Path(folder), '[trim]\ndelay = "0s"\nrespect_groups = false\n')
        for number, (what, (value_bytes, codec, count)) in enumerate(SIZES.items()):
            count = count // 20 if quick else count
            place.fill(f"bench-{number}", value_bytes, codec, count)
            with gateway_of(place.settings) as address:
                path = f"/v1/topics/bench-{number}/partitions/0/records?tier=remote&max_bytes={CALL_BYTES}&offset="
                rows += rows_of(address, path, count * 3 // 4, what, Path(folder), quick)
    return rows


def rows_of(address: str, path: str, below: int, what: str, folder: Path, quick: bool) -> list[Row]:
    """``below`` is the end of the offsets that are asked for, exclusive."""
    rows: list[Row] = []
    for form, (media_type, goal) in FORMS.items():
        paths, bodies = asyncio.run(_walk(address, path, below, media_type))
        (folder / "answers").write_bytes(json.dumps([[len(each) for each in bodies], paths]).encode() + b"\n")
        with (folder / "answers").open("ab") as file:
            file.writelines(bodies)
        with _bare(folder / "answers", media_type) as bare:
            series: dict[tuple[str, int], list[Taken]] = {}
            for _ in range(1 if quick else RUNS):
                for clients in CLIENTS:
                    for at in (address, bare):
                        took = asyncio.run(taken(at, paths, media_type, clients, 0.5 if quick else SECONDS))
                        series.setdefault((at, clients), []).append(took)
        rate = {key: statistics.median(each.rate for each in runs) / 2**20 for key, runs in series.items()}
        rows += [
            Row(f"{form}, {what}, {n} clients", rate[address, n], "MiB/s", rate[bare, n], BARE, goal) for n in CLIENTS
        ]
        one, many = (rate[address, n] for n in CLIENTS)
        rows.append(Row(f"{form}, {what}, {CLIENTS[-1]} clients", many, "MiB/s", one, "one client", "≥ 0.9x"))
        if form != "batches":
            seconds = 0.5 if quick else SECONDS
            once = [
                asyncio.run(taken(address, _like_no_other(paths, run), media_type, 1, seconds)).rate
                for run in range(1 if quick else RUNS)
            ]
            rows.append(
                Row(f"{form}, {what}, each call once", statistics.median(once) / 2**20, "MiB/s", rate[bare, 1], BARE)
            )
        most = CLIENTS[-1]
        p50, p99 = (statistics.median(getattr(each, p) for each in series[address, most]) * 1e3 for p in ("p50", "p99"))
        rows.append(Row(f"{form}, {what}, 64 clients, p99", p99, "ms, less is better", p50, "p50", "≤ 4x"))
    return rows


def _like_no_other(asked: list[str], run: int) -> list[str]:
    """Return more calls than one client makes in a run, and none that another run makes."""
    more = range(CALL_BYTES + (run + 1) * ONCE, CALL_BYTES + (run + 2) * ONCE)
    calls = zip(cycle(asked), more, strict=False)
    return [path.replace(f"max_bytes={CALL_BYTES}", f"max_bytes={most}") for path, most in calls]


async def _walk(address: str, path: str, below: int, media_type: str) -> tuple[list[str], list[bytes]]:
    """Return consecutive paths and their answers; enough that 64 clients do not ask for the same."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    paths: list[str] = []
    bodies: list[bytes] = []
    offset = 0
    while offset < below and len(paths) < 64:
        paths.append(f"{path}{offset}")
        head, body = await _call(reader, writer, paths[-1], media_type)
        bodies.append(body)
        offset = int(head[b"x-next-offset"])
    writer.close()
    return paths, bodies


async def _call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, media_type: str
) -> tuple[dict[bytes, bytes], bytes]:
    """Return the head and the body of the answer."""
    while True:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {media_type}\r\n\r\n".encode())
        raw = await reader.readuntil(b"\r\n\r\n")
        status, *lines = raw[:-4].split(b"\r\n")
        head = dict(line.lower().split(b": ", 1) for line in lines)
        if b"content-length" in head:
            body = await reader.readexactly(int(head[b"content-length"]))
        else:
            parts = []
            while size := int(await reader.readline(), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
            await reader.readexactly(2)
            body = b"".join(parts)
        if b" 200 " in status:
            return head, body
        if b" 429 " not in status:
            raise SystemExit(f"{path}: {status!r} {body!r}")
        await asyncio.sleep(0.05)


@contextmanager
def gateway_of(settings: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tierstate.cli.main", "gateway", "--listen", "127.0.0.1:0", "--json"]
    with _process([*command, "--config", str(settings)]) as line:
        yield json.loads(line)["address"]


@contextmanager
def _bare(answers: Path, media_type: str) -> Iterator[str]:
    with _process([sys.executable, "-m", "bench.bare_gateway", str(answers), media_type]) as line:
        yield line.strip()


@contextmanager
def _process(command: list[str]) -> Iterator[str]:
    """Start a process and yield the first line that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
