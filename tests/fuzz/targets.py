"""Targets of fuzzing: everything that reads bytes from a broker's disk or from a bucket.

A target takes bytes and returns nothing: it reads all of them, or raises a `TierstateError` that names the place. Any
other error, also a `MemoryError`, is a fault.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson
import zstandard

from tests.fuzz.mutate import EXTREMES, batch_put_right, mutated
from tests.log.batches import CASES as GOLDEN_CASES
from tests.log.batches import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Batch,
    blocks_of,
    golden_folder,
    header_batch,
    plain_batch,
    record,
)
from tests.log.codec_cases import CASES as CODEC_CASES
from tierstate.log.batch import iter_batches
from tierstate.log.compression import MAX_RECORDS_BYTES, decompress
from tierstate.log.decode import decode_batches
from tierstate.log.folder import open_log
from tierstate.log.indexes import offset_index_entries, time_index_entries
from tierstate.log.partition import parse_epoch_checkpoint, parse_topic_id
from tierstate.log.transaction_index import parse_producer_snapshot, parse_transaction_index
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import TierstateError
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.manifest_json import parse_manifest
from tierstate.storage.segment.reader import SegmentReader

MIB = 1 << 20
NAME = "the-file"
DATA = Path(__file__).parents[1] / "data"
WHOLE_BYTES = 20_000
"""The part of a golden log that is a seed: enough for several batches of each codec."""


@dataclass(frozen=True)
class Target:
    """``room``: how much memory, in bytes, one input may take in addition to what the process has already."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Random, Path], None]
    room: int
    deep: Callable[[list[bytes], Random], bytes] | None = None
    """Faults that get past the checks which refuse most faults."""

    def case(self, seeds: list[bytes], random: Random) -> bytes:
        if self.deep is not None and random.random() < 0.6:
            return self.deep(seeds, random)
        return mutated(random.choice(seeds), random, seeds)


@contextmanager
def naming(*names: str) -> Iterator[None]:
    """Check that an error within the block says where: it must contain one of these names."""
    try:
        yield
    except TierstateError as error:
        if not any(name in str(error) for name in names):
            raise AssertionError(f"it does not say where ({', '.join(names)}): {error}") from error
        raise


def read_batches(data: bytes, random: Random, folder: Path) -> None:
    verify = random.random() < 0.5
    with naming(NAME):
        for _ in iter_batches(data, source=NAME, verify_crc=verify):
            pass
        for rows in decode_batches(data, source=NAME, topic="t", partition=0, verify_crc=verify):
            rows.validate(full=True)


def batch_with_its_crc(seeds: list[bytes], random: Random) -> bytes:
    return batch_put_right(mutated(random.choice(seeds), random, seeds))


def batches() -> list[bytes]:
    folders = [golden_folder(case) for case in GOLDEN_CASES]
    logs = [folder.log_path(folder.base_offsets[0]).read_bytes()[:WHOLE_BYTES] for folder in folders]
    small = [plain_batch(0, count, codec) for count in (1, 20) for codec in range(5)]
    return [*filter(None, logs), *small, *(case.batch for case in CODEC_CASES), *bombs()]


def bombs() -> list[bytes]:
    """Return few bytes that claim to be many: zeros, headers, records."""
    packed = zstandard.ZstdCompressor(level=1)
    return [
        header_batch(100_000_000),
        Batch(0, (), codec=ZSTD, count=1, payload=packed.compress(bytes(600 * MIB))).bytes,
        Batch(0, (), codec=GZIP, count=2**31 - 1, payload=gzip.compress(bytes(64 * MIB), 1)).bytes,
        Batch(0, [record(0, b"k", b"v")], count=2**31 - 1, delta=2**31 - 2).bytes,
    ]


def read_packed(data: bytes, random: Random, folder: Path) -> None:
    codec = data[0] % 5 if data else 0
    with naming(NAME):
        decompress(codec, data[1:], source=NAME, position=0, limit=MAX_RECORDS_BYTES)


def packed() -> list[bytes]:
    codecs = (GZIP, SNAPPY, LZ4, ZSTD)
    cases = [bytes([case.codec]) + case.payload for case in CODEC_CASES]
    return cases + [bytes([codec]) + plain_batch(0, 200, codec)[61:] for codec in codecs]


def read_manifest(data: bytes, random: Random, folder: Path) -> None:
    """Read a manifest, and the chunks of a segment that it describes."""
    with naming(NAME):
        reader = SegmentReader(MemoryStore(), NAME, parse_manifest(data, source=NAME), keys=KEYS)
        reader.chunks_of(0, reader.plain_bytes)


def json_with_another_value(seeds: list[bytes], random: Random) -> bytes:
    document = orjson.loads(random.choice(seeds))
    places = list(_places(document))
    for _ in range(random.choice([1, 1, 2])):
        parent, name = random.choice(places)
        parent[name] = random.choice([*VALUES, random.choice(places)[0]])
    try:
        return orjson.dumps(document)
    except TypeError:  # it holds itself, or a number too long for JSON
        return b"{}"


VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    "a",
    "AA==",
    [],
    {},
    1.5,
    *(number for number in EXTREMES if -(2**63) <= number < 2**64),
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, name
        yield from _places(value[name])


def manifests() -> list[bytes]:
    files = [file.read_bytes() for file in DATA.rglob("*.rsm-manifest")]
    claims = orjson.loads(files[0])
    bombs = []
    for size in (2**31 - 1, 2**62):
        start = {"originalChunkSize": 1, "originalFileSize": size}
        claims["chunkIndex"] = {"type": "fixed", **start, "transformedChunkSize": 1, "finalTransformedChunkSize": 1}
        bombs.append(orjson.dumps(claims))
    return [*files, *bombs]


FILES: tuple[tuple[str, Callable[[bytes, str], object]], ...] = (
    ("*.index", lambda data, name: list(offset_index_entries(data, 0, name))),
    ("*.timeindex", lambda data, name: list(time_index_entries(data, 0, name))),
    ("*.txnindex", parse_transaction_index),
    ("*.snapshot", parse_producer_snapshot),
    ("leader-epoch-checkpoint", parse_epoch_checkpoint),
    ("partition.metadata", parse_topic_id),
)


def read_small_file(data: bytes, random: Random, folder: Path) -> None:
    for _, parse in FILES:
        with suppress(TierstateError), naming(NAME):
            parse(data, NAME)


def small_files() -> list[bytes]:
    contents = {file.read_bytes()[:2000] for pattern, _ in FILES for file in DATA.rglob(pattern)}
    return sorted(filter(None, contents))


def read_fact(data: bytes, random: Random, folder: Path) -> None:
    decode_fact("t/00000000000000000000", data)


def facts() -> list[bytes]:
    text = [orjson.loads((DATA / "schemas" / name).read_bytes()) for name in ("v1.json", "v2.json")]
    return [bytes.fromhex(value) for value in _hex_strings(text)]


def _hex_strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _hex_strings(item)
    elif isinstance(value, str) and value.startswith("c301") and len(value) % 2 == 0:
        yield value


def read_folder(data: bytes, random: Random, folder: Path) -> None:
    """Read a partition's folder, one file of which is wrong; ``data`` decides which, and how."""
    chance = Random(data)
    golden = chance.choice(GOLDEN_CASES)
    place = folder / golden
    if not place.exists():
        shutil.copytree(golden_folder(golden).path, place / "topic-0")
    files = sorted(file for file in (place / "topic-0").iterdir() if file.stat().st_size)
    file = chance.choice(files)
    right = file.read_bytes()
    file.write_bytes(mutated(right, chance, [right]))
    try:
        with naming(str(place), file.name):
            log = open_log(place / "topic-0")
            for committed in (False, True):
                for _ in blocks_of(log, committed=committed):
                    pass
            for _ in log.batches():
                pass
    finally:
        file.write_bytes(right)


def read_segment(data: bytes, random: Random, folder: Path) -> None:
    """Read a copied segment, one object of which is wrong; ``data`` decides which, and how."""
    chance = Random(data)
    manifest = chance.choice(sorted(DATA.rglob("*.rsm-manifest")))
    base = manifest.stem
    kinds = {kind: manifest.with_name(object_key(base, kind)) for kind in ObjectKind}
    objects = {kind: file.read_bytes() for kind, file in kinds.items() if file.exists()}
    wrong = chance.choice(sorted(objects))
    objects[wrong] = mutated(objects[wrong], chance, list(objects.values()))
    store = MemoryStore()
    for kind, stored in objects.items():
        store.put_if_absent(object_key(base, kind), stored)
    with naming(base):
        reader = SegmentReader.open(store, base, keys=KEYS)
        for index in IndexKind:
            reader.indexes(index)
        for _ in iter_batches(b"".join(reader.read_log()), source=base):
            pass


KEYS = KeyRing.load(DATA / "aiven-kafka" / "keyring.toml")


def numbers() -> list[bytes]:
    return [number.to_bytes(8, "big") for number in range(64)]


TARGETS = {
    "batches": Target(batches, read_batches, MAX_RECORDS_BYTES + 256 * MIB, batch_with_its_crc),
    "packed": Target(packed, read_packed, MAX_RECORDS_BYTES + 128 * MIB),
    "manifest": Target(manifests, read_manifest, 512 * MIB, json_with_another_value),
    "files": Target(small_files, read_small_file, 128 * MIB),
    "fact": Target(facts, read_fact, 128 * MIB),
    "folder": Target(numbers, read_folder, MAX_RECORDS_BYTES + 256 * MIB),
    "segment": Target(numbers, read_segment, MAX_RECORDS_BYTES + 256 * MIB),
}
