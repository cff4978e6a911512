"""Terms: one agent at a time, unknown outcomes are never repeated, and a fenced agent stops at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.leader.test_crash_points import COPY_STEPS, TRIM_STEPS, finish
from tests.leader.world import World, nobody_reads, run_with
from tierstate.leader.copier import copy_segment
from tierstate.leader.expirer import advance_log_start
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.term import TermSession, append_leader, begin_term, confirmed
from tierstate.leader.trimmer import trim_local
from tierstate.rules.orders import reason_of
from tierstate.rules.reasons import Reason, why_failed
from tierstate.runtime.listener import TermEnded, TermStarted
from tierstate.runtime.operation import Operation, run
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import EpochEntry, LeaderEpoch, Lineage
from tierstate.state.errors import BrokerUnavailable, Fenced, LineageTooLong
from tierstate.state.facts import LeaderElected, OperatorOrder, OrderKind
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState


def test_a_term_is_learnt_from_the_own_view(world: World) -> None:
    process = world.process()
    session = process.begin()
    view = world.view()
    assert view.term == session.term
    assert (session.term.epoch, session.term.position) == (0, 0)
    assert view.leader is not None
    assert (view.leader.management_address, view.leader.lineage) == ("b1:1", Lineage.of((0, 0)))
    assert view.log_start == 0


def test_the_first_term_writes_the_brokers_earliest_offset_before_it_copies(new_world: Callable[..., World]) -> None:
    world = new_world("none")
    world.broker.delete_records_on(BrokerId(1), world.name, 0, Offset(475))
    world.retire()
    world.process().work()
    kinds = [key.split("/")[2] for key in world.topic.keys()]
    assert kinds[:3] == ["leader", "log-start", "segment"]
    assert world.view().log_start == 475


def test_a_second_term_leaves_the_log_start_as_it_was(world: World) -> None:
    world.process().work()
    world.retire()
    assert world.local_start() > 0
    world.elect_here()
    world.process().begin()
    assert world.view().log_start == 0


def test_the_later_of_two_terms_composed_at_once_is_in_force(world: World) -> None:
    process, other = world.process(), world.process()
    act = begin_term(process.context, world.partition, world.name)
    first: list[TermSession] = []
    session = run_with(act, "append leader-elected", lambda: first.append(other.begin()))
    assert world.view().term == session.term
    with pytest.raises(Fenced):
        other.copy_next(first[0])
    finish(world)


def test_a_term_that_is_followed_before_its_log_start_gives_way(world: World) -> None:
    process, other = world.process(), world.process()
    act = begin_term(process.context, world.partition, world.name)
    with pytest.raises(Fenced):
        run_with(act, "append log-start", other.begin)
    assert len(world.view().fenced) == 1
    finish(world)


def test_a_log_start_says_in_which_lineage_it_is_meant(world: World) -> None:
    process = world.process()
    session = process.begin()
    assert [fact.lineage for fact in world.view().log_starts] == [Lineage.of((0, 0))], "never none: that is version 1"
    world.elect_here()
    heir = process.begin()
    run(advance_log_start(heir, Offset(3), "retention-time", process.events.append))
    assert world.view().log_starts[-1].lineage == Lineage.of((0, 0))
    assert session.term != heir.term


def test_an_order_to_delete_records_deletes_nothing_of_another_log(world: World) -> None:
    """A log start without a lineage would hold on every log."""
    process = world.process()
    session = process.copy_all()
    identity = FactId.of(b"o" * 16)
    now = world.clock.now_ms()
    order = OperatorOrder(world.partition, identity, OrderKind.DELETE_RECORDS, Offset(3), False, "ops", now)
    world.topic.append(0, key_of(order), encode_fact(order))
    run(advance_log_start(session, Offset(3), reason_of(order), process.events.append))
    assert (world.view().log_start, world.view().log_starts[-1].lineage) == (3, Lineage.of((0, 0)))


def test_a_term_folds_what_lies_wholly_below_the_log_start(world: World) -> None:
    """It folds its own past, not that of the lost log: nothing there is known to be below the log start."""
    process = world.process()
    session = process.begin()
    run(advance_log_start(session, Offset(290), "retention-time", process.events.append))
    for _ in range(300):
        world.broker.elect(world.name, 0, 1)
    world.write_checkpoint(*((epoch, epoch) for epoch in range(301)))
    assert process.begin().view().lineage.entries[0] == EpochEntry(LeaderEpoch(0), Offset(0)), "the lost log's"
    run(advance_log_start(process.begin(), Offset(290), "retention-time", process.events.append))
    view = process.begin().view()
    assert view.lineage == Lineage.of(*((epoch, epoch) for epoch in range(289, 301)))
    assert view.log_start == 290


def test_a_lineage_that_no_fact_can_name_has_a_reason_of_its_own(world: World) -> None:
    lineage = Lineage.of(*((epoch, 1_000_000 * epoch) for epoch in range(20_000)))
    elected = LeaderElected(
        world.partition, world.name, LeaderEpoch(19_999), FactId.of(b"f" * 16), BrokerId(1), "b1:1",
        lineage, Offset(0), world.clock.now_ms(),
    )  # fmt: skip
    context = world.process().context
    with pytest.raises(LineageTooLong) as error:
        append_leader(context.topic, context.view, context.clock, elected)
    assert why_failed(error.value).kind is Reason.LINEAGE_TOO_LONG
    assert error.value.facts["epochs"] == 20_000
    assert world.topic.appends == 0


@pytest.mark.parametrize("before", [False, True])
def test_a_term_whose_own_fact_is_gone_takes_no_further_step(before: bool, world: World) -> None:
    """The topic was cut or the key erased: no follower could read the facts of this term."""
    if before:
        world.process().begin()
    session = world.process().begin()
    own = next(key for key in reversed(world.topic.keys()) if "/leader/" in key)
    world.topic.append(0, own, None)
    with pytest.raises(Fenced, match="no longer rules"):
        session.view(max_age=0)
    assert session.ended == "its fact is gone"


def test_no_term_begins_below_an_epoch_that_rules_already(world: World) -> None:
    """The broker that answers does not know the later leader yet."""
    later = LeaderElected(
        world.partition, world.name, LeaderEpoch(5), FactId.of(b"f" * 16), BrokerId(2), "b2:1",
        Lineage.of((0, 0), (5, world.end())), Offset(0), world.clock.now_ms(),
    )  # fmt: skip
    world.topic.append(0, key_of(later), encode_fact(later))
    with pytest.raises(Fenced, match="later epoch"):
        world.process().begin()
    assert world.topic.appends == 1


@pytest.mark.parametrize("higher_epoch", [False, True])
@pytest.mark.parametrize("step", COPY_STEPS)
def test_a_copier_that_is_fenced_in_the_middle_of_a_step_stops_at_once(
    step: str, higher_epoch: bool, world: World
) -> None:
    process, other = world.process(), world.process()
    session = process.begin()
    act = copy_segment(session, process.candidate(session), process.tools)

    def intrude() -> None:
        if higher_epoch:
            world.elect_here()
        other.begin()

    with pytest.raises(Fenced):
        run_with(act, step, intrude)
    assert session.ended
    appends_before = world.topic.appends
    with pytest.raises(Fenced):
        process.copy_next(session)
    assert world.topic.appends == appends_before
    assert world.check_promises().readable == ()
    if step != "append copy-finished":
        assert world.objects() == set(), "it could still remove what it wrote"
    finish(world)
    assert SegmentState.COPY_SEGMENT_STARTED not in world.states()


@pytest.mark.parametrize("step", TRIM_STEPS)
def test_a_trimmer_that_is_fenced_in_the_middle_of_a_step_trims_nothing(step: str, world: World) -> None:
    process, other = world.process(), world.process()
    session = process.copy_all()
    act = trim_local(session, ObjectProof(world.store), Offset(world.bases[3]), process.events.append, nobody_reads)

    def intrude() -> None:
        world.elect_here()
        other.begin()

    with pytest.raises(Fenced):
        run_with(act, step, intrude)
    assert world.local_start() == 0
    finish(world)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("step", [*COPY_STEPS[:-1], *TRIM_STEPS])
def test_leadership_that_moved_away_between_two_steps_ends_the_act(step: str, back: bool, world: World) -> None:
    """Only the broker itself can tell: another process has written nothing yet."""
    process = world.process()
    session = process.copy_all() if step in TRIM_STEPS else process.begin()

    def move() -> None:
        world.broker.elect(world.name, 0, 2)
        if back:  # it leads again, in an epoch that is not this term's
            world.elect_here()

    act: Operation[object]
    if step in TRIM_STEPS:
        act = trim_local(session, ObjectProof(world.store), Offset(world.bases[3]), process.events.append, nobody_reads)
    else:
        act = copy_segment(session, process.candidate(session), process.tools)
    with pytest.raises((Fenced, BrokerUnavailable)):
        run_with(act, step, move)
    assert world.local_start() == 0
    if step in COPY_STEPS:
        assert world.check_promises().readable == ()


@pytest.mark.parametrize("step", ["put manifest", "append trim-intended"])
def test_a_checkpoint_that_moves_on_while_the_broker_still_answers_ends_the_act(step: str, world: World) -> None:
    """The disk knows of a later epoch than the answer: this term is over, whatever the broker says."""
    process = world.process()
    act: Operation[object]
    if step in TRIM_STEPS:
        session = process.copy_all()
        act = trim_local(session, ObjectProof(world.store), Offset(world.bases[3]), process.events.append, nobody_reads)
    else:
        session = process.begin()
        act = copy_segment(session, process.candidate(session), process.tools)
    with pytest.raises(Fenced, match="checkpoint does not end"):
        run_with(act, step, lambda: world.write_checkpoint((0, 0), (1, world.end())))
    assert world.local_start() == 0
    assert step in TRIM_STEPS or world.check_promises().readable == ()


def test_an_epoch_counts_only_when_the_local_checkpoint_ends_in_it(world: World) -> None:
    """ListOffsets may be answered by a new leader: the disk of this broker does not know its epoch."""
    process = world.process()
    world.broker.elect(world.name, 0, 1)
    with pytest.raises(Fenced, match="checkpoint does not end"):
        process.begin()
    assert world.topic.appends == 0
    world.write_checkpoint((0, 0), (1, world.end()))
    epoch, local = confirmed(process.context, world.partition, world.name, process.context.broker_id)
    assert (epoch, local.lineage) == (1, Lineage.of((0, 0), (1, world.end())))


def test_a_folder_of_another_topic_of_the_same_name_is_not_this_partition(world: World) -> None:
    session = world.process().begin()
    (world.folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(Fenced, match="not on these disks"):
        session.confirm_leadership()


def test_the_begin_and_the_end_of_a_term_are_reported(world: World) -> None:
    process = world.process()
    worker = process.work()
    started = [event.term for event in process.events if isinstance(event, TermStarted)]
    assert started == ["0/0"]
    assert process.status().term == "0/0"
    worker.rest()
    ended = [(event.term, event.reason) for event in process.events if isinstance(event, TermEnded)]
    assert ended == [("0/0", "this broker no longer leads")]
    assert (process.status().leads, process.status().term) == (False, None)


def test_lineage_is_continued_below_a_checkpoint_that_trimming_cut(new_world: Callable[..., World]) -> None:
    world = new_world("epochs", {"local.retention.bytes": "0"})
    world.process().work()
    world.retire()
    assert world.checkpoint()[0][1] == world.local_start() > 0
    world.elect_here()
    session = run(begin_term(world.process().context, world.partition, world.name))
    view = world.check_promises()
    assert view.term == session.term
    assert not view.lineage_unknown
    assert view.lineage == Lineage.of((0, 0), (1, 300), (2, 700), (3, 1100), (4, 1500), (5, world.end()))
    assert view.coverage.prefix_end(0) == world.bases[0] - 1


def test_a_lineage_that_no_term_continues_is_unknown_and_prevents_trims(new_world: Callable[..., World]) -> None:
    """Every LeaderElected that knew the old epochs was erased from the view: they can no longer be known."""
    world = new_world("epochs", {"local.retention.bytes": "0"})
    process = world.process()
    process.work()
    world.retire()
    world.elect_here()
    leader = next(key for key in world.topic.keys() if "/leader/" in key)
    world.topic.append(0, leader, None)
    world.roll()
    world.broker.append(world.name, 0, 1)
    other = world.process()
    start = world.local_start()
    other.work()
    assert "lineage unknown" in (other.status().not_trimmed or "")
    assert world.local_start() == start
