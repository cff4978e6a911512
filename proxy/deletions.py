"""DeleteRecords: refused for tiered topics, because a broker deletes from its own tier only.

    example: delete records before 45; offsets 0..40 are in the remote tier, and 41 and higher are at the broker
    if only the broker did this, 0..40 would stay readable, and 41..44 would become a gap that stops every reader

The request still goes to the broker, changed to delete up to offset 0. That deletes nothing, but the broker checks the
client's permission. If the broker reports no error, the proxy changes the answer to POLICY_VIOLATION. The answer has no
field for an explanation, so the proxy logs it. Entries of topics that are not tiered pass unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..broker.wire import Frame
from ..fetch.reader import LogReader
from ..runtime.pool import Pool
from ..state.errors import TierstateError
from . import codes
from .apis import APIS, Key
from .codes import Counts
from .fetch_request import Place

NOTHING = 0
"""No log has an offset below this one, so a request to delete up to it deletes no record."""
_ASKED = struct.Struct(">iq")
_ANSWERED = struct.Struct(">iqh")
_INT64 = struct.Struct(">q")
_LOW_WATERMARK_AND_ERROR = struct.Struct(">qh")
_NO_LOW_WATERMARK = -1


@dataclass(frozen=True, slots=True)
class Deletion:
    """One entry of a DeleteRecords request. ``at``: the position of the field ``before`` in the request."""

    place: Place
    before: int
    at: int


@dataclass(frozen=True, slots=True)
class Held:
    """The proxy's error code and the requested offset, for each partition that the proxy refuses."""

    codes: dict[Place, int] = field(default_factory=dict)
    before: dict[Place, int] = field(default_factory=dict)


def read_deletions(data: bytes | bytearray, at: int, version: int) -> list[Deletion]:
    """Return the entries of a DeleteRecords request. Raises Malformed."""
    frame, flexible = Frame(data, at), APIS[Key.DELETE_RECORDS].is_flexible(version)
    deletions = []
    for topic in frame.partitions(flexible, _ASKED.size):
        entry = frame.skip(_ASKED.size)
        number, before = _ASKED.unpack_from(data, entry)
        deletions.append(Deletion((topic, number), before, entry + 4))
    frame.int32()  # timeout
    frame.ends(flexible)
    return deletions


def read_answers(body: bytes | bytearray, version: int) -> Iterator[tuple[Place, int, int]]:
    """Yield each partition, its error code and the position of its low watermark in the answer. Raises Malformed."""
    frame, flexible = Frame(body), APIS[Key.DELETE_RECORDS].is_flexible(version)
    frame.int32()  # throttle time
    for topic in frame.partitions(flexible, _ANSWERED.size):
        entry = frame.skip(_ANSWERED.size)
        number, _low_watermark, error = _ANSWERED.unpack_from(body, entry)
        yield (topic, number), error, entry + 4
    frame.ends(flexible)


class Deletions:
    """Handles the DeleteRecords requests of all connections."""

    def __init__(self, reader: LogReader, metadata: Pool, counts: Counts, warn: Callable[..., object]) -> None:
        self._reader, self._metadata, self._counts, self._warn = reader, metadata, counts, warn

    async def hold(self, data: bytearray, at: int, version: int) -> Held:
        """Change ``data`` so that no record of a tiered topic is deleted. Return the refused partitions.

        Also refuses topics if the proxy does not know whether they are tiered. Raises Malformed.
        """
        held, deletions = Held(), read_deletions(data, at, version)
        code_by_topic = {topic: await self._code_of(topic) for topic in {each.place[0] for each in deletions}}
        for deletion in deletions:
            if (code := code_by_topic[deletion.place[0]]) != codes.NONE:
                held.codes[deletion.place], held.before[deletion.place] = code, deletion.before
                _INT64.pack_into(data, deletion.at, NOTHING)
        return held

    async def _code_of(self, topic: str) -> int:
        try:
            tiered = await self._metadata.run(lambda: self._reader.is_tiered(topic), goes_on=True)
        except TierstateError as error:
            self._warn("nobody knows now whether a topic is tiered", topic=topic, reason=str(error))
            return codes.KAFKA_STORAGE_ERROR
        return codes.POLICY_VIOLATION if tiered else codes.NONE

    async def patch(self, held: Held, client: str, version: int, body: bytes) -> bytearray:
        """Return the broker's answer with the proxy's error codes. Logs each POLICY_VIOLATION. Raises Malformed."""
        patched = bytearray(body)
        for place, error, at in read_answers(body, version):
            code = held.codes.get(place, codes.NONE)
            if error != codes.NONE or code == codes.NONE:
                continue
            _LOW_WATERMARK_AND_ERROR.pack_into(patched, at, _NO_LOW_WATERMARK, code)
            self._counts.errors[code] += 1
            if code == codes.POLICY_VIOLATION:
                self._warn("records are not deleted", client=client, reason=refusal(place, held.before[place]))
        return patched


def refusal(place: Place, before: int) -> str:
    """Return the reason of a refusal as text, with the command that deletes from both tiers."""
    topic, number = place
    limit = "latest" if before < 0 else str(before)
    return (
        f"{topic}-{number} is tiered, and a broker deletes from its own tier alone; to delete from both: "
        f"tierstate delete-records {topic}:{number} --before {limit} --execute"
    )
