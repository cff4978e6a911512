"""Answers that are there: stored batches that lie in memory, and what was kept of earlier answers.

Without a thread, which would take longer than what it does. Of stored batches all but the bytes is kept, too: where
they lie, and the head of the answer. Rights, quota, memory, and whether a read is routed so, are asked each time.
"""

from __future__ import annotations

from ..state.routing import Tier
from .answer import Answer, answer_of
from .answer_body import Call, ReadyBody
from .answer_memory import Held
from .credentials import Caller
from .kept_answers import KeptPlace
from .media import BATCHES
from .outgoing import BodyParts
from .record_forms import batches_trailer
from .service import FetchService

AT_HAND_BYTES = 2 * 1024 * 1024
"""The most that the event loop itself copies and sums for one call: half a millisecond."""


def at_hand(service: FetchService, call: Call, caller: Caller, held: Held) -> Answer | None:
    """None: it is not there. Raises what reads do, and Throttled."""
    if call.offset is None or call.tier is Tier.LOCAL:
        return None
    found = _kept(service, call, held) if may_be_kept(call) else _stored(service, call, held)
    if found is not None:
        service.charge(caller.principal, found.body.stored)
        service.stays_at_hand(call.topic, call.partition, call.offset, call.isolation, call.tier)
    return found


async def at_hand_again(service: FetchService, call: Call, caller: Caller, held: Held) -> Answer | None:
    """As `at_hand`, where it was not, and may be once what reads are routed by was asked for again."""
    if call.offset is None or call.tier is Tier.LOCAL:
        return None
    held.resize(0)
    again = await service.at_hand_again(call.topic, call.partition, call.offset, call.isolation, call.tier)
    return at_hand(service, call, caller, held) if again else None


def may_be_kept(call: Call) -> bool:
    """Stored batches lie in the chunk cache; what a schema registry says may change."""
    return call.offset is not None and call.media_type != BATCHES and call.values is None


def _stored(service: FetchService, call: Call, held: Held) -> Answer | None:
    if call.media_type != BATCHES or call.max_bytes > AT_HAND_BYTES:
        return None
    place = service.kept.place(call)
    data = place.read.data() if place is not None and place.read.holds() else None
    if place is None or data is None:
        held.resize(2 * call.max_bytes)
        place = _place(service, call)
        data = None if place is None else place.read.data()
        if place is None or data is None:
            return None
        service.kept.offer_place(call, place)
    body = place.answer.body
    held.resize(2 * body.size)
    ready = ReadyBody([BodyParts([*data, place.trailer])], body.size, body.stored)
    return Answer(place.answer.head, place.answer.said, ready, place.answer.pool)


def _place(service: FetchService, call: Call) -> KeptPlace | None:
    assert call.offset is not None
    read = service.reader.at_hand(
        call.topic, call.partition, call.offset, max_bytes=call.max_bytes, isolation=call.isolation, tier=call.tier
    )
    if read is None:
        return None
    piece, trailer = read.piece, batches_trailer(read.piece)
    body = ReadyBody([], read.size + len(trailer), read.size)
    answer = answer_of(call, piece, [piece.tier], piece.next_offset, body, service.pools.remote)
    return KeptPlace(read, answer, trailer)


def _kept(service: FetchService, call: Call, held: Held) -> Answer | None:
    assert call.offset is not None
    place = service.reader.route_at_hand(
        call.topic, call.partition, call.offset, isolation=call.isolation, tier=call.tier
    )
    if place is None or place.read is None or (kept := service.kept.find(place.read, call, held)) is None:
        return None
    body = ReadyBody([*kept.body], kept.size, kept.stored)
    return answer_of(call, place, [place.tier], kept.next_offset, body, service.pools.remote)
