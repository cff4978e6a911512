"""Decides whether this process may change the bucket, from the other processes that write below the same prefix.

The proof does not depend on other processes' clocks. A process that starts writes its heartbeat. Every running process
answers: it signs again, in the tier-state topic of its own cluster. A process whose signature is not in this cluster's
topic belongs to another cluster. A process that neither answers nor writes for `SILENT_PERIODS` periods has ended, or
its own proof has expired: a proof is valid for `PROOF_PERIODS` periods only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .reasons import lasting

PROOF_PERIODS = 3
"""A proof is valid for this many periods after the listing of heartbeats that it is based on."""
SILENT_PERIODS = PROOF_PERIODS + 1
SILENCE_MS = 15 * 60 * 1000
"""In milliseconds. A process that starts after a longer silence may be a copy, started while the cluster is down."""
FIRST_TRIAL_S = 15 * 60.0
"""The trial, in seconds, of the first process that writes a heartbeat below a prefix with objects, after an upgrade.
Other agents of an older version archive each fact within ten minutes (`archive.partial_after`). Then a copy of the
cluster sees that its topic has diverged from the archive.
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process, as its heartbeat shows it. ``silent_s``: seconds since the heartbeat was last written.

    ``ours``: its signature is in a topic of this cluster. ``answered``: it signed after it read this process's
    heartbeat. ``rival``: an agent of the same broker that existed before this process first had a proof. ``disowned``:
    a process of another cluster that a person decided to ignore.
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
    """The verdict that no other cluster writes below this prefix."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """It is not known yet whether another cluster writes below this prefix."""

    why: str


@dataclass(frozen=True, slots=True)
class Contested:
    """Another cluster writes or wrote here; only a person can decide to ignore it. ``alive``: it may write now."""

    why: str
    alive: bool = True


Verdict = Alone | NotYet | Contested


def is_dead(peer: Peer, period_s: float) -> bool:
    return peer.stopped or peer.silent_s >= SILENT_PERIODS * period_s


def judge(peers: Collection[Peer], period_s: float) -> Verdict:
    """Return the verdict from a listing of heartbeats. While there is a doubt, it is not `Alone`."""
    strangers = [peer for peer in peers if not peer.ours and not peer.disowned]
    if strangers:
        return Contested(
            "another cluster writes below this prefix: "
            + ", ".join(sorted(peer.name for peer in strangers))
            + ": its heartbeat is not signed in this cluster's tier-state topic",
            alive=any(not is_dead(peer, period_s) for peer in strangers),
        )
    awaited = [peer for peer in peers if not is_dead(peer, period_s) and _is_in_doubt(peer)]
    if awaited:
        names = ", ".join(sorted(peer.name for peer in awaited))
        left = lasting(1000 * max(SILENT_PERIODS * period_s - peer.silent_s for peer in awaited))
        wait = f"wait {left} more, then look with tierstate keep-prefix which of them still write"
        return NotYet(f"no answer yet, and not silent for long enough: {names}; {wait}")
    return Alone()


def _is_in_doubt(peer: Peer) -> bool:
    """Return whether to wait for this running peer. If a broker has two agents, the one that started later waits."""
    return not peer.answered or peer.rival


@dataclass(frozen=True, slots=True)
class Before:
    """An earlier process of this cluster. ``alive``: it answered. ``here``: it ran at the same place.

    ``silence_ms``: the time from its last heartbeat to this process's first one, by the store's clock. ``trial_s``: its
    trial in seconds.
    """

    alive: bool
    here: bool
    silence_ms: int
    trial_s: float


def trial_of(before: Collection[Before], trial_s: float) -> float:
    """Return the seconds for which a process that has just got its first proof deletes nothing.

    A copy that is started while the cluster is down has the same topic, and no process answers it. It looks like
    the cluster itself, but it runs at another place, or begins after a silence.
    """
    alive = [each.trial_s for each in before if each.alive]
    if alive:
        return min(alive)
    return min((each.trial_s for each in before if each.here and each.silence_ms <= SILENCE_MS), default=trial_s)
