"""Java's consumer, which validates epochs: through the proxy it learns of a lost log exactly where a twin's does.

The twin is a topic that was never tiered, on the same brokers, with the same records; its consumer reads at the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.leader.real import eventually
from tests.proxy.java_programs import Readers
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.test_unclean_elections import PER_SEGMENT, ROLLED_BY_SIZE, lost, produces
from tierstate.broker.answers import RawOffset
from tierstate.broker.raw import EARLIEST, RawClient
from tierstate.runtime.clock import SystemClock
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import TimestampMs

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@contextmanager
def beside_its_twin(story: Story, offsets: list[int]) -> Iterator[tuple[Readers, Readers]]:
    """Yield readers through the proxy, and the twin's at the broker."""
    topic = story.topic("orders")
    assert topic.twin is not None
    both = (
        Readers(story.eyes.proxied["bootstrap.servers"], topic.name, offsets),
        Readers(story.sandbox.bootstrap, topic.twin, offsets),
    )
    try:
        yield both
    finally:
        for each in both:
            each.close()


def read(both: tuple[Readers, Readers], records: int) -> list[str]:
    """Return the records of both, which are the same."""
    for each in both:
        each.begin(records)
    through, twin = (each.said() for each in both)
    assert through == twin
    return through


def records(story: Story, first: int, end: int) -> str:
    """Return records in the form of the Java program."""
    written = story.topic("orders").written[0]
    return " ".join(f"{offset}:{written[offset].value.decode()}" for offset in range(first, end))


def said_of_times(bootstrap: str, topic: str, times: list[TimestampMs], leader: int) -> list[RawOffset]:
    """Return the first offset of each time, and its epoch."""
    with closing(RawClient({"bootstrap.servers": bootstrap}, SystemClock())) as client:
        return [client.list_offset(BrokerId(leader), topic, 0, each) for each in times]


@observes(Effect.COPIED, Effect.TRIMMED, Effect.LEADER_MOVED)
def test_clean_elections_while_it_reads_the_remote_tier_are_nothing_to_it(story_three: Story) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1, 2], twin=True)
    name = story_three.topic("orders").name
    produces(story_three, 9)
    when.agent(0).works()
    for leader in (1, 2):
        for each in (name, f"twin-{name}"):
            story_three.admin.reassign(each, 0, [leader, *({0, 1, 2} - {leader})])
            story_three.admin.leads(each, 0, leader)
        story_three.seen[Effect.LEADER_MOVED] += 1
        produces(story_three, 8)
        when.agent(leader).works()
    then.local("orders").starts_at(24)
    times = [EARLIEST, *(TimestampMs(written.timestamp) for written in story_three.topic("orders").written[0].values())]
    through = said_of_times(story_three.eyes.proxied["bootstrap.servers"], name, times, 3)
    assert through == said_of_times(story_three.sandbox.bootstrap, f"twin-{name}", times, 3)
    assert len({each.leader_epoch for each in through if each.offset < 24}) == 3
    with beside_its_twin(story_three, [0, 7, 10]) as both:
        assert read(both, 4) == [records(story_three, at, at + 4) for at in (0, 7, 10)]
        for each in (name, f"twin-{name}"):
            story_three.admin.reassign(each, 0, [0, 1, 2])
            story_three.admin.leads(each, 0, 0)
        assert read(both, 4) == [records(story_three, at + 4, at + 8) for at in (0, 7, 10)]
        when.broker_is_killed(0)
        try:
            eventually(lambda: when.leads("orders") != 0, 90)
            assert read(both, 7) == [records(story_three, at + 8, at + 15) for at in (0, 7, 10)]
        finally:
            when.broker_starts(0)


@observes(Effect.COPIED, Effect.TRIMMED, Effect.BROKER_DOWN)
def test_an_unclean_election_ends_it_where_it_ends_the_twins(story_three: Story) -> None:
    """One reads common records of both branches, the others are at lost ones: remote, and on the broker."""
    given, when, then = story_three
    given.settings(trim={"allow_unclean": True})
    unclean = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1", **ROLLED_BY_SIZE}
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1], twin=True, **unclean)
    name = story_three.topic("orders").name
    produces(story_three, 9)
    when.broker_stops(1)
    produces(story_three, 12)  # 9..20, on broker 0 alone
    when.agent(0).works()
    then.local("orders").starts_at(20)
    with beside_its_twin(story_three, [1, 9, 11, 18]) as both:
        before = read(both, 2)
        assert before == [records(story_three, at, at + 2) for at in (1, 9, 11, 18)]
        when.agent_dies(0)
        when.broker_is_killed(0)
        lost(story_three, 9)
        when.broker_starts(1)
        for each in (name, f"twin-{name}"):
            eventually(lambda each=each: story_three.admin.leader(each, 0) == 1, 90)
        produces(story_three, 8)  # 9..16 again, of another branch
        when.agent(1).works()
        then.local("orders").starts_at(16)  # with it the broker forgot where the epochs diverge
        after = read(both, 3)
        assert after[0] == records(story_three, 3, 6)
        assert after[1:] == [f"truncated at {at} to 9" for at in (11, 13, 20)]
        assert read(both, 4) == [records(story_three, at, at + 4) for at in (6, 9, 9, 9)]
