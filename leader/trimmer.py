"""Trim the local tier of one partition with DeleteRecords.

DeleteRecords names a topic without its id and is routed to the current leader, so a paused agent could trim another
branch. So the request is sent only to this agent's broker, without retries and with a timeout of 5 s, right after the
last checks. A decision may use a listing of consumer groups that is minutes old: groups are listed again after the
intention is appended. Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..rules.decide import standing_order
from ..rules.trim import doubt_of
from ..runtime.clock import Clock
from ..runtime.listener import Listener, LocalTrimmed
from ..runtime.operation import Operation
from ..state.errors import CorruptData, TimedOut
from ..state.facts import LocalTrimIntended
from ..state.ids import TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..state.segment import RemoteSegment
from .object_proof import ObjectProof
from .term import TermSession

DELETE_RECORDS_TIMEOUT_S = 5.0
JUST_ASKED_S = 10.0
"""The greatest age of a listing of groups that permits a trim intention (`LocalTrimIntended`) to be appended."""
LAST_CHECKS_S = 5.0
PROVEN_FOR_S = 600.0
"""The greatest age of a proof of the objects: this process may have been frozen since an older one."""

AskGroups = Callable[[TopicIdPartition, str, LocalBounds, float], Mapping[str, Offset] | None]
"""Returns the offsets that groups still need, from a recent listing (`Observer.groups_after`)."""


def trim_local(
    session: TermSession, proof: ObjectProof, before: Offset, listener: Listener, groups: AskGroups
) -> Operation[Offset]:
    """Trim the offsets below ``before``, or below the first segment whose proof fails. Return the broker's log start.

    Nothing is trimmed if a group needs one of these offsets by now; the next look uses that listing.
    Raises Fenced if the term ended or a last check fails, and TimedOut if the checks took too long. Raises CorruptData
    if the proof fails for the segment that holds the broker's first offset.
    """
    partition, clock = session.partition, session.context.clock
    bounds = session.bounds()
    local_start = bounds.local_start
    recent = groups(partition, session.name, bounds, clock.monotonic() - JUST_ASKED_S)
    if not let_go(recent, before):  # an abandoned intention would hide that something else cut the log
        return local_start
    # before any fact is appended: an intention that cannot be carried out must not be recorded
    before, replacing = proven_below(proof, session.view(), local_start, before)
    proven_at = clock.monotonic()
    yield "append trim-intended"
    session.append(LocalTrimIntended(partition, before, session.term, session.counter(), session.now()))
    yield "delete-records"
    session.require_safe_topic()
    if not let_go_now(groups, session, bounds, before):
        return local_start
    listed_at = clock.monotonic()
    # Last checks, right before the request. The view as of now must have this intention as accepted, the same proven
    # segments, and nothing for a person to resolve. The folder must have the same topic id, and a checkpoint that ends
    # in this term's epoch.
    view = session.view(max_age=0)
    doubt = standing_order(view) or doubt_of(view)
    changed = not still_replaced(view, local_start, before, replacing)
    if doubt or changed or view.trim_intended != before:
        problem = doubt.text if doubt else "what replaces the local data changed"
        raise session.fenced(problem, before=before)
    session.confirm_leadership()
    in_time(clock, listed_at)
    if clock.monotonic() - proven_at > PROVEN_FOR_S:
        raise TimedOut("the objects were proven too long ago: they must be proven again")
    return delete_records(session, before, listener)


def delete_records(session: TermSession, before: Offset, listener: Listener) -> Offset:
    """Send DeleteRecords to this agent's own broker, without retries. Return the broker's log start. Raises TimedOut.

    Called right after the last checks.
    """
    broker, number = session.context.broker, session.partition.partition
    try:
        new_start = broker.delete_records_on(session.broker_id, session.name, number, before, DELETE_RECORDS_TIMEOUT_S)
    except TimedOut:
        new_start = session.bounds().local_start  # the broker may have cut all the same: read its log start
        if new_start < before:
            raise
    listener(LocalTrimmed(session.partition, session.name, new_start))
    return new_start


def proven_below(
    proof: ObjectProof, view: PartitionView, local_start: Offset, before: Offset
) -> tuple[Offset, list[RemoteSegment]]:
    """Return the offset to trim to, and the segments that alone will hold the local offsets below it.

    The offset is ``before``, or the start of the first segment whose proof fails. Raises CorruptData if that segment
    holds ``local_start``.
    """
    replacing = given_up(view, local_start, before)
    for segment in replacing:
        try:
            proof.require(segment)
        except CorruptData:
            if segment.offsets.start <= local_start:
                raise
            before = segment.offsets.start
            return before, given_up(view, local_start, before)
    return before, replacing


def let_go_now(groups: AskGroups, session: TermSession, bounds: LocalBounds, before: Offset) -> bool:
    """Return whether no group needs an offset below ``before``, from a new listing*.

    The listing before the decision lacks groups that were reset or created since.
    """
    return let_go(groups(session.partition, session.name, bounds, session.context.clock.monotonic()), before)


def let_go(holds: Mapping[str, Offset] | None, before: Offset) -> bool:
    """Return whether all groups are known, and none needs an offset below ``before``."""
    return holds is not None and all(offset >= before for offset in holds.values())


def in_time(clock: Clock, listed: float) -> None:
    """Raise TimedOut if the last checks took so long that the group listing is old again*: this process may have been
    frozen. ``listed``: the time of the listing, in monotonic seconds.
    """
    took = clock.monotonic() - listed
    if took > LAST_CHECKS_S:
        raise TimedOut("the last checks before a trim took too long: groups must be asked for again", seconds=took)


def still_replaced(view: PartitionView, local_start: Offset, before: Offset, replacing: list[RemoteSegment]) -> bool:
    """Return whether the proven segments are still the same and hold all offsets below ``before`` without a gap.

    Offsets below the local start or the log start do not count: the broker lacks them, or readers do not get them.
    """
    start = Offset(max(local_start, view.log_start or 0))
    return given_up(view, local_start, before) == replacing and view.coverage.prefix_end(start) >= before - 1


def given_up(view: PartitionView, local_start: Offset, before: Offset) -> list[RemoteSegment]:
    """Return the segments that will be the only copy of the offsets [local_start, before)."""
    if before <= local_start:
        return []
    pieces = view.coverage.within(OffsetRange(local_start, Offset(before - 1)))
    return list({piece.segment.segment_id: piece.segment for piece in pieces}.values())
