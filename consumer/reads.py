"""What `Topic.read` gives: settled offsets, and their records as an Arrow stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

from ..app.positions import AtOffset, AtTime, Earliest, Latest, Position, offset_of, parse_time
from ..state.errors import InvalidRequest, TierstateError
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier

if TYPE_CHECKING:
    import pyarrow as pa

    from ..fetch.source import RecordSource
    from .connect import Log

When = int | str | datetime
"""An offset; earliest, latest or a time as text; a time."""


class Read:
    """Records of settled offset ranges. Every iteration, table or stream reads them anew, and they are the same.

    ``ranges``: by partition, ``(start, end)``, end exclusive. There is no length: offsets of markers and of aborted or
    compacted records hold none, so how many there are is known once they are read.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        ranges: Mapping[int, tuple[Offset, Offset]],
        columns: list[str] | None,
        limit: int | None,
        isolation: Isolation,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._log, self.topic, self.ranges = log, topic, dict(ranges)
        self._columns, self._limit, self._isolation, self._progress = columns, limit, isolation, progress

    def __repr__(self) -> str:
        shown = ", ".join(f"{number}: {start}..{end}" for number, (start, end) in self.ranges.items())
        limit = "" if self._limit is None else f", at most {self._limit} records"
        return f"<tierstate read of {self.topic!r}, offsets {{{shown}}}{limit}>"

    @staticmethod
    def checked_columns(columns: list[str] | None) -> list[str] | None:
        """As they are. Raises InvalidRequest for one that there is not, or twice, or none at all."""
        from ..log.record_columns import record_schema

        known = record_schema().names
        wrong = [name for name in columns or [] if name not in known]
        if columns is not None and (wrong or not columns or len(set(columns)) != len(columns)):
            raise InvalidRequest(f"columns are of {', '.join(known)}, each once", columns=columns)
        return columns

    @property
    def schema(self) -> pa.Schema:
        """Of the columns asked for, also where there is no record."""
        import pyarrow as pa

        from ..log.record_columns import RECORD_SCHEMA as WHOLE

        return WHOLE if self._columns is None else pa.schema([WHOLE.field(name) for name in self._columns])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Batch by batch, partition by partition, offsets ascending; memory of a few pieces.

        Raises LogGap, OffsetOutOfRange, CorruptData, AccessDenied, Unavailable: a short answer is never an answer.
        The error of a partition comes after the records of all others.
        """
        left, done = self._limit, 0
        failed: TierstateError | None = None
        total = sum(end - start for start, end in self.ranges.values())
        source: RecordSource = self._log.source(self.topic, self.ranges)
        made = self._columns
        if made is not None and self._progress is not None and "offset" not in made:
            made = [*made, "offset"]
        for partition, (start, end) in self.ranges.items():
            if left == 0:
                return
            if start < end:
                extent = Extent(start, end)
                pieces = source.records(self.topic, partition, extent, self._isolation, Tier.AUTO, columns=made)
                self._log.closes(pieces)
                try:
                    # closed here and now, whoever leaves and however: nothing reads ahead for nobody
                    with closing(pieces):
                        for batch, _ in pieces:
                            if batch.num_rows == 0:
                                continue
                            taken = batch if left is None else batch.slice(0, left)
                            yield taken if made == self._columns else taken.select(self._columns)
                            if left is not None:
                                left -= taken.num_rows
                                if left == 0:
                                    return
                            if self._progress is not None:
                                self._progress(done + batch.column("offset")[-1].as_py() + 1 - start, total)
                except TierstateError as error:
                    failed = failed or error
            self._log.opened()  # closed meanwhile: what came is not all
            done += end - start
            if self._progress is not None:
                self._progress(done, total)
        if failed is not None:
            raise failed

    def to_table(self) -> pa.Table:
        """All of it in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule interface: ``pyarrow.table(read)``, ``polars.DataFrame(read)``, DuckDB's ``FROM read``."""
        import pyarrow as pa

        stream = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return stream.__arrow_c_stream__(requested_schema)


def position_of(argument: str, given: When, now: TimestampMs) -> Position:
    """What a start or an end means. Raises InvalidRequest that names the argument."""
    if isinstance(given, datetime):
        return AtTime(parse_time(given.isoformat(), now))
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**63:
        return AtOffset(Offset(given))
    if given == "earliest":
        return Earliest()
    if given == "latest":
        return Latest()
    # digits alone are refused: "17" may be meant as an offset, and would be read as a time
    if isinstance(given, str) and not given.isdigit():
        try:
            return AtTime(parse_time(given.removeprefix("@"), now))
        except InvalidRequest:
            pass
    meant = "earliest, latest, an offset as a number, a datetime, ISO 8601 text, or -1h"
    raise InvalidRequest(f"{argument} is none of: {meant}", **{argument: repr(given)})


def range_of(
    source: RecordSource,
    place: tuple[str, int],
    start: When | Mapping[int, When],
    end: When | Mapping[int, When],
    how: tuple[Isolation, TimestampMs],
) -> tuple[Offset, Offset]:
    """Offsets ``[start, end)`` of one partition, now. Raises InvalidRequest, OffsetOutOfRange."""
    topic, partition = place
    isolation, now = how
    found = []
    for argument, given in (("start", start), ("end", end)):
        one = given[partition] if isinstance(given, Mapping) else given
        found.append(offset_of(position_of(argument, one, now), source, topic, partition, isolation, Tier.AUTO))
    first, last = found
    if first > last:
        raise InvalidRequest("start is above end", topic=topic, partition=partition, start=first, end=last)
    return first, last
