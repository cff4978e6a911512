"""The core of the scenarios on Kafka 3.9.1, word for word those that run on the newest release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios import test_kip405_deletion as deletion
from tests.scenarios import test_kip405_offload as offload
from tests.scenarios import test_operators as operators
from tests.scenarios import test_transactions_pin as transactions
from tests.scenarios.story import Story, telling
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BY_SIZE, BY_TIME = {"limit": {"retention_bytes": "1"}}, {"limit": {"retention_ms": "1"}}
CORE: list[tuple[Callable[..., None], dict[str, Any]]] = [
    (offload.test_a_topic_that_is_included_later_is_offloaded_with_its_backlog, {}),
    (offload.test_partitions_that_a_topic_gets_later_are_offloaded_as_its_first, {}),
    (offload.test_offsets_are_found_over_both_tiers, {}),
    (offload.test_copying_is_paused_resumed_and_given_up_with_and_without_the_remote_tier, {}),
    (deletion.test_retention_deletes_every_remote_segment_and_a_record_of_the_future_stays_local, BY_SIZE),
    (deletion.test_retention_deletes_every_remote_segment_and_a_record_of_the_future_stays_local, BY_TIME),
    (deletion.test_a_log_start_inside_a_segment_deletes_those_below_and_reads_the_rest_of_that_one, {}),
    (deletion.test_a_deleted_topic_leaves_no_object_of_any_of_its_partitions, {}),
    (transactions.test_an_open_transaction_pins_the_copy_and_is_the_reason_shown_until_it_ends, {}),
    (transactions.test_interleaved_transactions_read_alike_wherever_their_markers_lie, {}),
    (operators.test_delete_records_on_the_broker_deletes_nothing_remote_and_is_all_readable_as_before, {}),
    (operators.test_delete_records_of_ours_moves_both_tiers_to_exactly_that_offset, {}),
    (operators.test_a_segment_rolled_by_time_is_copied_from_a_topic_that_is_idle_since, {}),
]


@pytest.fixture
def story_older(kafka_older: KafkaSandbox, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    with telling(kafka_older, tmp_path, request.node.name) as new_story:
        yield new_story


@pytest.mark.parametrize(("scenario", "arguments"), CORE, ids=lambda each: getattr(each, "__name__", "")[5:50])
def test_it_holds_on_kafka_3_9(story_older: Story, scenario: Callable[..., None], arguments: dict[str, Any]) -> None:
    scenario(story=story_older, **arguments)


def test_a_bounce_on_kafka_3_9(story_older: Story) -> None:
    offload.test_what_was_offloaded_is_consumed_from_the_middle_of_a_segment_after_a_bounce(story_own=story_older)
    assert "Kafka version: 3.9.1" in story_older.sandbox.brokers[0].log_file.read_text()
