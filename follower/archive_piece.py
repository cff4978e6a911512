"""One piece of the archive: every record of a range of positions, as the tier-state topic had them.

A header (`envelope.py`) is followed by a zstd frame of entries: position int64, timestamp int64 (ms), key length
uint32, value length int32 (-1 for a tombstone), key, value; big endian. A piece never crosses a border of `WINDOW`
positions. It names the SHA-256 of the whole previous object, so pieces form a chain.

A piece covers the positions ``first`` to ``last`` (inclusive). If it has fewer entries than positions, some records
were compacted away before the topic was read. `Piece.holes` counts them: such a piece is not exact history.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from dataclasses import dataclass

import zstandard

from ..state.errors import CorruptData, InvalidRequest
from ..state.offsets import Position, TimestampMs
from ..state.view import Anchor, Entry
from .envelope import HEAD_BYTES, seal, unseal
from .object_names import PieceName, TierPlace
from .rocksdb_view import ViewIdentity

KIND = "archive"
WINDOW = 10_000
MAX_PLAIN_BYTES = 16 * 1024 * 1024
"""A piece ends before its window does if its entries reach this size uncompressed, because they are in memory."""
NO_PREVIOUS = "0" * 64
_ENTRY = struct.Struct(">qqIi")


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """A record and its append time by the broker's clock (ms; -1 if unknown)."""

    entry: Entry
    timestamp: TimestampMs

    @property
    def position(self) -> Position:
        return self.entry.position

    @property
    def anchor(self) -> Anchor:
        return Anchor.of(self.entry.position, self.timestamp, self.entry.key, self.entry.value)

    @property
    def size(self) -> int:
        """The size in bytes in the body of a piece, before compression."""
        return _ENTRY.size + len(self.entry.key.encode()) + len(self.entry.value or b"")


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of a piece to be written. ``epoch``: leader epoch of the last record read, or -1 if unknown.

    ``full``: nothing can be added, because the next record is in another window or the maximum size is reached.
    """

    first: Position
    last: Position
    entries: tuple[ArchivedEntry, ...]
    epoch: int
    full: bool


@dataclass(frozen=True, slots=True)
class PieceHeader:
    """``previous``: SHA-256 (hex) of the previous object, which covers ``previous_first`` to ``first`` - 1.

    The archive's first piece has `NO_PREVIOUS` and -1. ``anchor_…``: anchor of the last record in or before the piece;
    -1 and "" if unknown.
    """

    cluster_id: str
    topic_id: str
    partitions: int
    tier_partition: int
    first: Position
    last: Position
    entries: int
    oldest_timestamp: TimestampMs
    newest_timestamp: TimestampMs
    epoch: int
    previous: str
    previous_first: int
    plain_bytes: int
    body_bytes: int
    body_sha256: str
    history: int = 0
    anchor_position: int = -1
    anchor_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that was read and verified. ``sha256`` (hex) covers the whole object; the next piece must name it."""

    name: PieceName
    header: PieceHeader
    entries: tuple[ArchivedEntry, ...]
    sha256: str

    @property
    def holes(self) -> int:
        """The number of positions without a record."""
        return self.header.last - self.header.first + 1 - len(self.entries)

    @property
    def anchor(self) -> Anchor | None:
        """The anchor of the last record in the piece, or before it if the piece has no records; None if unknown."""
        return self.entries[-1].anchor if self.entries else anchor_in(self.header)

    def require_of(self, identity: ViewIdentity) -> None:
        """Raise InvalidRequest if another cluster or mapping wrote the piece."""
        if (self.header.cluster_id, self.header.partitions) != (identity.cluster_id, identity.partitions):
            raise InvalidRequest("the archive is of another cluster or mapping", file=self.name.key)


def border_after(position: int) -> Position:
    """Return the first position after the window of ``position``."""
    return Position((position // WINDOW + 1) * WINDOW)


def encode_piece(identity: ViewIdentity, tier_partition: int, draft: Draft, previous: Piece | None) -> bytes:
    """Return the bytes of the object. Raises InvalidRequest if the draft's range or entries are invalid."""
    first, last, entries = draft.first, draft.last, draft.entries
    positions = [each.position for each in entries]
    ascending = all(one < two for one, two in itertools.pairwise(positions))
    inside = not positions or first <= positions[0] <= positions[-1] <= last
    if not (0 <= first <= last < border_after(first) and ascending and inside):
        raise InvalidRequest("not a piece of the archive", first=first, last=last, entries=len(entries))
    plain = b"".join(_encode(each) for each in entries)
    body = zstandard.ZstdCompressor(level=3).compress(plain)
    times = [each.timestamp for each in entries]
    anchor = entries[-1].anchor if entries else previous.anchor if previous else None
    header = PieceHeader(
        identity.cluster_id,
        identity.topic_id,
        identity.partitions,
        tier_partition,
        first,
        last,
        len(entries),
        min(times, default=TimestampMs(-1)),
        max(times, default=TimestampMs(-1)),
        draft.epoch,
        previous.sha256 if previous else NO_PREVIOUS,
        previous.header.first if previous else -1,
        len(plain),
        len(body),
        hashlib.sha256(body).hexdigest(),
        identity.history,
        anchor.position if anchor else -1,
        anchor.sha256 if anchor else "",
    )
    return seal(KIND, header) + body


def anchor_in(header: PieceHeader) -> Anchor | None:
    """Return a header's anchor. None in the first format, and if no record was ever archived."""
    return Anchor(Position(header.anchor_position), header.anchor_sha256) if header.anchor_position >= 0 else None


def _encode(each: ArchivedEntry) -> bytes:
    key, value = each.entry.key.encode(), each.entry.value
    length = -1 if value is None else len(value)
    return _ENTRY.pack(each.position, each.timestamp, len(key), length) + key + (value or b"")


def decode_header(data: bytes, place: TierPlace, name: PieceName) -> tuple[PieceHeader, int]:
    """Return the header, and the body's offset in bytes. Raises CorruptData if the header does not match ``name``."""
    header, start = unseal(data[:HEAD_BYTES], KIND, PieceHeader, source=name.key)
    if (TierPlace(header.topic_id, header.tier_partition, header.history), header.first, header.last) != (
        place,
        name.first,
        name.last,
    ):
        raise CorruptData(
            "piece of the archive stands under another's name",
            file=name.key,
            position=name.first,
            is_=TierPlace(header.topic_id, header.tier_partition, header.history).piece(header.first, header.last),
        )
    if header.last >= border_after(header.first):
        raise CorruptData("piece of the archive crosses a window's border", file=name.key, position=name.first)
    return header, start


def decode_piece(data: bytes, place: TierPlace, name: PieceName) -> Piece:
    """Return the whole piece, verified. Raises CorruptData naming the object, the position and the reason."""
    header, start = decode_header(data, place, name)
    body = data[start:]
    if len(body) != header.body_bytes or hashlib.sha256(body).hexdigest() != header.body_sha256:
        raise CorruptData("piece of the archive does not match its hash", file=name.key, position=name.first)
    try:
        plain = zstandard.ZstdDecompressor().decompress(body, max_output_size=header.plain_bytes)
        entries = tuple(_decode(plain))
    except (zstandard.ZstdError, struct.error, UnicodeDecodeError) as error:
        raise CorruptData(
            "piece of the archive cannot be read", file=name.key, position=name.first, reason=str(error)
        ) from error
    positions = [header.first - 1, *(each.position for each in entries), header.last + 1]
    ordered = all(one < two for one, two in itertools.pairwise(positions))
    if len(plain) != header.plain_bytes or len(entries) != header.entries or not ordered:
        raise CorruptData("piece of the archive holds other positions", file=name.key, position=name.first)
    return Piece(name, header, entries, hashlib.sha256(data).hexdigest())


def _decode(plain: bytes) -> list[ArchivedEntry]:
    entries, at = [], 0
    while at < len(plain):
        position, timestamp, key_bytes, value_bytes = _ENTRY.unpack_from(plain, at)
        at += _ENTRY.size
        key = plain[at : at + key_bytes].decode()
        at += key_bytes
        value = None if value_bytes < 0 else plain[at : at + value_bytes]
        at += max(value_bytes, 0)
        if at > len(plain):
            raise struct.error("an entry is cut off")
        entries.append(ArchivedEntry(Entry(key, position, value), timestamp))
    return entries
