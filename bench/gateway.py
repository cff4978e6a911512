"""Answers of the HTTP gateway, each call once, compared with other ways to the same records.

No two calls are equal. A call asks for 4 MiB as stored. The bytes are in the chunk caches of the gateway and of
`tierstate.connect`, which decodes the same offsets in one process. nginx has the answers in files; behind nginx are 64
clients with TLS, and `deploy/nginx.conf`. Clients are one process. They and nginx share both cores with the gateways.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path

import httpx
import orjson
import pyarrow as pa

from tests.servers.nginx_server import nginx, shipped
from tierstate.api.media import ARROW, BATCHES, NDJSON
from tierstate.consumer.connect import Log, connect
from tierstate.fetch.gateway import PAGE_BYTES
from tierstate.log.record_columns import RECORD_SCHEMA
from tierstate.sandbox.kafka import KafkaSandbox

from .consumer import SIZES, TieredPlace
from .http_clients import taken
from .proxy import EAGER, TRIMMED
from .rows import RUNS, Row

PLACES, CLIENTS, SECONDS = 16, 64, 2.0
FORMS = {
    "batches": (BATCHES, "nginx, from files", "≥ 0.5x"),
    "Arrow": (ARROW, "tierstate.connect", "≥ 0.8x"),
    "ndjson": (NDJSON, "tierstate.connect, orjson.dumps", "≥ 0.5x"),
}
SETTINGS = EAGER + '[gateway]\ntrusted_proxies = ["127.0.0.1"]\n'
FILES = """
user root;
pid /run/nginx.pid;
events {}
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    server {
        listen 443;
        root .;
    }
}
"""


def measure(quick: bool = False) -> list[Row]:
    """The run takes about 12 minutes."""
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name, ExitStack() as opened:
        folder, enter = Path(name), opened.enter_context
        kafka = enter(KafkaSandbox())
        place = TieredPlace(kafka, folder, SETTINGS)
        counts = [records // 20 if quick else records for _, _, records in SIZES.values()]
        for number, (value_bytes, codec, _) in enumerate(SIZES.values()):
            place.fill(f"bench-{number}", value_bytes, codec, counts[number], **TRIMMED)
        gateways = [enter(gateway_of(place.settings, f"state_dir={folder}/gateway-{n}")) for n in range(2)]
        files, *behind = folders = [folder / each for each in ("files", "one", "both")]
        for each in folders:
            each.mkdir()
        hosts = [each.removeprefix("http://") for each in gateways]
        proxies = [enter(nginx(own, shipped(own, *hosts[: n + 1]))) for n, own in enumerate(behind)]
        urls = [f"https://127.0.0.1:{port}" for port in proxies]
        log = enter(connect(kafka.bootstrap, (folder / "store").as_uri()))
        servers = Servers(gateways[0], urls[0], urls[1], f"http://127.0.0.1:{enter(nginx(files, FILES))}", files, log)
        gc.freeze()  # as the gateway does: else the peer pays for what the benchmark imported
        return [
            row
            for number, what in enumerate(SIZES)
            for form in FORMS
            for row in servers.rows(form, f"bench-{number}", counts[number] * 3 // 4, what, quick)
        ]


@dataclass(frozen=True, slots=True)
class Servers:
    """Addresses of the servers, the folder with the files of one of them, and the peer that decodes."""

    gateway: str
    behind_one: str
    behind_both: str
    of_files: str
    files: Path
    log: Log

    def rows(self, form: str, topic: str, below: int, what: str, quick: bool) -> list[Row]:
        """``below`` is the end of the offsets that may be read, exclusive."""
        media_type, peer, goal = FORMS[form]
        paths, size, end = list[str](), 0, 0
        for path, body, next_offset in _walked(self.gateway, topic, below, media_type):
            if form == "batches":
                (self.files / str(len(paths))).write_bytes(body)
            paths.append(path)
            size, end = size + len(body), next_offset
        if self.log.topic(topic).bounds(0).local_start < end:
            raise SystemExit(f"{topic} is not trimmed: the peer would read the broker")
        seconds = 0.3 if quick else SECONDS
        calls = _like_no_other(paths)

        def asked(address: str, clients: int = CLIENTS, paths: Iterator[str] = calls) -> float:
            return asyncio.run(taken(address, paths, media_type, clients, seconds)).rate * end / size

        decoded = partial(_decoded, self.log, topic, end, seconds)
        peers: dict[str, Callable[[], float]] = {
            "batches": partial(asked, self.of_files, 1, cycle([f"/{number}" for number in range(len(paths))])),
            "Arrow": partial(decoded, len),
            "ndjson": partial(decoded, dump_each),
        }
        sides: list[Callable[[], float]] = [
            partial(asked, self.gateway, 1),
            peers[form],
            *(partial(asked, at) for at in (self.gateway, self.behind_one, self.behind_both)),
        ]
        runs = [[side() for side in sides] for _ in range((1 if quick else RUNS) + 1)][1:]  # the first one warms up
        one, other, many, behind_one, behind_both = map(statistics.median, zip(*runs, strict=True))
        name, unit = f"{form}, {what}", "records/s"
        return [
            Row(name, one, unit, other, peer, goal),
            Row(f"{name}, {CLIENTS} clients", many, unit, one, "one client", "≥ 0.9x"),
            Row(f"{name}, two behind nginx", behind_both, unit, behind_one, "one behind nginx", "≥ 1.6x"),
        ]


def _walked(address: str, topic: str, below: int, media_type: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield consecutive calls of 4 MiB without their size, with the answer and where the next call begins."""
    headers = {"accept": media_type, "accept-encoding": "identity"}
    offset = 0
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        for _ in range(PLACES):
            if offset < below:
                path = f"/v1/topics/{topic}/partitions/0/records?tier=remote&offset={offset}"
                answer = client.get(f"{path}&max_bytes={PAGE_BYTES}").raise_for_status()
                offset = int(answer.headers["x-next-offset"])
                yield path, answer.content, offset


def _like_no_other(paths: Sequence[str]) -> Iterator[str]:
    """Yield the calls again and again, each round for one byte more."""
    return (f"{path}&max_bytes={most}" for most in count(PAGE_BYTES) for path in paths)


def _decoded(log: Log, topic: str, end: int, seconds: float, use: Callable[[pa.RecordBatch], object]) -> float:
    """Return how many records a second the peer reads and gives to ``use``."""
    records, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        for batch in log.topic(topic).read(end=end):
            use(batch)
            records += batch.num_rows
    return records / took


@contextmanager
def gateway_of(settings: Path, *options: str) -> Iterator[str]:
    """Start a gateway and yield its address. ``options``: ``section.key=value``."""
    command = [sys.executable, "-m", "tierstate.cli.main", "gateway", "--listen", "127.0.0.1:0", "--json"]
    command += ["--config", str(settings), *(part for option in options for part in ("--set", option))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()


def dump_each(batch: pa.RecordBatch) -> None:
    """Make a line of JSON of each record by orjson. Bytes that are not UTF-8 become U+FFFD, as in ours."""
    names = [*RECORD_SCHEMA.names, "tier"]
    times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    columns = {name: batch.column(name).to_pylist() for name in names[:-1] if name != "timestamp"}
    columns |= {name: [data.decode(errors="replace") for data in columns[name]] for name in ("key", "value")}
    columns |= {"timestamp": times, "tier": ["remote"] * batch.num_rows}
    for row in zip(*(columns[name] for name in names), strict=True):
        orjson.dumps(dict(zip(names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE)
