"""A broker dies: the agent of the new leader goes on under a new term, without a gap; old segments stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leader.real import RealTopic, eventually
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import Unavailable
from tierstate.state.offsets import Offset, OffsetRange

pytestmark = pytest.mark.kafka


def next_leader(topic: RealTopic, asked: int, old: int) -> int | None:
    """Return None while the cluster has none, or no controller to ask: the dead broker may have been it."""
    try:
        with topic.agent(asked) as probe:
            leader = topic.leads(probe.broker)
    except Unavailable:
        return None
    return None if leader == old else leader


def test_the_agent_of_the_new_leader_goes_on_without_a_gap(
    kafka_three: KafkaSandbox, topic_name: str, tmp_path: Path
) -> None:
    topic = RealTopic(kafka_three, topic_name[-80:].strip("-"), tmp_path / "store").create()
    topic.append(6_000)
    with topic.agent() as probe:
        old = topic.leads(probe.broker)
    assert old is not None
    with topic.agent(old) as job:
        job.run_once()
        first = topic.seen(job)
        assert first.copied_to == topic.bases(old)[-1] - 1
    kafka_three.kill(old)  # and never started again: only this test uses the cluster
    other = (old + 1) % 3
    eventually(lambda: next_leader(topic, other, old) is not None)
    new = next_leader(topic, other, old)
    assert new is not None
    topic.append(6_000)
    with topic.agent(new) as job:
        job.run_once()
        view = topic.seen(job)
        bounds = job.broker.control.bounds(topic.name, 0)
        assert view.term is not None
        assert first.term is not None
        assert view.term.order > first.term.order
        assert view.term.epoch > first.term.epoch
        # the broker's own checkpoint lost the old epoch with the trim; the logical lineage kept it
        checkpoint = (kafka_three.brokers[new].log_dir / f"{topic.name}-0" / "leader-epoch-checkpoint").read_text()
        assert f"{first.term.epoch} 0" not in checkpoint
        assert view.lineage.epoch_at(0) == first.term.epoch
        assert not view.lineage_unknown
        assert view.copied_to == bounds.local_start - 1 > first.copied_to
        assert view.coverage.gaps(OffsetRange(Offset(0), Offset(bounds.local_start - 1))) == []
        assert all(view.coverage.at(segment.offsets.start) is not None for segment in first.readable)
