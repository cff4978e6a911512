"""Compares a table with its log: every row of every partition with the record of the same offset.

Memory: `WINDOW_BYTES` of log, decoded twice. The place determines which rows must exist, for files of any writer, and
their version of the columns. Typed columns are made from the records again, with the same version.

A table that upserts must have exactly the newest records of its keys. The log is read twice, and keys are in memory.
If the topic is compacted, keys with a record after the table's end are left out: the cleaner may have removed the
record of such a row, and the table will replace the row when it reads the newer record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ..fetch.planned_split import Skipped
from ..log.record_columns import record_schema
from ..log.record_digest import RecordDigest
from ..runtime.units import counted
from ..state.errors import InvalidRequest, TierstateError
from ..state.offsets import Extent, Offset
from .columns import Columns, aligned, beyond_years, within_years
from .jobs import range_error
from .log import Keep, TopicLog, no_lease
from .proof import difference
from .table import LakeTable
from .table_files import rows_between
from .table_follow import require_tiered
from .table_place import Reach, TablePlace, Written
from .table_snapshots import ForeignSnapshot, foreign_snapshots
from .table_upsert import Newest, of_offsets, older_than_keys, without_keys

WINDOW_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class TableFinding:
    """A difference. ``offset``: the first offset that the difference affects."""

    partition: int | None
    problem: str
    offset: int | None = None


@dataclass
class CheckedPartition:
    """The result for one partition. The offsets ``[start, end)`` were compared. ``digest``: the record digest of table
    and log. It is empty if they differ, if the table lacks or types columns of the digest, or if it cannot have a
    record's time. ``corrupt``: how many of ``rows`` do not parse. ``older``: rows without a record to compare: below
    the log start, in ``skipped``, or of a key with a record behind the table. ``behind``: offsets that the log had when
    the check began, and that the table lacks. ``skipped``: accepted gaps within ``[start, end)``.
    """

    partition: int
    start: Offset
    end: Offset
    rows: int = 0
    digest: str = ""
    older: int = 0
    corrupt: int = 0
    behind: int = 0
    skipped: list[Skipped] = field(default_factory=list)


@dataclass
class CheckedTable:
    partitions: list[CheckedPartition] = field(default_factory=list)
    findings: list[TableFinding] = field(default_factory=list)
    errors: list[TierstateError] = field(default_factory=list)
    """The errors of partitions that could not be compared. Each is also a finding."""
    foreign: list[ForeignSnapshot] = field(default_factory=list)
    """What other engines committed. That alone is no finding: rows are compared, whoever wrote them."""

    @property
    def behind(self) -> int:
        """Return the number of offsets that the table lacks, in all partitions."""
        return sum(each.behind for each in self.partitions)


def check_table(
    table: LakeTable,
    log: TopicLog,
    window_bytes: int = WINDOW_BYTES,
    keep: Keep = no_lease,
    place: TablePlace | None = None,
) -> CheckedTable:
    """Check the newest snapshot. ``place``: the place to prove, instead of the table's place.

    Raises InvalidRequest if the topic was re-created or is not tiered, and errors for which `is_of_all` is true.
    """
    if log.topic_id() != table.facts.topic_id:
        raise InvalidRequest(
            "the topic was made anew; nothing is left to hold the table against",
            table=table.name,
            topic=table.facts.topic,
        )
    require_tiered(table, log)
    checked = CheckedTable(foreign=foreign_snapshots(table))
    reaches = (place or table.place()).partitions
    for number in log.numbers():
        try:
            extent = log.extent(number)
            reach = reaches.get(number, Reach(extent.start, extent.start))
            partition_checked = _check_partition(table, log, number, reach, window_bytes, keep, checked.findings)
        except TierstateError as error:
            error = range_error(error)
            checked.findings.append(TableFinding(number, f"not compared: {error}"))
            checked.errors.append(error)
            continue
        partition_checked.behind = max(0, extent.end - max(reach.end, extent.start))
        checked.partitions.append(partition_checked)
    named = sum(each.rows + each.older for each in checked.partitions)
    if (total := table.count()) != named and not checked.findings:
        checked.findings.append(
            TableFinding(None, f"{counted(total - named, 'row is', 'rows are')} outside of what the table's place says")
        )
    return checked


def _check_partition(
    table: LakeTable,
    log: TopicLog,
    number: int,
    reach: Reach,
    window_bytes: int,
    keep: Keep,
    findings: list[TableFinding],
) -> CheckedPartition:
    log_start, log_end = log.extent(number)
    start = max(reach.start, log_start)
    checked = CheckedPartition(number, start, max(start, reach.end))
    if reach.start < start:
        checked.older = table.count(table.between(number, reach.start, start))
    if log_end < reach.end:
        problem = f"the log ends at {log_end}, and the table has rows up to {reach.end}"
        findings.append(TableFinding(number, problem, log_end))
        checked.end = max(start, log_end)
    if start < checked.end:
        keep({number: Extent(start, checked.end)})
    checked.skipped = log.skipped(number, start, checked.end)
    checked.older += sum(table.count(table.between(*gap)) for gap in checked.skipped)
    digest, alike = RecordDigest(), True
    parts = reach.written(start, checked.end)
    newest = _newest(table, log, number, parts, window_bytes) if table.facts.upsert else None
    later: pa.Table | None = None
    if newest is not None and log.tombstones is not None and checked.end < log_end:
        behind = [Written(table.facts.version, checked.end, log_end)]
        later = _newest(table, log, number, behind, window_bytes).keys()
        newest.leave_out(later)
    if newest is not None and (count := older_than_keys(table, number, reach.start, start, newest.keys())):
        findings.append(
            TableFinding(number, f"{counted(count, 'row is', 'rows are')} of a key with a newer record", start)
        )
    if start < checked.end and (not parts or parts[0].start > start):
        findings.append(TableFinding(number, "the table's place does not say which columns wrote its rows", start))
        alike = False
    for part in parts:
        made_by = table.rows_by(part.version)
        for first, last, records in _windows(log, number, part, window_bytes):
            rows = rows_between(table, number, first, last)
            if later is not None:
                checked.older += rows.num_rows - (rows := without_keys(table, rows, later)).num_rows
            if newest is not None:
                records = of_offsets(records, "offset", newest.offsets)
            checked.rows += rows.num_rows
            expected = aligned(made_by.of(records), rows.select(made_by.schema.names).schema)
            if (problem_at := difference(rows, expected, table.column("offset"))) is not None:
                findings.append(TableFinding(number, *problem_at))
                alike = False
            if pc.any(beyond_years(records.column("timestamp"))).as_py():
                alike = False  # no digest can include such a time
                continue
            for batch in records.to_batches():
                digest.update(batch)
        checked.corrupt += made_by.corrupt
    if alike and table.facts.columns == Columns(tuple(record_schema().names)):
        checked.digest = digest.hexdigest()
    return checked


def _newest(table: LakeTable, log: TopicLog, number: int, parts: list[Written], window_bytes: int) -> Newest:
    """Return the newest record of each key of the log, which must be the rows of the table."""
    newest = Newest(table)
    for part in parts:
        made_by = table.rows_by(part.version)
        for _, _, records in _windows(log, number, part, window_bytes):
            newest.add(made_by, records)
    return newest


def _windows(
    log: TopicLog, number: int, written: Written, window_bytes: int
) -> Iterator[tuple[Offset, Offset, pa.Table]]:
    """Yield consecutive ranges with the log's records in them. Times that a table cannot have are replaced."""
    for split in log.planned(number, Extent(written.start, written.end)).splits(window_bytes):
        with closing(log.read(split)) as batches:
            records = pa.Table.from_batches([within_years(each) for each in batches], record_schema())
            yield split.start, split.end, records
