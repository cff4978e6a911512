"""Choose the operation that carries out a decision."""

from __future__ import annotations

from typing import assert_never

from ..rules.candidates import CopyCandidate
from ..rules.decide import Intent, Policy
from ..rules.erase import Erase
from ..rules.expire import AdvanceLogStart, RemoveObjects, StartDelete
from ..rules.orders import CutLocal
from ..rules.sweep import SweepOrphans
from ..rules.trim import TrimBefore
from ..runtime.operation import Operation
from .copier import CopyTools, copy_segment
from .eraser import erase
from .expirer import advance_log_start, delete_records_order, remove_objects, start_delete
from .orphan_sweeps import OrphanSweeps
from .quarantine import NO_QUARANTINE
from .term import TermSession
from .trimmer import AskGroups, trim_local


def operation_for(
    intent: Intent,
    session: TermSession,
    tools: CopyTools,
    policy: Policy,
    groups: AskGroups,
    orphans: OrphanSweeps | None = None,
) -> Operation[object]:
    """Return the operation for the intent, not yet begun. ``orphans``: the partition's sweeps, for `SweepOrphans`."""
    match intent:
        case CopyCandidate():
            return copy_segment(session, intent, tools)
        case TrimBefore(offset=offset):
            return trim_local(session, tools.proof, offset, tools.listener, groups)
        case AdvanceLogStart(log_start=log_start, reason=why):
            return advance_log_start(session, log_start, why, tools.listener)
        case CutLocal(before=before):
            return delete_records_order(session, before, tools.listener)
        case StartDelete(segment=segment, reason=reason):
            return start_delete(session, segment, reason, tools.listener)
        case RemoveObjects(segment=segment):
            aside = orphans.quarantine if orphans else NO_QUARANTINE
            return remove_objects(session, tools.store, segment, policy.expire_grace_ms, tools.listener, aside)
        case SweepOrphans():
            assert orphans is not None
            return orphans.sweep(session)
        case Erase():
            return erase(session, intent, tools.listener)
        case _:
            assert_never(intent)
