"""A caller that waits for a view is not kept waiting when the view has stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.follower.moody import NO_ROOM
from tierstate.follower.progress import Progress
from tierstate.state.errors import TierstateError


@pytest.mark.parametrize("stop", [Progress.meets, Progress.fails])
def test_no_caller_waits_for_a_view_that_has_stopped(stop: Callable[[Progress, TierstateError], None]) -> None:
    progress, calls = Progress(), list[bool]()

    def reached() -> bool:
        calls.append(True)
        return False

    stop(progress, NO_ROOM)
    progress.wait(reached, 0.01)
    assert progress.stopped_by is NO_ROOM
    assert calls == []


def test_trouble_passes_and_a_failure_does_not() -> None:
    progress = Progress()
    progress.meets(NO_ROOM)
    progress.meets(None)
    assert progress.stopped_by is None
    failure = TierstateError("for good")
    progress.fails(failure)
    progress.meets(None)
    assert progress.stopped_by is failure
