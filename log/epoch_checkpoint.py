"""Read and write ``leader-epoch-checkpoint``: version, count, ``epoch offset`` lines (`LeaderEpochCheckpointFile`)."""

from __future__ import annotations

import re

from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData, InvalidRequest
from ..state.offsets import Offset

VERSION = "0"
_NUMBER = re.compile(r"[0-9]{1,19}")
"""No number is longer, and Python refuses to convert more than 4,300 digits."""
_MAX_EPOCH, _MAX_OFFSET = 2**31 - 1, 2**63 - 1


def parse_epoch_checkpoint(data: bytes | str, source: str) -> Lineage:
    """Return the lineage; it is empty for an empty file, which a crash can leave. Like Kafka, accept CRLF line ends.

    Raises CorruptData naming ``source`` and the line.
    """
    text = data.decode("ascii", "replace") if isinstance(data, bytes) else data
    if not text:
        return Lineage()
    lines = text.replace("\r\n", "\n").split("\n")
    if len(lines) < 3 or lines[0] != VERSION or not _NUMBER.fullmatch(lines[1]) or lines[-1] != "":
        raise CorruptData("not a leader epoch checkpoint of version 0", file=source)
    rows = lines[2:-1]
    if len(rows) != int(lines[1]):
        raise CorruptData("checkpoint has another number of entries", file=source, says=lines[1], has=len(rows))
    entries = []
    for number, row in enumerate(rows, start=3):
        parts = row.split(" ")
        if len(parts) != 2 or not all(_NUMBER.fullmatch(part) for part in parts):
            raise CorruptData("checkpoint entry is not an epoch and an offset", file=source, line=number)
        epoch, offset = map(int, parts)
        if epoch > _MAX_EPOCH or offset > _MAX_OFFSET:
            raise CorruptData("checkpoint entry is beyond what Kafka can have", file=source, line=number)
        entries.append(EpochEntry(LeaderEpoch(epoch), Offset(offset)))
    try:
        return Lineage(tuple(entries))
    except InvalidRequest as error:
        raise CorruptData(error.message, file=source, **error.facts) from error


def format_epoch_checkpoint(lineage: Lineage) -> bytes:
    """Return the content of the file."""
    rows = "".join(f"{entry.epoch} {entry.start_offset}\n" for entry in lineage.entries)
    return f"{VERSION}\n{len(lineage.entries)}\n{rows}".encode()
