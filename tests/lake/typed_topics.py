"""Topics whose keys and values mean something, as a broker's folder: JSON here, written by schemas that grow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.log.batches import TIME, ZSTD, Batch, record

Pair = tuple[bytes | None, bytes | None]
"""Key and value."""
HOURS = 5
"""Between two batches: a topic of some days."""


def folder_of(path: Path, pairs: Sequence[Pair], *, a_batch: int = 5, a_segment: int = 8) -> Path:
    """``a_batch`` records, ``a_segment`` batches. Every third record has headers, one name twice."""
    path.mkdir(parents=True)
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for first in range(0, len(pairs), a_batch * a_segment):
        batches = []
        for base in range(first, min(first + a_batch * a_segment, len(pairs)), a_batch):
            records = [
                record(at, key, value, [(b"a", b"1"), (b"b", None), (b"a", b"2")] if (base + at) % 3 == 0 else ())
                for at, (key, value) in enumerate(pairs[base : base + a_batch])
            ]
            batches.append(Batch(base, records, ZSTD, time=TIME + base // a_batch * HOURS * 3_600_000).bytes)
        (path / f"{first:020d}.log").write_bytes(b"".join(batches))
    return path


DDL = (
    "id int, name string",
    "id int, name string, price double",
    "id bigint, name string, price double, tags array<string>",
)
"""Of writers, each younger than the one before."""
POISON = (b"", b"null", b"[]", b"{", b'{"id": "x"}', b'{"id": 1} 2', b"\xff\xfe", b'{"name": 7, "id": [1]}')


def json_topic(count: int, random: Random, *, poison: bool = True) -> list[Pair]:
    """Objects whose writers' schemas grow as in `DDL`; now and then nothing, and what is none."""
    found: list[Pair] = []
    for at in range(count):
        written = at * len(DDL) // count
        value = {"id": at if written < 2 else at + 2**40, "name": random.choice(["ä", "bob", None]), "price": at / 8}
        if written < 1:
            del value["price"]
        if written > 1:
            value["tags"] = random.choice([[], None, ["x", None]])
        kind = random.random()
        if poison and kind < 0.1:
            found.append((b"%d" % at, random.choice(POISON)))
        else:
            found.append((b"%d" % at, None if kind < 0.2 else json.dumps(value).encode()))
    return found
