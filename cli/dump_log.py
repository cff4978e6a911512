"""``tierstate dump-log``: decode Kafka's files, or a copied segment, without a broker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import CorruptData, InvalidRequest
from ..state.object_keys import base_of
from ..state.routing import Isolation
from .context import Context
from .exit_codes import CORRUPT, DONE, FINDING
from .flags import declare
from .reading import isolation_option

if TYPE_CHECKING:
    from ..fetch.copied_segment import CopiedSegment
    from ..log.batch import BatchHeader
    from ..log.folder import LogFiles
    from ..log.log_piece import LogPiece

MANIFEST = ".rsm-manifest"
FEW_RECORDS = 10_000
"""Number of first records that are printed without numba, because numba takes longer to load."""


@dataclass(frozen=True, slots=True)
class Dumped:
    """A log that can be printed, with its topic and partition."""

    topic: str
    partition: int
    log: LogFiles | CopiedSegment

    def batches(self) -> Iterator[BatchHeader]:
        for batch in self.log.batches():
            yield batch[1] if isinstance(batch, tuple) else batch


@declare("dump-log /var/lib/kafka/user_events-0 --json")
@click.argument("path", type=click.Path(readable=False))
@click.option("--encoding", type=click.Choice(["utf8", "base64"]), default="utf8", show_default=True, help="Of bytes.")
@isolation_option(Isolation.READ_UNCOMMITTED)
@click.option("--batches", is_flag=True, help="Batch headers, control batches too, instead of records.")
@click.option("--indexes", is_flag=True, help="Index entries instead of records.")
@click.option("--keyring", type=click.Path(path_type=Path, dir_okay=False), help="Key ring of an encrypted segment.")
def command(
    context: Context, path: str, encoding: str, isolation: str, batches: bool, indexes: bool, keyring: Path | None
) -> None:
    """Decode PATH: a partition folder, a segment (.log), or a copied segment's manifest (a file or a store's URL).

    Under read_committed, transactions that nothing here decides are hidden and named; the exit code is then 1. Markers
    decide what is aborted: a transaction index that contradicts them is named in the end, exit code 4. The code is 4,
    too, for a copied segment whose log is not the one that was copied: the first line of the output names it.
    """
    code = DONE
    with _opened(context, path, keyring) as dumped:
        if indexes:
            _print_rows(context, _index_rows(path, dumped.log))
        elif batches:
            _print_rows(context, map(_batch_row, dumped.batches()))
        else:
            committed = Isolation(isolation) is Isolation.READ_COMMITTED
            if (wrong := _another_log(dumped.log)) is not None:
                context.output.note(f"corrupt: {wrong}; what follows is what is there now")
                code = CORRUPT
            _print_records(dumped, dumped.log.pieces(committed=committed), encoding)
            code = max(code, _undecided(context, dumped.log)) if committed else code
        for file, difference in dumped.log.differences.items():
            context.output.note(f"corrupt: the transaction index {file} contradicts the markers: {difference}")
            code = CORRUPT
    if code:
        raise click.exceptions.Exit(code)


def _another_log(log: LogFiles | CopiedSegment) -> str | None:
    """Return why the log is not the segment that its manifest names, or None if no difference is found.

    A manifest of another program cannot be checked. The whole log is read, so that a dump can warn before the first
    record.
    """
    from ..log.folder import LogFiles

    block = None if isinstance(log, LogFiles) else log.reader.manifest.tierstate
    if isinstance(log, LogFiles) or block is None:
        return None
    if base_of(log.key).split("/")[-3:] != block.segment.object_key.split("/")[-3:]:  # the prefix may differ
        return f"the manifest {log.key} describes another segment, {block.segment.object_key}"
    hashed = sha256()
    try:
        for piece in log.reader.read_log():
            hashed.update(piece)
    except CorruptData:  # the dump raises this error after the intact records
        return None
    if hashed.digest() != block.segment.log_sha256:
        return f"the log is not the one that was copied: its SHA-256 is another: {log.log_key}"
    return None


def _undecided(context: Context, log: LogFiles | CopiedSegment) -> int:
    """Note each transaction that no marker in the log ends, because its records are hidden. Return the exit code."""
    for producer, first in sorted(log.undecided.items()):
        context.output.note(
            f"undecided: the transaction of producer {producer} is open from offset {first} on; "
            f"records from {log.decided_end} on are hidden"
        )
    return FINDING if log.undecided else DONE


@contextmanager
def _opened(context: Context, path: str, keyring: Path | None) -> Iterator[Dumped]:
    if not path.endswith(MANIFEST):
        from ..log.folder import open_log

        file = Path(path).absolute()
        if not file.exists():
            raise InvalidRequest("no such file or folder", path=path)
        log = open_log(file)
        yield Dumped(log.topic, log.partition, log)
        return
    from ..app.opening.moved import store_options
    from ..fetch.copied_segment import open_copied
    from ..storage.directory import DirectoryStore
    from ..storage.object_store import ObjectStore
    from ..storage.open import open_store
    from ..storage.segment.keyring import KeyRing

    if "://" in path and not path.startswith("file://"):
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        options = store_options(context.settings)
        store: ObjectStore = open_store(f"{scheme}://{bucket}", options, listener=context.note_event)
    else:
        file = Path(path.removeprefix("file://")).resolve()
        root = file.parents[min(2, len(file.parents) - 1)]
        store, key = DirectoryStore(root, make=False, marked=False), file.relative_to(root).as_posix()
    with closing(store):
        ring = keyring or context.settings.encryption.keyring
        segment = open_copied(store, key, keys=KeyRing.load(ring) if ring else None)
        yield Dumped(segment.topic, segment.partition.partition, segment)


def _print_records(dumped: Dumped, pieces: Iterable[LogPiece], encoding: str) -> None:
    from ..log.record_lines import Encoding, record_line
    from ..runtime.extras import columns_installed

    out, printed, start = sys.stdout.buffer, 0, 0
    few = FEW_RECORDS if columns_installed() else sys.maxsize
    topic, partition, shown = dumped.topic, dumped.partition, Encoding(encoding)
    for piece in pieces:
        if printed < few:
            for record in islice(piece.records(), few - printed):
                out.write(record_line(record, topic, partition, shown))
                printed, start = printed + 1, record.offset + 1
        if printed >= few:
            from ..log.json_lines import block_lines

            for block in piece.blocks(start):
                out.writelines(block_lines(block, topic, partition, shown))
    out.flush()


def _batch_row(batch: BatchHeader) -> dict[str, Any]:
    from ..log.batch import CODECS

    return {
        "position": batch.position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "bytes": batch.size_bytes,
        "codec": CODECS[batch.codec],
        "leader_epoch": batch.partition_leader_epoch,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
    }


def _index_rows(path: str, log: LogFiles | CopiedSegment) -> Iterator[dict[str, Any]]:
    from ..log.indexes import offset_index_entries, time_index_entries
    from ..log.transaction_index import parse_transaction_index

    for base, offset_index, time_index, transaction_index in _indexes(log):
        for entry in list(offset_index_entries(offset_index, base, path)):
            yield {"index": "offset", "base_offset": base, "offset": entry.offset, "position": entry.position}
        for time in list(time_index_entries(time_index, base, path)):
            yield {"index": "time", "base_offset": base, "timestamp": time.timestamp, "offset": time.offset}
        for aborted in parse_transaction_index(transaction_index, path):
            yield {
                "index": "transaction",
                "base_offset": base,
                "producer_id": aborted.range.producer_id,
                "first_offset": aborted.range.first,
                "last_offset": aborted.range.last,
                "last_stable_offset": aborted.last_stable_offset,
            }


def _indexes(log: LogFiles | CopiedSegment) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Yield base offset, offset index, time index and transaction index of each segment. Missing files are empty."""
    from ..log.folder import LogFiles
    from ..storage.segment.manifest import IndexKind

    if not isinstance(log, LogFiles):
        kinds = (IndexKind.OFFSET, IndexKind.TIME, IndexKind.TRANSACTION)
        offset_index, time_index, transaction_index = (log.reader.indexes(kind) or b"" for kind in kinds)
        yield log.base_offset, offset_index, time_index, transaction_index
        return
    for path in log.logs:
        files = [path.with_suffix(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
        offset_index, time_index, transaction_index = (file.read_bytes() if file.exists() else b"" for file in files)
        yield int(path.stem), offset_index, time_index, transaction_index


def _print_rows(context: Context, rows: Iterable[dict[str, Any]]) -> None:
    """Print each row on one line: a JSON object with ``--json``, else ``name=value`` pairs."""
    for row in rows:
        if context.as_json:
            context.output.item(row)
        else:
            context.output.line("  ".join(f"{name}={value}" for name, value in row.items()))
