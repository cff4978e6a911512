"""The agent of a real broker: it copies all that is rolled, local files really go, plain consumers are protected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commits import commit
from tests.leader.real import RealTopic, eventually
from tierstate.rules.reasons import Reason
from tierstate.runtime.listener import LocalTrimmed, SegmentCopied
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import Unavailable
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka: KafkaSandbox, topic_name: str, tmp_path: Path) -> RealTopic:
    return RealTopic(kafka, topic_name[-80:].strip("-"), tmp_path / "store").create()


def test_everything_rolled_is_copied_and_the_broker_drops_its_files(topic: RealTopic) -> None:
    topic.append(20_000)
    before = topic.bases()
    assert len(before) > 10
    folder = topic.sandbox.brokers[0].log_dir / f"{topic.name}-0"
    rolled = b"".join((folder / f"{base:020d}.log").read_bytes() for base in before[:-1])
    with topic.agent() as job:
        job.run_once()
        view = topic.seen(job)
        assert [segment.offsets.start for segment in view.readable] == before[:-1]
        assert topic.remote_bytes(view) == rolled
        assert sum(segment.record_count for segment in view.readable) == before[-1]
        bounds = job.broker.control.bounds(topic.name, 0)
        assert bounds.local_start == view.copied_to + 1 == before[-1]
        assert view.log_start == 0
        status = job.leader.board.all()[0]
        assert (status.not_copied_reason, status.copied_to) == (Reason.ALL_COPIED, before[-1] - 1)
        assert (status.term or "").startswith("0/")
        assert sum(isinstance(event, SegmentCopied) for event in job.events) == len(before) - 1
        assert [event.offset for event in job.events if isinstance(event, LocalTrimmed)] == [before[-1]]
    eventually(lambda: topic.bases() == before[-1:])


def test_a_group_that_lags_holds_the_trim_and_is_named(topic: RealTopic) -> None:
    topic.append(6_000)
    bases = topic.bases()
    commit(topic.sandbox.client_config, "slow", topic.name, 0, bases[2] + 5)
    commit(topic.sandbox.client_config, "quick", topic.name, 0, 6_000)
    with topic.agent() as job:
        job.run_once()
        status = job.leader.board.all()[0]
        assert job.broker.control.bounds(topic.name, 0).local_start == bases[2]
        assert status.held_by == ("slow",)
        assert (status.not_trimmed or "").startswith(f"consumer group slow still reads there, at offset {bases[2] + 5}")
    commit(topic.sandbox.client_config, "slow", topic.name, 0, 6_000)
    with topic.agent() as job:
        job.run_once()
        assert job.broker.control.bounds(topic.name, 0).local_start == bases[-1]
        assert topic.seen(job).term is not None


def test_an_operator_who_deletes_records_inside_a_segment_stops_no_copy(topic: RealTopic) -> None:
    """Kafka cuts its epoch checkpoint there, so the batches below have epochs that it no longer knows."""
    topic.append(4_000)
    bases = topic.bases()
    with topic.agent() as job:
        job.broker.control.delete_records_on(job.leader.context.log.agent_id, topic.name, 0, Offset(bases[1] + 50))
        checkpoint = topic.sandbox.brokers[0].log_dir / f"{topic.name}-0" / "leader-epoch-checkpoint"
        eventually(lambda: checkpoint.read_text().split("\n")[2] == f"0 {bases[1] + 50}")
        job.run_once()
        view = topic.seen(job)
        assert view.log_start == bases[1] + 50
        assert view.copied_to == bases[-1] - 1
        assert job.broker.control.bounds(topic.name, 0).local_start == bases[-1]


def test_a_second_agent_beside_one_broker_is_refused(topic: RealTopic) -> None:
    def second() -> None:
        with topic.agent():
            pass

    with topic.agent(), pytest.raises(Unavailable, match="another agent"):
        second()
