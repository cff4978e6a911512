"""Whether this process may change the bucket: what it has seen of other processes that write below the same prefix.

The proof needs no clock of others. A process that starts writes its heartbeat, and every process that lives answers:
it signs once more, in the tier-state topic of its own cluster. An answer that is in no topic of ours comes from another
cluster. A process that neither answers nor writes for `SILENT_PERIODS` has ended, or has lost its own proof by then,
because a proof holds for `PROOF_PERIODS` only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

PROOF_PERIODS = 3
"""A proof is as old as the listing of heartbeats that it comes from."""
SILENT_PERIODS = PROOF_PERIODS + 1
SILENCE_MS = 15 * 60 * 1000
"""A process that takes over after a longer silence may be a copy that was started while the cluster is down."""
FIRST_TRIAL_S = 15 * 60.0
"""The trial of the first process that writes a heartbeat below a prefix with objects: after an upgrade. The cluster's
other agents, of an older version, archive each fact within ten minutes (`archive.partial_after`). A copy sees then that
its topic has parted from the archive."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process, as its heartbeat shows it. ``silent_s``: since when it has not been written again.

    ``ours``: its signature is in a topic of this cluster. ``answered``: it has signed since it read our heartbeat.
    ``rival``: an agent of the same broker that was there before this process ever had a proof. ``disowned``: of another
    cluster, and left behind by a decision.
    """

    name: str
    ours: bool
    answered: bool
    stopped: bool
    rival: bool
    disowned: bool
    silent_s: float


@dataclass(frozen=True, slots=True)
class Alone:
    """No other cluster writes here."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """It is not known yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Contested:
    """Another cluster writes here, or did, until a person decides. ``alive``: it may write now."""

    why: str
    alive: bool = True


Verdict = Alone | NotYet | Contested


def is_dead(peer: Peer, period_s: float) -> bool:
    return peer.stopped or peer.silent_s >= SILENT_PERIODS * period_s


def judge(peers: Collection[Peer], period_s: float) -> Verdict:
    """Return what a listing of heartbeats shows. Any doubt means that nothing is written.*"""
    strange = [peer for peer in peers if not peer.ours and not peer.disowned]
    if strange:
        return Contested(
            "another cluster writes below this prefix: "
            + ", ".join(sorted(peer.name for peer in strange))
            + ": its heartbeat is not signed in this cluster's tier-state topic",
            alive=any(not is_dead(peer, period_s) for peer in strange),
        )
    waited_for = [peer for peer in peers if not is_dead(peer, period_s) and _is_in_doubt(peer)]
    if waited_for:
        return NotYet("no answer yet, and not silent for long enough: " + ", ".join(sorted(p.name for p in waited_for)))
    return Alone()


def _is_in_doubt(peer: Peer) -> bool:
    """Return whether this living peer is waited for. The later one of two agents of one broker waits."""
    return not peer.answered or peer.rival


@dataclass(frozen=True, slots=True)
class Before:
    """A process of this cluster that was there before. ``alive``: it answered. ``here``: at the same place.

    ``silence_ms``: by the store's own clock, from its last heartbeat to our first.
    """

    alive: bool
    here: bool
    silence_ms: int
    trial_s: float


def trial_of(before: Collection[Before], trial_s: float) -> float:
    """Return for how many seconds a process that has just got its first proof deletes nothing.

    A copy that is started while the cluster is down has the same topic, and no process answers it. It cannot be told
    from the cluster itself, but it runs at another place, or begins after a silence.
    """
    alive = [each.trial_s for each in before if each.alive]
    if alive:
        return min(alive)
    return min((each.trial_s for each in before if each.here and each.silence_ms <= SILENCE_MS), default=trial_s)
