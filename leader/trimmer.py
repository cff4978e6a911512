"""Trim the local tier of one partition with DeleteRecords.

The request names only a topic and is routed to the current leader, so a paused agent could trim another branch. It goes
only to this agent's own broker, at most 5 s, without retries, immediately after the last checks. The consumer groups
behind a decision may have been listed minutes ago: they are listed again when the intention stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..rules.decide import standing_order
from ..rules.trim import doubt_of
from ..runtime.clock import Clock
from ..runtime.listener import Listener, LocalTrimmed
from ..runtime.operation import Operation
from ..state.errors import CorruptData, Fenced, TimedOut
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
"""The greatest age of a listing of groups that is good enough to append an intention."""
LAST_CHECKS_S = 5.0
PROVEN_FOR_S = 600.0
"""A proof older than this is too weak: this process may have been frozen since."""

AskGroups = Callable[[TopicIdPartition, str, LocalBounds, float], Mapping[str, Offset] | None]
"""See `Observer.groups_after`."""


def trim_local(
    session: TermSession, proof: ObjectProof, before: Offset, listener: Listener, groups: AskGroups
) -> Operation[Offset]:
    """Trim below ``before``, or as far as the objects are proven. Return the broker's log start.

    The log start stays where it was if a group needs something there by now; the next look uses that listing.

    Raises Fenced when the term no longer rules, CorruptData when an object that replaces the first local data is not
    what was copied.
    """
    context, partition, clock = session.context, session.partition, session.context.clock
    bounds = session.bounds()
    local_start = bounds.local_start
    recent = groups(partition, session.name, bounds, clock.monotonic() - JUST_ASKED_S)
    if not let_go(recent, before):  # an abandoned intention would hide that something else cut the log
        return local_start
    # before any fact is appended: an intention that can never be carried out is no news
    before, replacing = proven_below(proof, session.view(), local_start, before)
    proven_at = clock.monotonic()
    yield "append trim-intended"
    session.append(LocalTrimIntended(partition, before, session.term, session.counter(), session.now()))
    yield "delete-records"
    session.require_safe_topic()
    if not let_go_now(groups, session, bounds, before):
        return local_start
    listed_at = clock.monotonic()
    # Last checks, with nothing between them and the request: the view up to now with our intention accepted in it,
    # nothing to clear up, the checked segments still the ones, the same topic on disk, the checkpoint ending in our
    # epoch.
    view = session.view(max_age=0)
    doubt = standing_order(view) or doubt_of(view)
    changed = not still_replaced(view, local_start, before, replacing)
    if doubt or changed or view.trim_intended != before:
        problem = doubt.text if doubt else "what replaces the local data changed"
        raise Fenced(problem, partition=partition, before=before)
    session.confirm_leadership()
    in_time(clock, listed_at)
    if clock.monotonic() - proven_at > PROVEN_FOR_S:
        raise TimedOut("the objects were proven too long ago: they must be proven again")
    try:
        new_start = context.broker.delete_records_on(
            context.broker_id, session.name, partition.partition, before, DELETE_RECORDS_TIMEOUT_S
        )
    except TimedOut:
        # the leader may have moved its start all the same: look instead of guessing
        new_start = session.bounds().local_start
        if new_start < before:
            raise
    listener(LocalTrimmed(partition, session.name, new_start))
    return new_start


def proven_below(
    proof: ObjectProof, view: PartitionView, local_start: Offset, before: Offset
) -> tuple[Offset, list[RemoteSegment]]:
    """Return ``before``, or the start of the first segment that is not what was copied, and the segments that alone
    will hold what is below. Raises CorruptData when that is the first one.
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
    """Return whether no group needs anything below ``before``, by a new listing*: the one before the decision lacks
    groups that were reset, or came, since.
    """
    return let_go(groups(session.partition, session.name, bounds, session.context.clock.monotonic()), before)


def let_go(holds: Mapping[str, Offset] | None, before: Offset) -> bool:
    """Return whether all groups are known, and none holds anything below ``before``."""
    return holds is not None and all(offset >= before for offset in holds.values())


def in_time(clock: Clock, listed: float) -> None:
    """Raise TimedOut when the last checks took so long that the listing of groups is old again*: this process may have
    been frozen.
    """
    took = clock.monotonic() - listed
    if took > LAST_CHECKS_S:
        raise TimedOut("the last checks before a trim took too long: groups must be asked for again", seconds=took)


def still_replaced(view: PartitionView, local_start: Offset, before: Offset, replacing: list[RemoteSegment]) -> bool:
    """Return whether the segments whose objects were checked hold, without a gap, everything below ``before`` that the
    log still has. Readers get nothing below the log start.
    """
    start = Offset(max(local_start, view.log_start or 0))
    return given_up(view, local_start, before) == replacing and view.coverage.prefix_end(start) >= before - 1


def given_up(view: PartitionView, local_start: Offset, before: Offset) -> list[RemoteSegment]:
    """Return the segments that alone will hold [local_start, before)."""
    if before <= local_start:
        return []
    pieces = view.in_range(OffsetRange(local_start, Offset(before - 1)))
    return list({piece.segment.segment_id: piece.segment for piece in pieces}.values())
