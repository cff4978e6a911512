"""Fencing decides which facts count. It depends on the live set alone, so every follower agrees.

A fact at position p, written by term (E, Q, N), is **fenced** when

- a live `LeaderElected` of a higher term is at a position below p, or
- Q >= p: no term knows its own position Q before its `LeaderElected` is written, or
- the live `LeaderElected` at Q has another N.

Otherwise it is **accepted**. Fencing needs only the key and the position of a `LeaderElected`. So a `LeaderElected`
whose value this version cannot read fences like any other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from .epochs import LeaderEpoch, Lineage
from .errors import InvalidRequest
from .facts import LeaderElected, LiveFact, UnknownFact, term_of
from .keys import KeyKind, parse_key
from .offsets import Position
from .segment import Term


@dataclass(frozen=True, slots=True)
class Leaders:
    """The live `LeaderElected` facts of a partition.

    ``terms`` maps each fact's position to its term; ``highest_to[i]`` is the highest of the first i + 1 terms.
    ``leader`` is the fact with the highest term among those that this version can read.
    """

    terms: Mapping[Position, Term]
    positions: tuple[Position, ...]
    highest_to: tuple[Term, ...]
    leader: LeaderElected | None

    @classmethod
    def among(cls, facts: Iterable[LiveFact]) -> Leaders:
        terms = [(term, live.fact) for live in facts if (term := term_begun(live)) is not None]
        terms.sort(key=lambda each: each[0].position)
        readable = [(term.order, fact) for term, fact in terms if isinstance(fact, LeaderElected)]
        return cls(
            terms={term.position: term for term, _ in terms},
            positions=tuple(term.position for term, _ in terms),
            highest_to=tuple(accumulate((term for term, _ in terms), _higher)),
            leader=max(readable, key=lambda each: each[0])[1] if readable else None,
        )

    @property
    def highest(self) -> Term | None:
        """Return the term in force: the one with the highest (epoch, position)."""
        return self.highest_to[-1] if self.highest_to else None

    @property
    def lineage(self) -> Lineage:
        """Return the logical lineage of the leader; it is empty when there is no leader."""
        return self.leader.lineage if self.leader else Lineage()

    def fences(self, position: Position, term: Term) -> bool:
        """Return whether a fact at ``position`` by ``term`` is fenced."""
        if term.position >= position:
            return True
        live_term = self.terms.get(term.position)
        if live_term is not None and live_term != term:
            return True
        below = bisect_left(self.positions, position)
        if below == 0:
            return False
        highest = self.highest_to[below - 1]
        return highest is not live_term and highest.order > term.order


def _higher(one: Term, other: Term) -> Term:
    return max(one, other, key=lambda term: term.order)


def term_begun(live: LiveFact) -> Term | None:
    """Return the term that begins with this fact. If the value cannot be read, the key alone is used."""
    if isinstance(live.fact, LeaderElected):
        return Term(live.fact.epoch, live.position, live.fact.id)
    if not isinstance(live.fact, UnknownFact):
        return None
    try:
        key = parse_key(live.key)
    except InvalidRequest:
        return None
    if key is None or key.kind is not KeyKind.LEADER or key.id is None:
        return None
    return Term(LeaderEpoch(key.numbers[0]), live.position, key.id)


def is_fenced(live: LiveFact, leaders: Leaders) -> bool:
    """Return whether a fact is fenced. Facts that no term wrote are never fenced."""
    term = term_of(live.fact)
    return term is not None and leaders.fences(live.position, term)
