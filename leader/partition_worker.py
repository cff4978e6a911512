"""One partition's worker: observe, decide, begin a term when there is something to do, take one act, again.

It holds the partition's reign and its setbacks; one thread at a time runs it. Kinds of acts take turns, and each has
its own back-off (after the third setback in a row exponential, 5 s to 5 min): a trim that fails holds up no copy, a
store that takes nothing holds up no erasing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..runtime.listener import ActFailed, CopyFailed, Listener, PartitionRefused, TermEnded, TermStarted, TrimRefused
from ..state.errors import Fenced, TierstateError
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Position, TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import LocalSegment
from ..state.segment import SegmentState
from .act import Act, run
from .acts import act_for
from .candidates import CopyCandidate, copied_offset
from .copier import CopyTools
from .decide import ActKind, Decision, Intent, Memory, Observed, Policy, decide, refusal
from .erase_rule import NothingToErase
from .expire_rule import NoExpiry, RemoveObjects
from .integrity import IntegrityWatch
from .orders import NoCut
from .setbacks import Setbacks
from .status import PartitionStatus, StatusBoard
from .sweep_rule import still_abandoned
from .term import Reign, Seat, begin_term
from .trim_rule import NoTrim

Observe = Callable[[TopicIdPartition, str], Observed]
ArchivedTo = Callable[[int], Position | None]
"""Of a tier-state partition: what is below is archived; None: no archive is kept."""
FRESH_S = 5.0
OTHERS_EVERY_S = 10.0
"""How long a backlog of copies may keep trims, expiry, sweeping and erasing waiting."""


def no_archive(tier_partition: int) -> None:
    """Where no archive is kept, erasing waits for none."""


class PartitionWorker:
    """`advance` until it answers False; then again at the next reconcile."""

    def __init__(
        self,
        seat: Seat,
        partition: TopicIdPartition,
        name: str,
        observe: Observe,
        tools: CopyTools,
        policy: Policy,
        board: StatusBoard,
        listener: Listener,
        archived_to: ArchivedTo = no_archive,
    ) -> None:
        self._seat, self.partition, self.name = seat, partition, name
        self._observe, self._tools, self._policy = observe, tools, policy
        self._board, self._listener, self._archived_to = board, listener, archived_to
        self._watch = IntegrityWatch(seat, listener)
        self._reign: Reign | None = None
        self._general = Setbacks(seat.clock)
        self._by_kind = {kind: Setbacks(seat.clock) for kind in ActKind}
        self._last, self._last_other = ActKind.ERASE, seat.clock.monotonic()
        self._abandoned: dict[RemoteSegmentId, float] = {}
        self._put_off: dict[RemoteSegmentId, Setbacks] = {}
        self._status = PartitionStatus(name, partition.partition, partition.topic_id, leads=False)

    @property
    def setbacks(self) -> int:
        """How often in a row something failed; 0: all is well."""
        every = (self._general, *self._by_kind.values(), *self._put_off.values())
        return max(each.count for each in every)

    @property
    def last_error(self) -> str | None:
        return self._status.last_error

    def advance(self) -> bool:
        """Take at most one act; True when there may be more to do at once.

        Never raises a tierstate error: what failed is in the status, told to the listener, and retried later.
        """
        return run(self.steps())

    def steps(self) -> Act[bool]:
        """`advance`, stopping before each irreversible step of the act it takes."""
        if self._general.waiting:
            return False
        try:
            return (yield from self._steps())
        except TierstateError as error:
            self._general.add()
            self._failed(error)
            return False

    def _steps(self) -> Act[bool]:
        seen = self._observe(self.partition, self.name)
        refused = refusal(seen.config)
        if refused is not None:
            self._refuse(refused)
            return False
        view = self._reign.view() if self._reign else self._fresh_view()
        if (yield from self._watch.steps(self.partition, self.name)):
            return True
        decision = decide(view, seen, self._policy, self._seat.clock.now_ms(), self._memory(view))
        self._general.clear()
        for idle in ActKind:
            if idle not in decision.intents:
                self._by_kind[idle].clear()
        self._show(view, seen, decision)
        kind = self._turn(decision)
        if kind is None and not self._moved_away(view):
            return False
        if self._reign is None:
            self._reign = yield from begin_term(self._seat, self.partition, self.name)
            self._listener(TermStarted(self.partition, self.name, str(self._reign.term)))
        elif kind is not None:
            return (yield from self._take(self._reign, kind, decision.intents[kind]))
        return True

    def _memory(self, view: PartitionView) -> Memory:
        now = self._seat.clock.monotonic()
        self._abandoned = still_abandoned(view, self._abandoned, now)
        condemned = {each.segment_id for each in view.unsettled if each.state is SegmentState.DELETE_SEGMENT_STARTED}
        self._put_off = {segment_id: each for segment_id, each in self._put_off.items() if segment_id in condemned}
        put_off = [segment_id for segment_id, each in self._put_off.items() if each.waiting]
        archived_to = self._archived_to(self._seat.view.tier_partition(self.partition))
        return Memory(
            self._reign.term if self._reign else None, self._abandoned, put_off, archived_to, now, tuple(self._put_off)
        )

    def _turn(self, decision: Decision) -> ActKind | None:
        """Copying first, but now and then the others, in turns, however long the backlog is."""
        able = [kind for kind in decision.intents if not self._by_kind[kind].waiting]
        others = [kind for kind in able if kind is not ActKind.COPY]
        recently = self._seat.clock.monotonic() - self._last_other < OTHERS_EVERY_S
        if ActKind.COPY in able and (recently or not others):
            return ActKind.COPY
        order = list(ActKind)
        following = [kind for kind in others if order.index(kind) > order.index(self._last)]
        return next(iter(following or others), None)

    def _take(self, reign: Reign, kind: ActKind, intent: Intent) -> Act[bool]:
        if kind is not ActKind.COPY:
            self._last, self._last_other = kind, self._seat.clock.monotonic()
        try:
            yield from act_for(intent, reign, self._tools, self._policy)
        except TierstateError as error:
            self._by_kind[kind].add()
            if isinstance(intent, RemoveObjects):
                self._put_off.setdefault(intent.segment.segment_id, Setbacks(self._seat.clock)).add()
            self._tell_failure(kind, intent, error)
            self._failed(error)
            return False
        self._by_kind[kind].clear()
        if isinstance(intent, RemoveObjects):
            self._put_off.pop(intent.segment.segment_id, None)
        return True

    def _tell_failure(self, kind: ActKind, intent: Intent, error: TierstateError) -> None:
        if isinstance(intent, CopyCandidate):
            setbacks = self._by_kind[kind].count
            self._listener(CopyFailed(self.partition, self.name, intent.offsets, str(error), setbacks))
        elif kind is ActKind.TRIM:
            self._listener(TrimRefused(self.partition, self.name, str(error)))
            self._publish(replace(self._status, not_trimmed=str(error)))
        else:
            self._listener(ActFailed(self.partition, self.name, kind.value, str(error)))

    def _moved_away(self, view: PartitionView) -> bool:
        """The term in force names an address at which this agent no longer answers: people would call it silent."""
        leader, seat = view.leader, self._seat
        return (
            self._reign is None
            and leader is not None
            and leader.broker_id == seat.broker_id
            and leader.management_address != seat.management_address
        )

    def rest(self) -> None:
        """This broker does not lead: nothing is done, and a term that was is over."""
        self._end_term("this broker no longer leads")
        self._clear_setbacks()
        self._publish(PartitionStatus(self.name, self.partition.partition, self.partition.topic_id, leads=False))

    def _clear_setbacks(self) -> None:
        for each in (self._general, *self._by_kind.values()):
            each.clear()
        self._put_off.clear()

    def _fresh_view(self) -> PartitionView:
        self._seat.view.require_fresh(self._seat.view.tier_partition(self.partition), FRESH_S)
        return self._seat.view.partition(self.partition)

    def _failed(self, error: TierstateError) -> None:
        """What is fenced ends the term, and so does whatever ended it already; all else is tried again within it."""
        if self._reign is not None and (isinstance(error, Fenced) or self._reign.ended):
            self._end_term(self._reign.ended or str(error))
        self._publish(
            replace(
                self._status,
                term=str(self._reign.term) if self._reign else None,
                last_error=str(error),
                not_copied=str(error) if self._copies_fail else self._status.not_copied,
                consecutive_failures=self.setbacks,
            )
        )

    def _end_term(self, reason: str) -> None:
        """A new one begins when there is something to do."""
        if self._reign is not None:
            self._reign.end(reason)
            self._listener(TermEnded(self.partition, self.name, str(self._reign.term), reason))
            self._reign = None

    def _refuse(self, reason: str) -> None:
        if self._status.refused != reason:
            self._listener(PartitionRefused(self.partition, self.name, reason))
        self._clear_setbacks()
        self._publish(replace(self._status, leads=True, refused=reason, not_copied=reason, not_trimmed=reason))

    def _show(self, view: PartitionView, seen: Observed, decision: Decision) -> None:
        copied = copied_offset(view, seen.bounds)
        behind = [segment for segment in seen.segments[:-1] if segment.next_base > copied + 1]
        no_trim = decision.trim.reason if isinstance(decision.trim, NoTrim) else None
        if no_trim is not None and no_trim != self._status.not_trimmed:
            self._listener(TrimRefused(self.partition, self.name, no_trim))
        if isinstance(decision.copy, CopyCandidate):
            not_copied = self._status.not_copied if self._copies_fail else None
        else:
            not_copied = decision.copy.reason
        self._publish(
            replace(
                self._status,
                leads=True,
                refused=None,
                term=str(self._reign.term) if self._reign else None,
                copied_to=copied,
                local_start=seen.bounds.local_start,
                last_stable_offset=seen.bounds.last_stable_offset,
                not_copied=not_copied,
                not_trimmed=no_trim or (self._status.not_trimmed if self._by_kind[ActKind.TRIM].count else None),
                not_expired=decision.expire.reason if isinstance(decision.expire, NoExpiry | NoCut) else None,
                not_erased=decision.erase.reason if isinstance(decision.erase, NothingToErase) else None,
                held_by=decision.trim.held_by,
                copy_lag_segments=len(behind),
                copy_lag_bytes=sum(segment.size_bytes for segment in behind),
                uncopied_expires_in_s=_expires_in(behind, seen.config.retention_ms, self._seat.clock.now_ms()),
                consecutive_failures=self.setbacks,
                last_error=self._status.last_error if self.setbacks else None,
            )
        )

    @property
    def _copies_fail(self) -> bool:
        return bool(self._general.count or self._by_kind[ActKind.COPY].count)

    def _publish(self, status: PartitionStatus) -> None:
        self._status = status
        self._board.put(self.partition, status)


def _expires_in(behind: list[LocalSegment], retention_ms: int, now: TimestampMs) -> float | None:
    """Seconds until Kafka's own retention by time takes something that is not copied."""
    if not behind or retention_ms < 0:
        return None
    return max(0.0, (min(segment.max_timestamp for segment in behind) + retention_ms - now) / 1000)
