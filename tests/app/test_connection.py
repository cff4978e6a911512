"""Which part of the tier-state topic a command reads before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.opening.connection import Advance, Connection
from tierstate.runtime.settings import Settings
from tierstate.state.ids import TopicId, TopicIdPartition

PLACE = TopicIdPartition(TopicId.of(bytes(16)), 0)


@pytest.mark.parametrize(("partitions", "read"), [(None, 4), ([PLACE, PLACE], 1), ([], 0)])
def test_a_view_reads_what_it_is_asked_for_and_nothing_where_that_is_nothing(
    partitions: list[TopicIdPartition] | None, read: int
) -> None:
    """An empty list occurs if no topic matches a pattern of Spark's."""
    said: list[int | None] = []

    @contextmanager
    def progress(label: str, total: int | None = None, /) -> Iterator[Advance]:
        said.append(total)
        yield lambda amount: None

    with Connection(Settings(), progress=progress) as connection:
        vars(connection)["topic"] = MemoryTierTopic(4)
        connection.view(partitions)
    assert said == [read]
