"""Histories of agents that copy by Fetch, step by step. Each returns what broke, or None."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from tests.histories.replica import Written
from tests.histories.small_fetched import SmallFetchedWorld
from tests.histories.steady import finish

Told = Callable[[SmallFetchedWorld], object]


def _told(tell: Told) -> Callable[[], str | None]:
    """Return a function that tells a history, lets the agents finish, and returns the promise that broke, or None."""

    @wraps(tell)
    def find() -> str | None:
        world = SmallFetchedWorld(2)
        try:
            tell(world)
            world.check_topics()
            if world.cluster.exists:
                finish(world)
                world.check_indexes()
        except AssertionError as error:
            return str(error)
        finally:
            world.close()
        return None

    return find


def _elect_unclean(world: SmallFetchedWorld, broker: int, segments: int) -> None:
    """Elect a broker with the log that it has. Then produce into so many segments."""
    cluster = world.cluster
    for each in cluster.brokers:
        each.online = False
    cluster.unclean += 1
    cluster.elect_broker(cluster.brokers[broker])
    for _ in range(segments):
        cluster.produce()


@_told
def an_owner_that_was_frozen(world: SmallFetchedWorld) -> None:
    """An agent freezes right before it begins a term. Another one takes over and copies; then the first one goes on."""
    frozen = world.frozen_before("append leader-elected")
    world.swap()
    other = str(world.responsible())
    assert other != str(frozen.broker)
    world.take(f"{other}*")
    frozen.step()


@_told
def a_log_that_ends_below_what_was_copied(world: SmallFetchedWorld) -> None:
    """After an unclean election the leader's log ends below what was copied of the lost branch."""
    world.cluster.brokers[2].online = False
    world.cluster.brokers[2].truncate_to(4)
    world.take("0*")
    _elect_unclean(world, 2, segments=0)
    world.take("0*")


@_told
def a_spool_of_a_lost_branch(world: SmallFetchedWorld) -> None:
    """An unclean election replaces records that are in the spool and not copied."""
    world.cluster.brokers[2].online = False
    world.cluster.brokers[2].truncate_to(4)
    world.frozen_before("append copy-started")
    _elect_unclean(world, 2, segments=3)
    world.take("0*")


@_told
def a_topic_of_the_same_name(world: SmallFetchedWorld) -> None:
    """The topic is deleted and created again under its name, right before a trim. Its leader and epoch are the same."""
    frozen = world.frozen_before("delete-records")
    world.cluster.exists = False
    world.create_again()
    frozen.step()


@_told
def a_trim_of_another_epoch(world: SmallFetchedWorld) -> None:
    """A broker loses a branch of its log and leads again, while an agent is right before a trim."""
    frozen = world.frozen_before("delete-records")
    world.cluster.brokers[1].truncate_to(1)
    _elect_unclean(world, 1, segments=6)
    world.cluster.toggle_on(0)
    world.cluster.elect_broker(world.cluster.brokers[0])
    frozen.step()


def _late(world: SmallFetchedWorld) -> None:
    """A DeleteRecords is on its way while its broker loses a branch of its log and leads again."""
    cluster = world.cluster
    late = cluster.leader.number, cluster.epoch, cluster.leader.bases[-1]
    world.take("0*")
    cluster.brokers[1].truncate_to(1)
    _elect_unclean(world, 1, segments=6)
    cluster.toggle_on(0)
    cluster.elect_broker(cluster.brokers[0])
    cluster.trim(*late)


@_told
def a_trim_that_dies_with_its_socket(world: SmallFetchedWorld) -> None:
    """The deadline of the request is over before the elections."""
    _late(world)


@_told
def a_trim_that_arrives_late(world: SmallFetchedWorld) -> None:
    """The request outlives its deadline: it names no epoch and no topic id, and so it is carried out."""
    world.cluster.fences_trims = False
    _late(world)


@_told
def a_first_start_inside_an_open_transaction(world: SmallFetchedWorld) -> None:
    """The log starts inside the only batch of a transaction that ends after the first Fetch, and is aborted."""
    cluster = world.cluster
    end = cluster.leader.end
    append(world, 2, producer=7)
    append(world, 3)
    cluster.order(end + 3)
    cluster.trim(cluster.leader.number, cluster.epoch, end + 3)
    world.take("0*")
    append(world, 1, producer=7, is_marker=True)
    cluster.produce()


@_told
def a_snapshot_of_a_lost_branch(world: SmallFetchedWorld) -> None:
    """An agent has the snapshot of a lost branch at an offset up to which another agent copied the new branch."""
    world.cluster.brokers[2].online = False
    world.take("0*")
    append(world, 2, producer=7)
    append(world, 2)
    append(world, 4, roll=True)
    world.take("0*")
    world.swap()
    _elect_unclean(world, 2, segments=0)
    append(world, 4)
    append(world, 2, producer=7, roll=True)
    world.take("1*")
    world.clock.advance(60)
    world.take("1*")
    world.swap()
    append(world, 1, producer=7, is_marker=True)
    append(world, 4, roll=True)
    world.take("0*")


def append(
    world: SmallFetchedWorld, count: int, producer: int = -1, *, roll: bool = False, is_marker: bool = False
) -> None:
    """Write a batch to all brokers in sync. Transactions abort."""
    cluster = world.cluster
    cluster.written += 1
    now, aborts = world.clock.now_ms(), producer >= 0
    batch = Written(cluster.written, cluster.leader.end, count, cluster.epoch, now, producer, aborts, is_marker)
    cluster.ledger[batch.data] = batch
    for broker in cluster.brokers:
        if broker.online:
            broker.append(batch, roll)


DIRECTED_FETCH = {
    "owned before a term": an_owner_that_was_frozen,
    "copied of this log": a_log_that_ends_below_what_was_copied,
    "a spool for each epoch": a_spool_of_a_lost_branch,
    "fetched by topic id": a_topic_of_the_same_name,
    "snapshots name their log": a_snapshot_of_a_lost_branch,
    "open where the spool begins": a_first_start_inside_an_open_transaction,
}
