"""The result of `Topic.read`: fixed offset ranges, and their records as an Arrow stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ..app.opening.positions import AtOffset, Position, offset_of, parse_position, parse_time
from ..state.errors import InvalidRequest, TierstateError
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier

if TYPE_CHECKING:
    import pyarrow as pa

    from ..fetch.source import RecordSource

When = int | str | datetime
"""A position: an offset (int), ``earliest``, ``latest`` or a time as text, or a datetime."""


class OpenLog(Protocol):
    """The methods of `Log` that a `Read` calls."""

    def source(self, topic: str, partitions: Iterable[int]) -> RecordSource: ...

    def opened(self) -> object: ...

    def closes(self, read: Generator[object, None, None]) -> None: ...


class Read:
    """The records of fixed offset ranges. Every iteration, table or stream reads the same ranges again.

    ``ranges``: for each partition ``(start, end)``, end exclusive. The object has no length: markers and aborted or
    compacted records leave offsets without a record, so the number of records is unknown until they are read.
    """

    def __init__(
        self,
        log: OpenLog,
        topic: str,
        ranges: Mapping[int, tuple[Offset, Offset]],
        columns: list[str] | None,
        limit: int | None,
        isolation: Isolation,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._log, self.topic, self.ranges = log, topic, dict(ranges)
        self._columns, self._limit, self._isolation, self._progress = columns, limit, isolation, progress
        self._offsets = sum(end - start for start, end in self.ranges.values())

    def __repr__(self) -> str:
        shown = ", ".join(f"{number}: {start}..{end}" for number, (start, end) in self.ranges.items())
        limit = "" if self._limit is None else f", at most {self._limit} records"
        return f"<tierstate read of {self.topic!r}, offsets {{{shown}}}{limit}>"

    @staticmethod
    def checked_columns(columns: list[str] | None) -> list[str] | None:
        """Return ``columns``. Raises InvalidRequest for an unknown or repeated column, or for an empty list."""
        from ..log.record_columns import record_schema

        names_of_all = record_schema().names
        wrong = [name for name in columns or [] if name not in names_of_all]
        if columns is not None and (wrong or not columns or len(set(columns)) != len(columns)):
            raise InvalidRequest(f"columns are of {', '.join(names_of_all)}, each once", columns=columns)
        return columns

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the chosen columns."""
        import pyarrow as pa

        from ..log.record_columns import RECORD_SCHEMA as WHOLE

        return WHOLE if self._columns is None else pa.schema([WHOLE.field(name) for name in self._columns])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches, partition by partition, in ascending order of offsets. A few pieces are in memory at a time.

        Raises LogGap, OffsetOutOfRange, CorruptData, AccessDenied and Unavailable; a result is never truncated
        silently. The first partition's error is raised after the records of all other partitions.
        """
        return self._batches() if self._limit is None else _first(self._limit, self._batches())

    def _batches(self) -> Generator[pa.RecordBatch, None, None]:
        done = 0
        failed: TierstateError | None = None
        source = self._log.source(self.topic, self.ranges)
        for partition, (start, end) in self.ranges.items():
            try:
                if start < end:
                    yield from self._batches_of(source, partition, Extent(start, end), done)
            except TierstateError as error:
                failed = failed or error
            self._log.opened()  # raises if the log was closed during the read: the records would be incomplete
            done += end - start
            self._report(done)
        if failed is not None:
            raise failed

    def _batches_of(self, source: RecordSource, partition: int, extent: Extent, done: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition. ``done``: the number of offsets in earlier partitions."""
        columns = self._columns
        if columns is not None and self._progress is not None and "offset" not in columns:
            columns = [*columns, "offset"]
        pieces = source.records(self.topic, partition, extent, self._isolation, Tier.AUTO, columns=columns)
        self._log.closes(pieces)
        with closing(pieces):  # also if the caller stops early: an unused read must not continue to read ahead
            for batch, _ in pieces:
                if batch.num_rows == 0:
                    continue
                yield batch if columns == self._columns else batch.select(self._columns)
                if self._progress is not None:
                    self._report(done + batch.column("offset")[-1].as_py() + 1 - extent.start)

    def _report(self, done: int) -> None:
        if self._progress is not None:
            self._progress(done, self._offsets)

    def to_table(self) -> pa.Table:
        """Return all records in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow PyCapsule for ``pyarrow.table(read)``, ``polars.DataFrame(read)``, DuckDB's ``FROM read``."""
        import pyarrow as pa

        stream = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return stream.__arrow_c_stream__(requested_schema)


def _first(limit: int, batches: Generator[pa.RecordBatch, None, None]) -> Iterator[pa.RecordBatch]:
    """Yield the first ``limit`` records of the batches."""
    with closing(batches):
        while limit and (batch := next(batches, None)) is not None:
            taken = batch.slice(0, limit)
            limit -= taken.num_rows
            yield taken


def time_of(argument: str, value: datetime | str | int, now: TimestampMs) -> TimestampMs:
    """Return ``value`` as a time: a datetime, milliseconds, or a text for `parse_time`. Raises InvalidRequest."""
    try:
        return parse_time(value.isoformat() if isinstance(value, datetime) else str(value), now)
    except InvalidRequest:
        meant = "a datetime, ISO 8601 text, milliseconds since the epoch, or -3d"
        raise InvalidRequest(f"{argument} is {meant}", **{argument: repr(value)}) from None


def position_of(argument: str, value: When, now: TimestampMs) -> Position:
    """Return the position for a start or an end. Raises InvalidRequest, which names the argument."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return AtOffset(Offset(value))
    text = value.isoformat() if isinstance(value, datetime) else value
    # numbers as text are refused: "17" may be meant as an offset or as a time
    if isinstance(text, str) and not text.removeprefix("-").isdigit():
        with suppress(InvalidRequest):
            return parse_position(text, now)
    meant = "earliest, latest, an offset as a number, a datetime, ISO 8601 text, or -1h"
    raise InvalidRequest(f"{argument} is none of: {meant}", **{argument: repr(value)})


def range_of(
    source: RecordSource,
    place: tuple[str, int],
    start: When | Mapping[int, When],
    end: When | Mapping[int, When],
    how: tuple[Isolation, TimestampMs],
) -> tuple[Offset, Offset]:
    """Return the offsets ``[start, end)`` of one partition as of now. Raises InvalidRequest, OffsetOutOfRange."""
    topic, partition = place
    isolation, now = how
    ends = []
    for argument, positions in (("start", start), ("end", end)):
        position = positions[partition] if isinstance(positions, Mapping) else positions
        ends.append(offset_of(position_of(argument, position, now), source, topic, partition, isolation, Tier.AUTO))
    first, last = ends
    if first > last:
        raise InvalidRequest("start is above end", topic=topic, partition=partition, start=first, end=last)
    return first, last
