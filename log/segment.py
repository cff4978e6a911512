"""Name the files of one log segment, and read its log in pieces of bounded size, never the complete file at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ..state.epochs import LeaderEpoch
from ..state.errors import CorruptData
from ..state.offsets import Offset
from .batch import HEADER_BYTES, BatchHeader, batch_bytes, iter_batches
from .indexes import offset_index_entries, position_in
from .quiet_reader import QuietReader

READ_BYTES = 4 << 20
HEADERS_READ_BYTES = 64 * 1024
"""Bytes per read when only one batch's header is needed: an offset index has an entry every 4 KiB by default."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A ``<base offset>.log`` file and the files next to it, which may be missing. ``active``: the broker may still
    append to the log."""

    path: Path
    active: bool = False

    @property
    def base_offset(self) -> Offset:
        return Offset(int(self.path.stem))

    @property
    def offset_index(self) -> Path:
        return self.path.with_suffix(".index")

    @property
    def transaction_index(self) -> Path:
        return self.path.with_suffix(".txnindex")

    @property
    def producer_snapshot(self) -> Path:
        """The producers' state at this segment's base offset. Kafka copies a segment with the *next* one's snapshot."""
        return self.path.with_suffix(".snapshot")

    def batches(self, *, verify_crc: bool = True) -> Iterator[BatchHeader]:
        """Yield every batch header, including those of control batches. Raises CorruptData."""
        for position, data in self.pieces():
            yield from iter_batches(data, source=str(self.path), position=position, verify_crc=verify_crc)

    def next_offset(self) -> Offset:
        """Return the offset after the last complete batch. Reads the log from the offset index's last entry on.

        Raises CorruptData, and FileNotFoundError if one of the two files is missing.
        """
        index = self.offset_index.read_bytes()
        entries = deque(offset_index_entries(index, self.base_offset, str(self.offset_index)), maxlen=1)
        following = self.base_offset
        for position, data in self.pieces(position=entries[0].position if entries else 0):
            for batch in iter_batches(data, source=str(self.path), position=position, verify_crc=False):
                following = Offset(batch.last_offset + 1)
        return following

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """Return the leader epoch in the header of the batch at ``offset``, or of the next one; -1 if none is legible.

        Raises FileNotFoundError if the log is missing.
        """
        with suppress(CorruptData):
            index = self.offset_index.read_bytes() if self.offset_index.exists() else b""
            begin = position_in(index, self.base_offset, offset)
            for position, data in self.pieces(HEADERS_READ_BYTES, begin):
                for batch in iter_batches(data, source=str(self.path), position=position, verify_crc=False):
                    if batch.last_offset >= offset:
                        return LeaderEpoch(batch.partition_leader_epoch)
        return LeaderEpoch(-1)

    def pieces(
        self, piece_bytes: int = READ_BYTES, position: int = 0, size: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (byte position, complete batches) with up to ``piece_bytes`` each, or one larger batch.

        ``position``: the byte position of the first batch to read. ``size``: bytes of the log; None: the whole file.

        Preallocated zeros in an active segment's file are not data. If the file ends inside a batch, all complete
        batches are yielded, then CorruptData is raised. Offsets that do not increase also raise CorruptData. The file
        is read by a `QuietReader`, because the broker may be running.
        """
        with self.path.open("rb") as file:
            size, last = os.fstat(file.fileno()).st_size if size is None else size, -1
            with closing(QuietReader(file.fileno(), size, str(self.path))) as reader:
                while position < size:
                    data = _piece(reader, position, min(piece_bytes, size - position), size)
                    end = 0
                    for batch in iter_batches(
                        data,
                        source=str(self.path),
                        position=position,
                        verify_crc=False,
                        partial_tail_ok=True,
                        after=last,
                    ):
                        end, last = batch.position - position + batch.size_bytes, batch.last_offset
                    reader.drop(position + end)
                    if end:
                        yield position, data[:end]
                    elif self.active and _zeros(reader, position, size):
                        return
                    else:
                        raise CorruptData(
                            "log ends inside a batch", file=self.path, position=position, bytes=size - position
                        )
                    position += end


def _piece(reader: QuietReader, position: int, length: int, size: int) -> bytes:
    """Return ``length`` bytes, or the complete first batch if it is larger and the file holds all of it."""
    data = reader.read(max(length, min(HEADER_BYTES, size - position)), position)
    first = batch_bytes(data)
    if first is not None and len(data) < first <= size - position:
        data += reader.read(first - len(data), position + len(data))
    return data


def _zeros(reader: QuietReader, position: int, size: int) -> bool:
    """Return whether the rest of the file is only zeros."""
    while position < size and (data := reader.read(min(READ_BYTES, size - position), position)):
        if data.count(0) != len(data):
            return False
        position += len(data)
    return True
