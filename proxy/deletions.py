"""DeleteRecords: refused for tiered topics, since a broker deletes from its own tier alone.

    delete up to 45 of a log that has 0..40 in the remote tier and 41.. at the broker
    carried out by the broker alone: 0..40 stay readable, and 41..44 become a gap that stops every reader

The broker is asked all the same, to delete up to offset 0: that deletes nothing, and the broker judges the client's
right. Where it has no objection, the answer becomes POLICY_VIOLATION, which has no place for a sentence: the sentence
is written to the log. Topics that are not tiered pass as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..app.pool import Pool
from ..broker.wire import Frame
from ..state.errors import TierstateError
from . import codes
from .apis import APIS, Key
from .counts import Counts
from .fetch_request import Place
from .older_offsets import Older

NOTHING = 0
"""Every log begins here or above: a broker that deletes the records below it deletes none."""
_ASKED = struct.Struct(">iq")
_ANSWERED = struct.Struct(">iqh")
_INT64 = struct.Struct(">q")
_LOW_WATERMARK_AND_ERROR = struct.Struct(">qh")
_NO_LOW_WATERMARK = -1


@dataclass(frozen=True, slots=True)
class Deletion:
    """One entry of a DeleteRecords request. ``at``: where its offset stands."""

    place: Place
    before: int
    at: int


@dataclass(frozen=True, slots=True)
class Held:
    """The error code of each place whose records the broker is not asked to delete, and the offset of the request."""

    codes: dict[Place, int] = field(default_factory=dict)
    before: dict[Place, int] = field(default_factory=dict)


def read_deletions(data: bytes | bytearray, at: int, version: int) -> list[Deletion]:
    """Raises Malformed."""
    frame, flexible = Frame(data, at), APIS[Key.DELETE_RECORDS].is_flexible(version)
    deletions = []
    for _ in range(frame.count(flexible, 3)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, _ASKED.size)):
            entry = frame.skip(_ASKED.size)
            number, before = _ASKED.unpack_from(data, entry)
            frame.tags(flexible)
            deletions.append(Deletion((topic, number), before, entry + 4))
        frame.tags(flexible)
    frame.int32()  # timeout
    frame.tags(flexible)
    frame.done()
    return deletions


def read_answers(body: bytes | bytearray, version: int) -> Iterator[tuple[Place, int, int]]:
    """Each place, its error code, and where its low watermark stands. Raises Malformed."""
    frame, flexible = Frame(body), APIS[Key.DELETE_RECORDS].is_flexible(version)
    frame.int32()  # throttle time
    for _ in range(frame.count(flexible, 3)):
        topic = frame.string(flexible)
        for _ in range(frame.count(flexible, _ANSWERED.size)):
            entry = frame.skip(_ANSWERED.size)
            number, _low_watermark, error = _ANSWERED.unpack_from(body, entry)
            frame.tags(flexible)
            yield (topic, number), error, entry + 4
        frame.tags(flexible)
    frame.tags(flexible)
    frame.done()


class Deletions:
    """Those of all connections."""

    def __init__(self, reader: Older, metadata: Pool, counts: Counts, warn: Callable[..., object]) -> None:
        self._reader, self._metadata, self._counts, self._warn = reader, metadata, counts, warn

    async def hold(self, data: bytearray, at: int, version: int) -> Held:
        """Change a request so that nothing of a tiered topic is deleted, and return what to answer of it.

        Raises Malformed.
        """
        held, deletions = Held(), read_deletions(data, at, version)
        found = {topic: await self._code_of(topic) for topic in {each.place[0] for each in deletions}}
        for each in deletions:
            if (code := found[each.place[0]]) != codes.NONE:
                held.codes[each.place], held.before[each.place] = code, each.before
                _INT64.pack_into(data, each.at, NOTHING)
        return held

    async def _code_of(self, topic: str) -> int:
        try:
            tiered = await self._metadata.run(lambda: self._reader.is_tiered(topic), goes_on=True)
        except TierstateError as error:
            self._warn("nobody knows now whether a topic is tiered", topic=topic, reason=str(error))
            return codes.KAFKA_STORAGE_ERROR
        return codes.POLICY_VIOLATION if tiered else codes.NONE

    async def patch(self, held: Held, client: str, version: int, body: bytes) -> bytearray:
        """Return the broker's answer with the refusals in it. Raises Malformed."""
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
    """Return why a deletion does not pass, and the command that carries it out."""
    topic, number = place
    wanted = "latest" if before < 0 else str(before)
    return (
        f"{topic}-{number} is tiered, and a broker deletes from its own tier alone; to delete from both: "
        f"tierstate delete-records {topic}:{number} --before {wanted} --execute"
    )
