"""Level 3 of `verify`, in addition to the checksums: a copied segment's aborted ranges, compared with its markers.

Two objects list the ranges: the manifest, which tierstate's readers use, and Kafka's transaction index, which Kafka's
readers of the same objects use. A broker's index has no checksum. Before decision 0029, tierstate trusted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..log.batch import BatchHeader
from ..log.isolation import AbortFilter, MarkerCheck, contradiction
from ..log.transaction_index import TransactionIndexCheck, open_before
from ..state.errors import CorruptData
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import Offset
from ..state.segment import AbortedRange, RemoteSegment
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader


class CopiedMarkers:
    """The check of one segment: `add` its batches of transactions, in order, then `check`."""

    def __init__(
        self, segment: RemoteSegment, reader: SegmentReader, aborted: Sequence[AbortedRange] | None = None
    ) -> None:
        """Read the transaction index. ``aborted``: the ranges that readers hide; None: those of the manifest.

        Raises CorruptData, ObjectNotFound.
        """
        base, block = segment.offsets.start, reader.manifest.tierstate
        self._file = object_key(segment.object_key, ObjectKind.INDEXES)
        index = reader.indexes(IndexKind.TRANSACTION)
        log = object_key(segment.object_key, ObjectKind.LOG)
        self._index = TransactionIndexCheck(index, base, open_before(base, None, ""), self._file, log=log)
        if aborted is None:
            aborted = () if block is None else block.aborted
        self.manifest = MarkerCheck(AbortFilter(aborted), object_key(segment.object_key, ObjectKind.MANIFEST))
        self._wrong: CorruptData | None = None

    def add(self, batch: BatchHeader, data: bytes, position: int) -> None:
        """Check a batch, and keep the first error for `check`: only a checksum shows whether the bytes are right."""
        try:
            self._index.add(batch, data, position)
            self.manifest.add(batch, data, position)
        except CorruptData as error:
            self._wrong = self._wrong or error

    def check(self) -> None:
        """Raises CorruptData naming the object that contradicts the markers."""
        if self._wrong is not None:
            raise self._wrong
        difference = self._index.difference()
        if difference is not None:
            raise CorruptData("the transaction index contradicts the markers", file=self._file, difference=difference)


class AcrossSegments:
    """Transactions that end in a later segment than they began in: push the partition's segments in order.

    Memory: the producers whose transactions are open at a segment's end.
    """

    def __init__(self) -> None:
        self._next: Offset | None = None
        self._open: dict[int, list[tuple[RemoteSegment, Offset | None, Offset | None]]] = {}

    def push(self, segment: RemoteSegment, check: MarkerCheck | None) -> Iterator[tuple[RemoteSegment, str]]:
        """Yield earlier segments whose manifest contradicts a marker in ``segment``, and the contradiction.

        ``check`` None: ``segment`` was not read completely."""
        if check is None or segment.offsets.start != self._next:  # a marker may lie in between
            self._open.clear()
        self._next = Offset(segment.offsets.end + 1)
        if check is None:
            return
        for producer, (kind, marker) in check.first_markers.items():
            for before, shown, covered in self._open.pop(producer, ()):
                wrong = contradiction(kind, shown, covered)
                if wrong is not None:
                    yield before, f"{wrong}: producer={producer} marker={marker} segment={segment.segment_id}"
        for producer in check.shown.keys() | check.covered.keys():
            claim = segment, check.shown.get(producer), check.covered.get(producer)
            self._open.setdefault(producer, []).append(claim)
