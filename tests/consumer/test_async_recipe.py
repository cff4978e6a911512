"""The `async for` of docs/consumer.md, as it stands there."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tierstate.consumer.tiered_consumer import TieredConsumer

PAGE = Path(__file__).parents[2] / "docs" / "consumer.md"


@pytest.mark.kafka
def test_a_loop_that_is_left_in_the_middle_commits_only_what_it_saw(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("async")
    names: dict[str, Any] = {"asyncio": asyncio}
    text = PAGE.read_text()
    exec(text[(begins := text.index("async def records")) : text.index("```", begins)], names)

    async def read() -> list[int]:
        numbers: list[int] = []
        async with aclosing(names["records"](consumer)) as records:
            async for record in records:
                if len(numbers) == 130:
                    break
                numbers.append(record.offset())
        return numbers

    config = cluster.config(topic, auto_offset_reset="earliest", enable_auto_offset_store=False)
    with TieredConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert asyncio.run(read()) == list(range(130))
        assert consumer.commit(asynchronous=False)[0].offset == 130
