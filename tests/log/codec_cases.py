"""Payloads that may stand where a batch's records are packed, and the answer of Kafka's own reader to each."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from functools import partial

import cramjam
import zstandard

from tests.log.batches import GZIP, LZ4, SNAPPY, ZSTD, Batch, lz4_frame, record, xerial
from tierstate.log.batch import CODECS

RECORDS = [record(at, b"k%d" % at, b"v%d" % at * 40, time=at) for at in range(3)]
RAW = b"".join(RECORDS)
HEAD, TAIL = RAW[:100], RAW[100:]
CHECKED = bytes.fromhex("04224d186440a7")
"""The frame header of blocks with a checksum of their content."""
SIZED = bytes.fromhex("04224d186840010000000000 00002c")
"""The frame header of blocks with one byte of content."""
BLOCKS = lz4_frame(RAW)[7:]


def header(descriptor: str) -> bytes:
    """Return a frame header with a right checksum: the second byte of its xxHash, as for the checksum of a content."""
    data = bytes.fromhex(descriptor)
    return bytes.fromhex("04224d18") + data + bytes(cramjam.lz4.compress(data))[-3:-2]


SKIPPABLE = struct.pack("<II", 0x184D2A50, 5) + b"hello"
zstd = zstandard.ZstdCompressor().compress


@dataclass(frozen=True)
class Case:
    """``kafka``: whether Kafka's reader gives the three records. ``ours``: whether ours does; None means the same."""

    codec: int
    what: str
    payload: bytes
    kafka: bool
    ours: bool | None = None
    why: str = ""

    @property
    def read(self) -> bool:
        return self.kafka if self.ours is None else self.ours

    @property
    def batch(self) -> bytes:
        return Batch(0, RECORDS, self.codec, payload=self.payload).bytes

    def __str__(self) -> str:
        return f"{CODECS[self.codec]} {self.what}".replace(" ", "-")


of_gzip, of_snappy, of_lz4, of_zstd = (partial(Case, codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD))

CASES = [
    of_gzip("one member", gzip.compress(RAW), True),
    of_gzip("several members", gzip.compress(HEAD) + gzip.compress(b"") + gzip.compress(TAIL), True),
    of_gzip("zeros behind it", gzip.compress(RAW) + bytes(100), True),
    of_gzip("anything else behind it", gzip.compress(RAW) + b"anything" * 9, True),
    of_gzip("a broken member behind it", gzip.compress(RAW) + b"\x1f\x8b\x08\xff" + b"x" * 40, True),
    of_gzip("cut off", gzip.compress(RAW)[:-4], False),
    of_gzip("a zlib stream", zlib.compress(RAW), False),
    of_snappy("as it is", bytes(cramjam.snappy.compress_raw(RAW)), True),
    of_snappy("xerial's blocks", xerial(RAW), True),
    of_snappy("two xerial streams", xerial(HEAD) + xerial(TAIL), True),
    of_snappy("less than a block's length behind xerial's blocks", xerial(RAW) + b"abc", True),
    of_snappy("an empty block behind xerial's blocks", xerial(RAW) + bytes(4), False),
    of_snappy("a byte behind it", bytes(cramjam.snappy.compress_raw(RAW)) + b"x", False),
    of_snappy("the framing format of Snappy's authors", bytes(cramjam.snappy.compress(RAW)), False),
    of_lz4("one frame", lz4_frame(RAW), True),
    of_lz4("anything behind it", lz4_frame(RAW) + b"anything", True),
    of_lz4("a skippable frame behind it", lz4_frame(RAW) + SKIPPABLE, True),
    of_lz4("a skippable frame before it", SKIPPABLE + lz4_frame(RAW), False),
    of_lz4("a content checksum that is wrong", CHECKED + BLOCKS + b"\1\0\0\0", True),
    of_lz4("a content size that is wrong", SIZED + BLOCKS, True),
    of_lz4("a header checksum that is wrong", lz4_frame(RAW)[:6] + b"\x83" + BLOCKS, False),
    of_lz4("a dictionary's id in its header", header("6140 01000000") + BLOCKS, False),
    of_lz4("a reserved bit in its header", header("6041") + BLOCKS, False),
    of_lz4(
        "a block checksum that is wrong",
        header("7040") + BLOCKS[:-4] + bytes(8),
        False,
        ours=True,
        why="it was under the batch's CRC, so its producer wrote it",
    ),
    of_lz4("two frames", lz4_frame(HEAD) + lz4_frame(TAIL), False),
    of_lz4("without its end mark", lz4_frame(RAW)[:-4], False),
    of_lz4(
        "blocks that depend on each other",
        bytes(cramjam.lz4.compress(RAW)),
        False,
        ours=True,
        why="librdkafka reads them, and so may have written them",
    ),
    of_zstd("one frame", zstd(RAW), True),
    of_zstd("several frames", zstd(HEAD) + zstd(b"") + zstd(TAIL), True),
    of_zstd("skippable frames anywhere", SKIPPABLE + zstd(HEAD) + SKIPPABLE + zstd(TAIL) + SKIPPABLE, True),
    of_zstd("zeros behind it", zstd(RAW) + bytes(9), False),
    of_zstd("cut off", zstd(RAW)[:-1], False),
]


READERS = {(True, True): "both read", (False, False): "both refuse", (False, True): "only tierstate reads"}
"""Columns of the table, by whether Kafka's and tierstate's reader accept a case."""


def table() -> str:
    """Return the table of docs/formats.md: the cases of each codec, by which readers accept them."""
    lines = [f"| codec | {' | '.join(READERS.values())} |", "|---|---|---|---|"]
    for codec in dict.fromkeys(case.codec for case in CASES):
        cells: dict[tuple[bool, bool], list[str]] = {readers: [] for readers in READERS}
        for case in CASES:
            if case.codec == codec:
                cells[case.kafka, case.read].append(case.what + (f" ({case.why})" if case.why else ""))
        lines.append(f"| {CODECS[codec]} | {' | '.join('; '.join(cell) for cell in cells.values())} |")
    return "\n".join(lines)
