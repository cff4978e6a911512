"""A claim of a process that changes the bucket, which ends when the objects move to another store (0108).

    write heartbeat -> look for a move -> change the bucket, for as long as the look is young enough

This order, and the reverse order of `migrate` (write the move, then wait for the heartbeats), leaves no change that
`migrate` does not see: a process either finds the move, or its heartbeat is waited for.
"""

from __future__ import annotations

from ..rules.observed import PrefixProof
from ..rules.prefix import PROOF_PERIODS, Contested
from ..rules.reasons import Reason, Why
from ..state.errors import Unavailable
from .move import Move, standstill
from .prefix_claim import PrefixClaim


class MovableClaim(PrefixClaim):
    """A `PrefixClaim` that forbids every change, also copies, while the objects move or if that is not known."""

    move: Move | None = None
    """The move for which this process changes nothing here. None: there is none, or it was cancelled."""
    _looked_s = float("-inf")
    _stopped = False

    @property
    def proof(self) -> PrefixProof:
        """The reasons not to copy, trim or delete now."""
        proof, moves = super().proof, self.move is not None and self.contested is None
        if (moves or proof.copy is None) and (why := self._no_look()) is not None:
            stands = Why(Reason.STORE_MOVES if moves else Reason.PREFIX_UNPROVEN, why)
            return PrefixProof(stands, stands, stands)
        return proof

    def check(self) -> None:
        """Raise PrefixContested if a person must decide, and Unavailable while the objects move."""
        super().check()
        if self.move is not None:
            raise Unavailable(f"nothing is changed in the bucket: {self._no_look()}")

    def _no_look(self) -> str | None:
        if self.move is not None:
            return f"its objects move to {self.move.target}: tierstate migrate ends or cancels that"
        if self._clock.monotonic() - self._looked_s >= PROOF_PERIODS * self._claimant.period_s:
            return f"no proof that its objects do not move to another store: {self._trouble or 'it is too old'}"
        return None

    def leave(self) -> None:
        """Do the same as `PrefixClaim.leave`. A heartbeat that was stopped for a move stays as it is."""
        with self._beating:
            self._over = self._over or self._stopped
        super().leave()

    def _beat(self) -> None:
        is_new = self._first_proof_s is None
        if (self._signature is None or self.move is not None) and self._stands_still(is_new):
            return
        super()._beat()
        self._stands_still(is_new)

    def _stands_still(self, is_new: bool) -> bool:
        """Look for a move, and stop for it. Return whether there is one."""
        now = self._clock.monotonic()
        move = standstill(self._store, new=is_new)
        if move is None:
            if self.move is not None:  # it was cancelled, or has arrived here
                self.move, self._stopped = None, False
                self._begin()
            self._looked_s = now
            return False
        if not self._is_here(move):
            self._verdict = Contested(f"another cluster moves the objects below this prefix to {move.target}")
            return True
        self.move = move  # from here on `proof` forbids every change, and so the heartbeat may end
        if self._signature is not None and not self._stopped:
            self._write(stopped=True)
            self._stopped = True
        return True
