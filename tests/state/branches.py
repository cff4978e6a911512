"""Logs of one partition as elections make them, clean and unclean: a tree of branches, and their facts.

Epoch and offset identify a record: only one leader writes an epoch.
"""

from __future__ import annotations

from itertools import takewhile
from random import Random

from tests.state.conftest import NOW, Build
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LogStartAdvanced
from tierstate.state.lineage import below
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.segment import RemoteSegment

Log = tuple[tuple[int, int], ...]
LONGEST = 12


class Branches:
    """``logs[e]`` is the whole log of the leader of epoch e: as it was at its election, with its own records."""

    def __init__(self, rnd: Random, epochs: int) -> None:
        self.rnd = rnd
        self.logs: list[Log] = []
        for epoch in range(epochs):
            log = self._inherited()
            self.logs.append(log + tuple((epoch, len(log) + at) for at in range(rnd.randrange(LONGEST))))

    def _inherited(self) -> Log:
        """Return all of the log before, or some of any: a lost folder leaves nothing."""
        rnd = self.rnd
        if not self.logs or rnd.random() < 0.05:
            return ()
        if rnd.random() < 0.6:
            return self.logs[-1]
        log = rnd.choice(self.logs)
        return log[: rnd.randint(0, len(log))]

    def lineage(self, epoch: int, local_start: int = 0) -> Lineage:
        """Return the leader's checkpoint from a local start on; with its own epoch, written or not."""
        log, starts = self.logs[epoch], dict[int, int]()
        for offset, (written_in, _) in enumerate(log):
            starts.setdefault(written_in, offset)
        starts.setdefault(epoch, len(log))
        whole = Lineage.of(*sorted(starts.items()))
        return Lineage.of(
            *(
                (entry.epoch, max(entry.start_offset, local_start))
                for at, entry in enumerate(whole.entries)
                if at + 1 == len(whole.entries) or whole.entries[at + 1].start_offset > local_start
            )
        )

    def common(self, one: int, other: int) -> int:
        """Return how many first records two logs have in common."""
        pairs = zip(self.logs[one], self.logs[other], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def log_start(self, build: Build, epoch: int, offset: int, lineage: Lineage | None = None) -> LogStartAdvanced:
        """Return the log start of this epoch's term, at a position of its own."""
        term = build.term(epoch, 10 * epoch)
        epochs = below(self.lineage(epoch) if lineage is None else lineage, Offset(offset))
        return LogStartAdvanced(build.partition, Offset(offset), term, offset, "retention-time", NOW, epochs)

    def segment(self, build: Build, number: int, epoch: int, start: int, end: int) -> RemoteSegment:
        """Return the segment of offsets start..end of that leader's log."""
        inside = self.lineage(epoch).within(OffsetRange(Offset(start), Offset(end)))
        return build.segment(number, build.term(epoch, 10 * epoch), start, end, inside)
