"""A broker's log start above all that we trimmed is reported, and no other."""

from __future__ import annotations

import pytest

from tierstate.rules.trim import cut_elsewhere
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView

PARTITION = TopicIdPartition(TopicId("MWJ6FHTfRYy67jzwZdeqSQ"), 3)


def told(log_start: int | None, trimmed: int | None, local_start: int | None) -> str | None:
    def offset(number: int | None) -> Offset | None:
        return None if number is None else Offset(number)

    view = PartitionView(PARTITION, log_start=offset(log_start), trim_intended=offset(trimmed))
    return cut_elsewhere(view, "orders", offset(local_start))


@pytest.mark.parametrize(
    ("log_start", "trimmed", "local_start"),
    [(None, None, 7), (0, 50, None), (0, 50, 50), (0, 50, 40), (60, 50, 60), (0, None, 0)],
    ids=["no-term-yet", "silent-broker", "our-trim", "below-our-trim", "our-delete-records", "whole"],
)
def test_our_own_trims_are_not_reported(log_start: int | None, trimmed: int | None, local_start: int | None) -> None:
    assert told(log_start, trimmed, local_start) is None


@pytest.mark.parametrize(("log_start", "trimmed"), [(0, 50), (55, 50), (0, None)])
def test_a_foreign_start_is_reported_with_the_command_that_extends_it(log_start: int, trimmed: int | None) -> None:
    message = told(log_start, trimmed, 60)
    assert message is not None
    assert message.endswith("tierstate delete-records orders:3 --before 60 --execute")
    assert f"our newest trim {trimmed}" in message or trimmed is None
