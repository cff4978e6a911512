"""Answers that are there: stored batches that lie in memory, and what was kept of earlier answers.

Without a thread, which would take longer than what it does.
"""

from __future__ import annotations

from typing import TypeAlias

from ..fetch.piece import Fetched
from ..state.offsets import Offset
from ..state.routing import Tier
from .answer_body import Call, ReadyBody, StoredBody
from .answer_memory import Held
from .credentials import Caller
from .media import BATCHES
from .service import FetchService

AT_HAND_BYTES = 2 * 1024 * 1024
"""The most that the event loop itself copies and sums for one call: half a millisecond."""
AtHand: TypeAlias = tuple[Fetched, ReadyBody, Offset]
"""A piece and its body, and where to go on."""


def at_hand(service: FetchService, call: Call, caller: Caller, held: Held) -> AtHand | None:
    """None: it is not there. Raises what reads do, and Throttled."""
    if call.offset is None or call.tier is Tier.LOCAL:
        return None
    found = _kept(service, call, held) if may_be_kept(call) else _stored(service, call, held)
    if found is not None:
        service.charge(caller.principal, found[1].stored)
        service.stays_at_hand(call.topic, call.partition, call.offset, call.isolation, call.tier)
    return found


async def at_hand_again(service: FetchService, call: Call, caller: Caller, held: Held) -> AtHand | None:
    """As `at_hand`, where it was not, and may be once what reads are routed by was asked for again."""
    if call.offset is None or call.tier is Tier.LOCAL:
        return None
    held.resize(0)
    again = await service.at_hand_again(call.topic, call.partition, call.offset, call.isolation, call.tier)
    return at_hand(service, call, caller, held) if again else None


def may_be_kept(call: Call) -> bool:
    """Stored batches lie in the chunk cache; what a schema registry says may change."""
    return call.offset is not None and call.media_type != BATCHES and call.values is None


def _stored(service: FetchService, call: Call, held: Held) -> AtHand | None:
    assert call.offset is not None
    if call.media_type != BATCHES or call.max_bytes > AT_HAND_BYTES:
        return None
    held.resize(2 * call.max_bytes)
    piece = service.reader.fetch_at_hand(
        call.topic, call.partition, call.offset, max_bytes=call.max_bytes, isolation=call.isolation, tier=call.tier
    )
    if piece is None:
        return None
    body = StoredBody(call, held)
    return piece, body, body.add(piece)


def _kept(service: FetchService, call: Call, held: Held) -> AtHand | None:
    assert call.offset is not None
    place = service.reader.route_at_hand(
        call.topic, call.partition, call.offset, isolation=call.isolation, tier=call.tier
    )
    if place is None or place.read is None or (kept := service.kept.find(place.read, call)) is None:
        return None
    held.resize(kept.size)
    return place, ReadyBody([*kept.body], kept.size, kept.stored), kept.next_offset
