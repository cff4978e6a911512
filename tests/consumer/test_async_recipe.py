"""The `async for` of docs/consumer.md, as it stands there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.consumer.tiered_cluster import TieredCluster
from tierstate.consumer.tiered_consumer import TieredConsumer

PAGE = Path(__file__).parents[2] / "docs" / "consumer.md"


def recipe() -> Callable[[TieredConsumer], AsyncGenerator[Any, None]]:
    names: dict[str, Any] = {"asyncio": asyncio, "confluent_kafka": confluent_kafka}
    text = PAGE.read_text()
    exec(text[(begins := text.index("async def records")) : text.index("```", begins)], names)
    records: Callable[[TieredConsumer], AsyncGenerator[Any, None]] = names["records"]
    return records


@pytest.mark.kafka
def test_an_error_of_a_partition_ends_the_loop(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("async-error")

    async def read() -> None:
        async for record in recipe()(consumer):
            raise AssertionError(f"a record past the end: {record.offset()}")

    config = cluster.config(topic, auto_offset_reset="error", enable_auto_offset_store=False)
    with TieredConsumer(config) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 1_000_000)])
        with pytest.raises(confluent_kafka.KafkaException, match="_AUTO_OFFSET_RESET"):
            asyncio.run(read())


@pytest.mark.kafka
def test_a_loop_that_is_left_in_the_middle_commits_only_what_it_saw(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("async")

    async def read() -> list[int]:
        numbers: list[int] = []
        async with aclosing(recipe()(consumer)) as records:
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
