"""A partition's status between looks."""

from __future__ import annotations

from tierstate.leader.status import PartitionStatus
from tierstate.rules.reasons import Reason, Why


def test_a_status_is_rebuilt_only_when_it_changes() -> None:
    waits = Why(Reason.PAUSED, "paused")
    status = PartitionStatus("orders", 3, "id", leads=True).because(not_copied=waits, not_trimmed=waits)
    same = status.because(not_copied=waits, not_trimmed=waits, refused=None)
    assert same.saying(leads=True) is same is status
    again = status.because(not_trimmed=None)
    assert (again.not_copied, again.not_trimmed, again.not_trimmed_reason) == ("paused", None, None)
    assert status.saying(leads=False).leads is False
