"""The agent of a new leader is down: records that the broker confirms are read, a branch it lost is never served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.gateways import asgi_call
from tests.leader.real import eventually
from tests.scenarios.house import Done, run
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.test_unclean_elections import PER_SEGMENT, ROLLED_BY_SIZE, by_consumer, by_gateway, lost, produces
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.fetch.local import BrokerTier
from tierstate.fetch.reader import records
from tierstate.fetch.split import read_split
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.spark.options import parse_options
from tierstate.spark.planning import plan_groups
from tierstate.state.errors import LineageUnconfirmed, TierstateError

pytestmark = pytest.mark.kafka


def by_command(story: Story, folder: Path, *more: str) -> Done:
    """Run ``tierstate consume``, from the beginning to the end."""
    cluster, config = story.cluster, folder / "tierstate.toml"
    config.write_text(
        f'state_dir = "{folder / "state"}"\n[kafka]\n"bootstrap.servers" = "{story.sandbox.bootstrap}"\n'
        f'[store]\nurl = "{cluster.store_folder.as_uri()}"\n'
        f'[tier_state]\ntopic = "{cluster.spec.name}"\npartitions = 2\n'
    )
    call = ("consume", f"{story.topic('orders').name}:0", "--format", "%o %s\\n", *more)
    return run(*call, "--config", str(config))


def by_spark(story: Story, end: int) -> dict[int, bytes]:
    """Read with a plan as its driver makes it, by its executors' code."""
    cluster, name = story.cluster, story.topic("orders").name
    options = parse_options(
        {f"kafka.{key}": value for key, value in story.sandbox.client_config.items()}
        | {"subscribe": name, "tierstate.store": cluster.store_folder.as_uri()}
        | {"tierstate.tier_state_topic": cluster.spec.name}
    )
    values = dict[int, bytes]()
    for group in plan_groups(options, SystemClock()):
        for split in group:
            for piece in read_split(split, cluster.store, BrokerTier(story.eyes.broker)):
                for batch in records(piece, name, 0):
                    rows = batch.select(["offset", "value"]).to_pylist()
                    values |= {row["offset"]: row["value"] for row in rows if row["offset"] < end}
    return values


EVERY_ROUTE: list[Callable[[Story, int], dict[int, bytes]]] = [by_consumer, by_gateway, by_spark]


def everybody_reads_all(story: Story, folder: Path) -> None:
    truth = story.topic("orders").truth(0, 0, end := len(story.topic("orders").written[0]))
    for route in EVERY_ROUTE:
        assert route(story, end) == truth, route
    done = by_command(story, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{offset} {value.decode()}\n" for offset, value in truth.items())


@observes(Effect.COPIED, Effect.TRIMMED, Effect.LEADER_MOVED, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_after_a_clean_election_reads_go_on_though_the_new_leaders_agent_is_down(
    story_three: Story, tmp_path: Path
) -> None:
    given, when, then = story_three
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1, 2])
    produces(story_three, 9)
    when.agent(0).works()
    then.local("orders").starts_at(8)
    when.leadership("orders", to=1)
    then.reader("orders").reads_from(0, total=9, remote=8)
    everybody_reads_all(story_three, tmp_path)
    produces(story_three, 8)
    when.leadership("orders", to=2)
    then.reader("orders").reads_from(0, total=17, remote=8)
    term = then.remote("orders").view.term
    assert term.epoch < then.remote("orders").bounds.leader_epoch, "an agent said something"
    when.agent(2).works()
    then.reader("orders").reads_from(0, total=17, remote=16)


@pytest.mark.slow
@observes(Effect.COPIED, Effect.BROKER_DOWN, Effect.REMOTE_READ, Effect.LOCAL_READ)
def test_after_an_unclean_one_a_branch_that_was_lost_is_refused_by_every_route(
    story_three: Story, tmp_path: Path
) -> None:
    given, when, then = story_three
    unclean = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1", **ROLLED_BY_SIZE}
    given.topic("orders", per_segment=PER_SEGMENT, brokers=[0, 1], **unclean)
    name = story_three.topic("orders").name
    produces(story_three, 9)
    when.broker_stops(1)
    produces(story_three, 8)  # 9..16, on broker 0 alone
    when.agent(0).works()
    then.remote("orders").holds(0, 15)
    when.broker_is_killed(0)
    lost(story_three, 9)
    when.broker_starts(1)
    eventually(lambda: when.leads("orders") == 1, 90)
    produces(story_three, 8)  # 9..16 again, of another branch

    when.operator_deletes_records("orders", before=5)
    then.reader("orders").reads_from(0, total=17, remote=5)  # the common records of both branches
    everybody_reads_all(story_three, tmp_path)

    when.operator_deletes_records("orders", before=14)
    refused_by_every_route(story_three, tmp_path)
    then.reader("orders").reads_from(14, total=3, remote=0)

    when.agent(1).works()
    then.reader("orders").reads_from(14, total=3, remote=0)
    for offset in range(14):
        with pytest.raises(TierstateError) as refused:
            story_three.eyes.reader.fetch(name, 0, offset)
        assert not isinstance(refused.value, LineageUnconfirmed), "its agent has spoken"
    when.broker_starts(0)


def refused_by_every_route(story: Story, folder: Path) -> None:
    name = story.topic("orders").name
    for route in (by_consumer, by_spark):
        with pytest.raises(LineageUnconfirmed, match="the agent of the broker that leads may be down"):
            route(story, 17)
    for offset in range(9, 14):
        with pytest.raises(LineageUnconfirmed):
            story.eyes.reader.fetch(name, 0, offset)
    service = FetchService(story.eyes.reader, Gateway(), SystemClock(), hidden=())
    call: Any = asgi_call(create_app(service))
    for offset in (9, 13):
        answer = call(f"/v1/topics/{name}/partitions/0/records", offset=offset)
        assert (answer.status_code, answer.json()["error"]) == (503, "LineageUnconfirmed"), answer.text
        assert int(answer.headers["retry-after"]) > 0
    for offset in (8, 14):  # the gateway asked while the broker still knew where it had left the lost branch
        assert call(f"/v1/topics/{name}/partitions/0/records", offset=offset).status_code == 200
    service.close()
    done = by_command(story, folder)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "has no term yet" in done.stderr
