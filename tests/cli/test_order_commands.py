"""The plan of a delete-records order, the meaning of an offset, and the fate of orders when an append fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.rules.expiring import BOUNDS, TERM, build, delete_started, doubtful, lease, moved, order, view_of
from tests.state.conftest import KNOWN, NOW
from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.looking.partition_facts import describe_order
from tierstate.app.opening.positions import AtOffset, Earliest, FromEnd, Latest, offset_before
from tierstate.app.operating.deletion import DeletePlan, Obeyed, plan_delete
from tierstate.app.operating.orders import give, issuer, needed, new_order, order_each
from tierstate.broker.groups import GroupPosition, GroupProblem, TopicGroups
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.rules.orders import standing
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import NotTiered, OffsetOutOfRange, Unavailable, UnknownOutcome
from tierstate.state.facts import LiveFact, OrderKind
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Offset, Position
from tierstate.state.partition_view import PartitionView


def planned(before: int, *facts: LiveFact, force: bool = False, log_start: int | None = 0) -> DeletePlan:
    """Return a plan over remote segments 0..99 to 300..399 and a broker with 300..449."""
    return plan_delete(view_of(*facts, log_start=log_start), BOUNDS, Offset(before), force, NOW)


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "going", "across", "local", "never_copied"),
    [
        (1, [], ["0..99"], 0, 0),
        (100, ["0..99"], [], 0, 0),
        (101, ["0..99"], ["100..199"], 0, 0),
        (300, ["0..99", "100..199", "200..299"], [], 0, 0),
        (350, ["0..99", "100..199", "200..299"], ["300..399"], 50, 0),
        (420, ["0..99", "100..199", "200..299", "300..399"], [], 120, 20),
        (450, ["0..99", "100..199", "200..299", "300..399"], [], 150, 50),
    ],
)
def test_a_plan_counts_whole_segments_below_it_and_offsets_that_only_the_broker_has(
    before: int, going: list[str], across: list[str], local: int, never_copied: int
) -> None:
    plan = planned(before)
    assert [str(segment.offsets) for segment in plan.going] == going
    assert [str(segment.offsets) for segment in plan.across] == across
    assert (plan.offset_count, plan.local_offsets, plan.never_copied) == (before, local, never_copied)
    assert plan.as_json()["remote"]["bytes"] == sum(segment.object_bytes for segment in plan.going)
    copied = [segment for segment in plan.going if segment.offsets.start >= 300]
    assert plan.local_copied_bytes == sum(segment.log_bytes for segment in copied)


def test_nothing_above_the_last_stable_offset_can_be_deleted() -> None:
    pinned = replace(BOUNDS, last_stable_offset=Offset(410))
    assert plan_delete(view_of(), pinned, Offset(410), False, NOW).before == 410
    with pytest.raises(OffsetOutOfRange) as refused:
        plan_delete(view_of(), pinned, Offset(411), False, NOW)
    assert (refused.value.valid_start, refused.value.valid_end) == (0, 410)


def test_a_partition_without_a_term_obeys_no_order() -> None:
    with pytest.raises(NotTiered):
        planned(100, log_start=None)
    with pytest.raises(NotTiered):
        plan_delete(build.view(), BOUNDS, Offset(100), False, NOW)


def test_an_order_is_given_to_a_log_that_a_term_knows() -> None:
    """The view of an epoch without a term may contain records that an election lost."""
    for epoch in (LeaderEpoch(1), None):
        plan_delete(view_of(), replace(BOUNDS, leader_epoch=epoch), Offset(100), False, NOW)
    later = replace(BOUNDS, leader_epoch=LeaderEpoch(2))
    with pytest.raises(Unavailable, match="no term of this leader epoch has begun yet"):
        plan_delete(view_of(), later, Offset(100), False, NOW)


def test_an_order_says_in_which_lineage_and_names_what_goes_of_it_alone() -> None:
    lineage = Lineage.of((0, 0), (2, 250), (3, 350))
    foreign = (build.started(50, 9, TERM, 50, 149), build.finished(51, 9, TERM, 50, 149, Lineage.of((1, 50))))
    plan = plan_delete(view_of(*foreign, build.leader(60, 3, lineage=lineage)), BOUNDS, Offset(300), False, NOW)
    assert plan.lineage == Lineage.of((0, 0), (2, 250))
    assert [segment.offsets.start for segment in plan.going] == [0, 100]


def test_an_order_for_lost_records_does_not_stand_for_a_new_one() -> None:
    anew = build.leader(60, 2, lineage=Lineage.of((2, 0)))
    plan = plan_delete(view_of(order(50, OrderKind.DELETE_RECORDS, 142), anew), BOUNDS, Offset(100), False, NOW)
    assert plan.already is None


def test_there_is_nothing_to_do_once_both_tiers_begin_there() -> None:
    assert planned(300, log_start=300).nothing
    assert not planned(301, log_start=300).nothing
    assert not planned(350, log_start=350).nothing, "the broker begins at 300"


def test_force_has_something_to_do_as_long_as_objects_below_are_left() -> None:
    condemned = delete_started(51, 0)
    assert planned(100, condemned, log_start=100).nothing
    assert not planned(100, condemned, log_start=100, force=True).nothing
    assert len(planned(100, condemned, log_start=100, force=True).condemned) == 1
    assert planned(50, condemned, log_start=100, force=True).nothing, "the segment ends above it"


def test_leases_on_what_goes_are_shown_until_they_are_over() -> None:
    on_it, above, over = lease(50, 50, 60, number=40), lease(51, 100, 110, number=41), lease(52, 0, 9, left=-1)
    assert [lease.offsets.start for lease in planned(100, on_it, above, over).leases] == [50]
    condemned = delete_started(49, 0)
    assert [lease.offsets.start for lease in planned(100, condemned, on_it, log_start=100).leases] == [50]


def test_groups_that_have_not_read_what_leaves_the_broker_are_named() -> None:
    here = view_of().partition.partition
    places = [("behind", here, 349), ("new", here, None), ("done", here, 350), ("elsewhere", here + 1, 0)]
    positions = tuple(GroupPosition(name, part, None if at is None else Offset(at)) for name, part, at in places)
    groups = TopicGroups(positions, (GroupProblem("odd", "odd is unknown"),))
    plan = plan_delete(view_of(log_start=0), BOUNDS, Offset(350), False, NOW, groups)
    assert plan.as_json()["groups"] == [
        {"group_id": "behind", "committed_offset": 349},
        {"group_id": "new", "committed_offset": None},
    ]
    assert plan.as_json()["groups_unknown"] == "odd is unknown"
    remote_only = plan_delete(view_of(log_start=0), BOUNDS, Offset(300), False, NOW, groups)
    assert remote_only.losing == (), "no plain consumer reads what left the broker already"


def test_reasons_that_keep_agents_from_obeying_are_named() -> None:
    assert planned(100).waits == ()
    (paused,) = planned(100, order(50, OrderKind.PAUSE)).waits
    assert "pause since" in paused
    assert "tierstate resume" in paused
    assert planned(100, order(50, OrderKind.DISABLE_KEEP)).waits == (), "a disabled partition still expires"
    (held,) = plan_delete(doubtful()["held"], BOUNDS, Offset(100), False, NOW).waits
    assert "held" in held


@pytest.mark.parametrize(
    ("stands", "forced", "asked", "force", "already"),
    [
        (142, False, 142, False, True),
        (142, False, 141, False, True),
        (142, False, 143, False, False),
        (142, False, 142, True, False),
        (142, True, 142, True, True),
        (142, True, 142, False, True),
    ],
)
def test_an_order_that_says_as_much_already_is_not_repeated(
    stands: int, forced: bool, asked: int, force: bool, already: bool
) -> None:
    plan = planned(asked, order(50, OrderKind.DELETE_RECORDS, stands, force=forced), force=force)
    assert (plan.already is not None) == already


def test_progress_of_agents_is_counted_in_segments_of_the_plan() -> None:
    plan = planned(200)
    untouched = Obeyed.of(plan, view_of(), BOUNDS)
    assert (untouched.readable, untouched.condemned, untouched.gone) == (2, 0, 0)
    assert not untouched.reached(plan.before)
    begun = view_of(moved(50, 200, "operator-order"), delete_started(51, 0))
    progress = Obeyed.of(plan, begun, BOUNDS)
    assert (progress.readable, progress.condemned, progress.gone) == (1, 1, 0)
    assert progress.reached(plan.before)
    assert not progress.settled(plan.before)
    erased = Obeyed.of(plan, build.view(build.log_start(1, build.term(1, 0), 200)), BOUNDS)
    assert (erased.readable, erased.condemned, erased.gone) == (0, 0, 2)


def test_a_plan_is_settled_only_when_the_brokers_log_begins_there_too() -> None:
    plan = planned(350)
    view = view_of(log_start=350, segments=())
    assert not Obeyed.of(plan, view, BOUNDS).settled(plan.before)
    assert Obeyed.of(plan, view, replace(BOUNDS, local_start=Offset(350))).settled(plan.before)


# --- what an offset means --------------------------------------------------------------------------------------------


def test_earliest_is_the_log_start_over_both_tiers_even_when_that_is_zero() -> None:
    assert offset_before(Earliest(), view_of(log_start=0), BOUNDS) == 0
    assert planned(0).nothing


def test_the_end_is_the_last_stable_offset() -> None:
    pinned = replace(BOUNDS, last_stable_offset=Offset(410))
    assert offset_before(Latest(), view_of(), pinned) == 410
    assert offset_before(FromEnd(10), view_of(), pinned) == 400
    assert offset_before(FromEnd(10_000), view_of(log_start=42), pinned) == 42
    assert offset_before(AtOffset(Offset(0)), view_of(), pinned) == 0


# --- orders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OrderKind.PAUSE, OrderKind.DISABLE_KEEP, OrderKind.DISABLE_DELETE])
def test_the_newest_order_by_position_stands_and_is_not_needed_again(kind: OrderKind) -> None:
    view = view_of(order(50, OrderKind.RESUME), order(51, kind, number=8))
    newest = standing(view)
    assert newest is not None
    assert newest.kind is kind
    assert describe_order(newest) == f"{kind.value} since 2023-11-14T22:13:20Z by ops"
    assert not needed(view, kind)
    assert needed(view, OrderKind.RESUME)
    assert needed(view, OrderKind.PAUSE) == (kind is not OrderKind.PAUSE)


def test_resume_stands_where_no_other_order_was_given() -> None:
    cut = order(52, OrderKind.DELETE_RECORDS, 100, number=9)
    for view in (view_of(), view_of(order(50, OrderKind.PAUSE), order(51, OrderKind.RESUME, number=8)), view_of(cut)):
        assert standing(view) is None
        assert not needed(view, OrderKind.RESUME)
        assert needed(view, OrderKind.PAUSE)


def test_an_order_names_a_person_and_a_machine() -> None:
    user, _, machine = issuer().partition("@")
    assert user
    assert machine


class Unsure(MemoryTierTopic):
    """Every append lands unless ``lands`` returns False; from the ``fails_at``-th on, callers get no answer."""

    fails_at = 0
    lands: Callable[[], bool] = staticmethod(lambda: True)
    count = 0

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        self.count += 1
        unsure = self.fails_at and self.count >= self.fails_at
        if not unsure or self.lands():
            position = super().append(tier_partition, key, value)
        if unsure:
            raise UnknownOutcome("no answer", key=key)
        return position


@pytest.fixture
def topic() -> Unsure:
    return Unsure()


@pytest.fixture
def follower(topic: Unsure) -> Iterator[Follower]:
    view = open_view(topic, "", ManualClock(), Following(tail=False))
    yield view
    view.close()


def views(follower: Follower, count: int) -> list[PartitionView]:
    return [follower.partition(TopicIdPartition(build.partition.topic_id, number)) for number in range(count)]


def test_an_order_is_in_the_view_when_it_is_given(topic: Unsure, follower: Follower) -> None:
    order = new_order(
        build.partition,
        OrderKind.DELETE_RECORDS,
        ManualClock(),
        CountingIds(),
        before=Offset(7),
        force=True,
        lineage=KNOWN,
    )
    give(topic, follower, order)
    assert follower.partition(build.partition).orders == (order,)


def test_an_append_of_unknown_outcome_is_looked_up(topic: Unsure, follower: Follower) -> None:
    topic.fails_at = 1
    order = new_order(build.partition, OrderKind.PAUSE, ManualClock(), CountingIds())
    give(topic, follower, order)
    assert follower.partition(build.partition).orders == (order,)
    topic.lands = lambda: False
    with pytest.raises(UnknownOutcome):
        give(topic, follower, new_order(build.partition, OrderKind.RESUME, ManualClock(), CountingIds(1)))
    assert follower.partition(build.partition).orders == (order,)


def test_a_topic_that_is_ordered_halfway_says_how_far_it_came(topic: Unsure, follower: Follower) -> None:
    topic.fails_at, topic.lands = 2, lambda: False
    outcomes: dict[int, str] = {}
    with pytest.raises(UnknownOutcome):
        order_each(topic, follower, views(follower, 3), OrderKind.PAUSE, outcomes)
    assert outcomes == {0: "ordered", 1: "unknown"}
    topic.fails_at = 0
    rest = [view for view in views(follower, 3) if needed(view, OrderKind.PAUSE)]
    assert [view.partition.partition for view in rest] == [1, 2]
    order_each(topic, follower, rest, OrderKind.PAUSE, outcomes)
    assert outcomes == dict.fromkeys(range(3), "ordered")
    assert {order.kind for view in views(follower, 3) if (order := standing(view))} == {OrderKind.PAUSE}
