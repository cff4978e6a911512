"""Whether a table is its log: every row of every partition, beside the record that has its offset.

Memory: `WINDOW_BYTES` of log, decoded twice. The place says which rows there must be, whoever wrote the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from ..log.record_block import record_schema
from ..log.record_digest import RecordDigest
from ..state.errors import InvalidRequest
from ..state.offsets import Offset
from .kept import Keep
from .table import LakeTable
from .table_files import between, rows_between
from .table_follow import no_lease
from .table_log import TopicLog
from .table_place import Reach

WINDOW_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class TableFinding:
    """What is not as it must be. ``offset``: the first one of which it is said."""

    partition: int | None
    problem: str
    offset: int | None = None


@dataclass
class CheckedPartition:
    """Offsets ``[start, end)`` were compared. ``digest``: the record digest of both; empty where they differ, and
    where the table lacks columns of it. ``older``: rows below the log start: nothing is left to compare them with.
    """

    partition: int
    start: Offset
    end: Offset
    rows: int = 0
    digest: str = ""
    older: int = 0


@dataclass
class CheckedTable:
    partitions: list[CheckedPartition] = field(default_factory=list)
    findings: list[TableFinding] = field(default_factory=list)


def check_table(
    table: LakeTable, log: TopicLog, window_bytes: int = WINDOW_BYTES, keep: Keep = no_lease
) -> CheckedTable:
    """Of the newest snapshot. Raises what reading does, and InvalidRequest for a topic that was made anew."""
    if log.topic_id() != table.facts.topic_id:
        raise InvalidRequest(
            "the topic was made anew; nothing is left to hold the table against",
            table=table.name,
            topic=table.facts.topic,
        )
    found = CheckedTable()
    for number, reach in sorted(table.place().partitions.items()):
        found.partitions.append(_check_partition(table, log, number, reach, window_bytes, keep, found.findings))
    named = sum(each.rows + each.older for each in found.partitions)
    if (total := table.count()) != named and not found.findings:
        found.findings.append(TableFinding(None, f"{total - named} rows are outside of what the table's place says"))
    return found


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
    done = CheckedPartition(number, start, max(start, reach.end))
    if reach.start < start:
        done.older = table.count(between(number, reach.start, start))
    if log_end < reach.end:
        problem = f"the log ends at {log_end}, and the table has rows up to {reach.end}"
        findings.append(TableFinding(number, problem, log_end))
        done.end = max(start, log_end)
    keep({number: (start, done.end)})
    digest, alike = RecordDigest(), True
    for first, last, records in _windows(log, number, start, done.end, window_bytes):
        rows = rows_between(table, number, first, last)
        done.rows += rows.num_rows
        if (problem_at := _difference(table, rows, records)) is not None:
            findings.append(TableFinding(number, *problem_at))
            alike = False
        for batch in records.to_batches():
            digest.update(batch)
    if alike and set(table.facts.columns) == set(record_schema().names):
        done.digest = digest.hexdigest()
    return done


def _windows(
    log: TopicLog, number: int, start: Offset, end: Offset, window_bytes: int
) -> Iterator[tuple[Offset, Offset, pa.Table]]:
    """Ranges that follow each other, and the log's records in them."""
    if start >= end:
        return
    for split in log.splits(number, start, end, window_bytes):
        with closing(log.read(split)) as batches:
            yield split.start, split.end, pa.Table.from_batches(list(batches), record_schema())


def _difference(table: LakeTable, rows: pa.Table, records: pa.Table) -> tuple[str, int | None] | None:
    """What is wrong with the rows of a window, and the offset of the first one."""
    have, want = rows.column("offset").combine_chunks(), records.column("offset").combine_chunks()
    if not have.equals(want):
        if len(lacking := _not_in(want, have)):
            return f"{len(lacking)} records of the log are no rows", lacking[0].as_py()
        if len(strange := _not_in(have, want)):
            return f"{len(strange)} rows are no records of the log", strange[0].as_py()
        counts = pc.value_counts(have)
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        return f"{len(have) - len(want)} rows are there again", twice[0].as_py()
    for name in table.facts.columns:
        if not rows.column(name).combine_chunks().equals(records.column(name).combine_chunks()):
            unlike = next(at for at in range(len(want)) if not rows.column(name)[at].equals(records.column(name)[at]))
            return f"the column {name} is not the log's", want[unlike].as_py()
    return None


def _not_in(these: pa.Array, those: pa.Array) -> pa.Array:
    return these.filter(pc.invert(pc.is_in(these, value_set=those)))
