"""A term in every leader epoch, so that the log's past stays known; and people's decisions where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.expiry import say_order
from tests.leader.test_hosting import hosted
from tests.leader.world import Process, World
from tests.state.conftest import Build
from tierstate.leader.other_replicas import epochs_of, lineage_in_answer, lineages_elsewhere
from tierstate.rules.lineages import begun_on_an_empty_log, unknown_of
from tierstate.rules.orders import lost_orders
from tierstate.rules.reasons import Reason
from tierstate.runtime.listener import GapFound, TermEnded
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import LeaderElected, LineageSettled, LiveFact, OrderKind
from tierstate.state.ids import RECOVERER, BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.lineage import compose
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs

NewWorld = Callable[..., World]


def retention_takes_all(world: World) -> None:
    """Apply Kafka's own retention to the active segment too. The checkpoint keeps the last epoch, at the end."""
    world.broker.delete_records_on(BrokerId(1), world.name, 0, Offset(world.end()))
    epoch, end = world.checkpoint()[-1][0], world.end()
    for file in world.folder.glob("*.*"):
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            file.unlink()
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        world.file(end, suffix).write_bytes(b"")
    world.write_checkpoint((epoch, end))


def away_for_an_epoch(world: World) -> Process:
    """Copy and trim; then comes an epoch that no agent saw and Kafka does not keep; then a new leadership."""
    world.process().work()
    world.retire()
    world.elect_here()
    retention_takes_all(world)
    world.elect_here()
    process = world.process()
    process.work()
    assert world.view().lineage_unknown
    return process


def settle(world: World, process: Process, lineage: Lineage) -> str:
    """Append a settled lineage that reaches the agent."""
    fact = LineageSettled(world.partition, FactId.of(b"settled by a man"), lineage, "ops", TimestampMs(7))
    world.topic.append(0, key_of(fact), encode_fact(fact))
    process.view.require_fresh(0, 0)
    return key_of(fact)


def test_a_partition_with_nothing_to_do_has_a_term(new_world: NewWorld) -> None:
    world = new_world("big")
    process = world.process()
    process.work()
    assert [key.split("/")[2] for key in world.topic.keys()] == ["leader", "log-start"]
    assert process.status().not_copied_reason == Reason.ALL_COPIED


def test_a_new_leader_epoch_is_a_new_term_though_nothing_is_to_be_done_and_the_agent_never_stopped(
    new_world: NewWorld,
) -> None:
    world = new_world("none")
    process = world.process()
    worker = process.work()
    world.elect_here()
    process.work(worker)
    term = world.view().term
    assert term is not None
    assert term.epoch == world.checkpoint()[-1][0]
    assert [event.reason for event in process.events if isinstance(event, TermEnded)] == ["the leader epoch changed"]
    appends_before = world.topic.appends
    process.work(worker)
    assert world.topic.appends == appends_before, "one fact a leadership"


def test_remote_records_stay_readable_when_retention_takes_the_rest(new_world: NewWorld) -> None:
    world = new_world("epochs", {"local.retention.bytes": "0"})
    process = world.process()
    worker = process.work()
    world.retire()
    world.elect_here()
    process.work(worker)
    retention_takes_all(world)
    process.work(worker)
    for _ in range(2):  # on a log that is empty, an epoch takes the place of the one before it
        world.elect_here()
        process.work(worker)
    view = world.view()
    assert not view.lineage_unknown
    assert view.coverage.prefix_end(0) == view.readable[-1].offsets.end
    assert view.lineage.entries[0].start_offset == 0


def test_the_start_of_an_emptied_log_is_written_without_remote_records(new_world: NewWorld) -> None:
    """A copy may be remote of which the agent does not know yet that it ended."""
    world = new_world("big")
    process = world.process()
    worker = process.work()
    retention_takes_all(world)
    process.work(worker)
    leader = world.view().leader
    assert leader is not None
    assert leader.local_start == world.end() > 0


def test_an_agent_names_once_the_offsets_that_left_the_broker_uncopied(new_world: NewWorld) -> None:
    world = new_world("big")
    process = world.process()
    worker = process.work()
    retention_takes_all(world)
    for _ in range(2):
        process.work(worker)
    gaps = [event for event in process.events if isinstance(event, GapFound)]
    assert gaps == [GapFound(world.partition, world.name, OffsetRange(Offset(0), Offset(world.end() - 1)))]
    again = world.process()
    again.work()
    assert gaps[0] in again.events, "an agent that starts names it again"


def test_offsets_that_retention_passes_are_no_gap(new_world: NewWorld) -> None:
    world = new_world("big", {"retention.ms": "1000"})
    process = world.process()
    worker = process.work()
    retention_takes_all(world)
    world.clock.advance(10**8)  # to a time at which the records are older than that
    process.work(worker)
    assert world.view().log_start == world.end()
    assert not [event for event in process.events if isinstance(event, GapFound)]


@pytest.mark.parametrize(("knew", "goes_on"), [(((0, 0), (2, 12)), True), (((0, 0), (2, 12), (3, 19)), False)])
def test_an_epoch_goes_on_where_the_log_began_only_if_the_newest_term_knew_nothing_above(
    knew: tuple[tuple[int, int], ...], goes_on: bool
) -> None:
    """A log with an epoch above its beginning was not empty: another branch may have been cut at the same offset."""
    build = Build()
    view = build.view(replace_fact(build.leader(0, 3, lineage=Lineage.of(*knew)), local_start=Offset(15)))
    entry = begun_on_an_empty_log(view, Lineage.of((4, 15)))
    assert entry == (Lineage.of(*knew, (4, 15)) if goes_on else None)


def test_a_term_of_a_recovery_does_not_say_how_the_next_epoch_began() -> None:
    """It names the present log start; the epoch may have begun below that, on another branch."""
    build = Build()
    recovered = replace_fact(
        build.leader(0, 3, lineage=Lineage.of((0, 0))), local_start=Offset(15), broker_id=RECOVERER
    )
    assert begun_on_an_empty_log(build.view(recovered), Lineage.of((4, 15))) is None


def replace_fact(live: LiveFact, **changes: Any) -> LiveFact:
    return replace(live, fact=replace(live.fact, **changes))


def test_a_lineage_that_a_person_settles_makes_everything_readable_again(world: World) -> None:
    process = away_for_an_epoch(world)
    worker = process.work()
    assert worker.last_error is None
    unknown = world.view().lineage.entries
    epochs = max((f for f in facts(world) if not f.lineage.entries[0].start_offset), key=lambda f: f.epoch).lineage
    key = settle(world, process, Lineage((*epochs.entries, unknown[0])))
    process.work(worker)
    view = world.view()
    assert not view.lineage_unknown
    assert view.lineage.entries == (*epochs.entries, *unknown)
    assert view.coverage.prefix_end(0) == view.readable[-1].offsets.end
    process.work(worker)
    assert key not in {live.key for live in process.view.facts(world.partition)}, "the term carries it on"


def facts(world: World) -> list[LeaderElected]:
    return [live.fact for live in world.view().others if isinstance(live.fact, LeaderElected)]


def test_a_person_may_say_that_what_is_below_is_another_log(world: World) -> None:
    process = away_for_an_epoch(world)
    worker = process.work()
    before = world.view()
    key = settle(world, process, Lineage(before.lineage.entries[:1]))
    process.work(worker)
    view = world.view()
    assert not view.lineage_unknown
    assert (view.term, view.coverage.owned) == (before.term, ())
    assert key in {live.key for live in process.view.facts(world.partition)}, "it stands while that is there"
    assert len(world.objects()) == 3 * len(view.readable), "nothing is deleted by it"
    world.elect_here()
    process.work(worker)
    assert not world.view().lineage_unknown


def test_an_order_to_delete_is_a_way_out_of_an_unknown_lineage(world: World) -> None:
    process = away_for_an_epoch(world)
    worker = process.work()
    say_order(world, OrderKind.DELETE_RECORDS, world.end())
    process.view.require_fresh(0, 0)
    for _ in range(3):
        process.work(worker)
        world.clock.advance(120)
    view = world.view()
    assert (view.log_start, view.lineage_unknown, view.orders) == (world.end(), False, ())
    assert world.objects() == set()


def test_an_order_that_was_given_for_another_log_is_not_carried_out_on_one_of_unknown_past(world: World) -> None:
    process = away_for_an_epoch(world)
    say_order(world, OrderKind.DELETE_RECORDS, before=world.end(), lineage=Lineage.of((99, 0)))
    process.work()
    assert world.view().log_start == 0
    [(why, _)] = lost_orders(world.view())
    assert why == "nothing shows that the records it was given for are of this log: give it again"


def test_checkpoints_of_other_replicas_are_asked_only_when_no_fact_knows(world: World) -> None:
    requests: list[str] = []
    process = away_for_an_epoch(world)

    def others(partition: object, name: str) -> list[Lineage]:
        requests.append(name)
        return [Lineage.of((0, 0), world.checkpoint()[0])]

    heir = world.process()
    object.__setattr__(heir.context, "other_replicas", others)
    worker = heir.work()
    assert requests == [], "the term in force is of this very epoch"
    world.elect_here()
    heir.work(worker)
    assert requests == [world.name]
    assert not world.view().lineage_unknown
    world.elect_here()
    heir.work(worker)
    assert requests == [world.name]
    assert process.status().term != heir.status().term


def test_a_topic_that_is_refused_begins_no_term_unless_facts_stand(new_world: NewWorld) -> None:
    world = new_world("none", {"cleanup.policy": "compact"})
    world.process().work()
    assert world.topic.appends == 0
    other = new_world("none")
    other.process().work()
    other.broker.configure(other.name, {"cleanup.policy": "compact"})
    other.elect_here()
    other.process().work()
    term = other.view().term
    assert term is not None
    assert term.epoch == other.checkpoint()[-1][0]


def test_nothing_is_written_about_a_partition_of_which_a_fact_cannot_be_read(new_world: NewWorld) -> None:
    world = new_world("none")
    world.process().work()
    place = world.topic.append(0, f"{world.partition.topic_id}/0/order/AAAAAAAAAAAAAAAAAAAAAA", b"\x00 of the future")
    world.elect_here()
    world.process().work()
    assert world.topic.end(0) == place + 1


def test_only_an_agent_with_a_new_address_begins_a_term_to_announce_it(world: World) -> None:
    world.process().work()
    first = world.view().term
    world.process().work()
    assert world.view().term == first
    world.process(address="b1:2").work()
    leader = world.view().leader
    assert leader is not None
    assert leader.management_address == "b1:2"


def test_an_epoch_that_changes_calls_for_a_look(world: World) -> None:
    before = hosted(world)
    assert hosted(world) == before
    world.elect_here()
    assert hosted(world) != before


def test_the_elder_that_knows_the_log_furthest_down_continues_it() -> None:
    knows_nothing, knows_all = Lineage.of((5, 33), (6, 40)), Lineage.of((0, 0), (3, 17), (5, 33))
    composed, lineage = compose(Lineage.of((5, 33), (6, 40)), [knows_nothing, knows_all])
    assert (composed, lineage) == (Lineage.of((0, 0), (3, 17), (5, 33), (6, 40)), True)


def test_agents_are_asked_where_their_brokers_newest_term_says_and_only_answers_about_this_topic_count(
    world: World,
) -> None:
    process = world.process()
    process.work()
    for broker, at, address in ((2, 1, "old:1"), (2, 9, "b2:1"), (3, 5, "b3:1"), (-1, 7, "nobody:1")):
        fact = LeaderElected(
            world.partition, world.name, LeaderEpoch(0), FactId.of(bytes([at] * 16)), BrokerId(broker), address,
            Lineage(), Offset(0), TimestampMs(at),
        )  # fmt: skip
        world.topic.append(0, key_of(fact), encode_fact(fact))
    process.view.require_fresh(0, 0)
    requests: list[str] = []

    def answer(url: str) -> bytes | None:
        requests.append(url)
        epochs = epochs_of(world.log, world.name, 0)
        return json.dumps(epochs if "b2" in url else {"topic_id": "another", "epochs": [[0, 0]]}).encode()

    world.log.partitions()
    assert lineages_elsewhere(BrokerId(1), process.view, answer, world.partition, world.name) == [
        Lineage.of(*world.checkpoint())
    ]
    assert requests == [f"http://{host}:1/v1/epochs/{world.name}/0" for host in ("b2", "b3")]
    assert epochs_of(world.log, "another", 0) is None
    for garbage in (b"", b"[]", b"null", b'{"topic_id": 1}', b'{"topic_id": "x", "epochs": [[1, 5], [0, 0]]}'):
        assert lineage_in_answer(garbage, world.partition) is None


def test_an_unknown_lineage_is_shown_with_its_candidates(world: World) -> None:
    away_for_an_epoch(world)
    view = world.view()
    unknown = unknown_of(view)
    assert unknown is not None
    first = view.lineage.entries[0]
    assert unknown.begins == (first.epoch, first.start_offset)
    assert unknown.continues.entries == (*unknown.lineage.entries, first)
    assert unknown.anew.entries == (first,)
    assert unknown.leader is not None
    without = replace(view, others=tuple(live for live in view.others if live.fact != unknown.leader))
    guessed = unknown_of(without)
    assert guessed is not None
    assert (guessed.leader, guessed.continues) == (None, unknown.continues), "the segments' own epochs tell as well"
