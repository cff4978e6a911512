"""Histories that random generation hardly ever finds. Each runs step by step, and returns what broke, or None."""

from __future__ import annotations

from tests.histories.cloned import broken_by_clones
from tests.histories.directed_fetch import DIRECTED_FETCH
from tests.histories.every_cut import a_tail_is_cut
from tests.histories.forger import EVENTS
from tests.histories.moved import broken_by_moves
from tests.histories.replica import Written
from tests.histories.restored import broken_by_restores
from tests.histories.small_world import SmallWorld
from tests.histories.steady import Steady
from tests.histories.topic import DAY, HOUR, HistoryTopic, ProcessTopic
from tests.leader.forger import stolen
from tests.twins.manual_clock import ManualClock
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import TierstateError
from tierstate.state.facts import ContradictionSettled, ReaderLease
from tierstate.state.ids import FactId
from tierstate.state.keys import key_of, parse_key
from tierstate.state.lineage import FOLDED_AT_ONCE
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import OffsetRange, TimestampMs
from tierstate.state.segment import SegmentState

A_KEY, ANOTHER_KEY, KEPT_KEY = (f"AAAAAAAAAAAAAAAAAAAAAQ/0/lease/AAAAAAAAAAAAAAAAAAAAA{letter}" for letter in "gQw")


def _broken(world: SmallWorld) -> str | None:
    try:
        world.promises.check()
    except AssertionError as error:
        return str(error)
    return None


def _take(world: SmallWorld, *choices: str) -> None:
    for choice in choices:
        world.take(choice)


def _elect_unclean(world: SmallWorld, broker: int, segments: int = 2) -> None:
    """Elect a broker with the log that it has, while all others are offline. Then produce into so many segments."""
    cluster = world.cluster
    for each in cluster.brokers:
        each.online = False
    cluster.unclean += 1
    cluster.elect_broker(cluster.brokers[broker])
    for _ in range(segments):
        cluster.produce()


def _told(world: SmallWorld, *choices: str) -> str | None:
    """Return what breaks during these choices or after them, or None."""
    try:
        _take(world, *choices)
    except AssertionError as error:
        return str(error)
    return _broken(world)


def _away(world: SmallWorld, broker: int, end: int) -> None:
    """Take a broker offline, with a log that ends at ``end``."""
    world.cluster.brokers[broker].online = False
    world.cluster.brokers[broker].truncate_to(end)


def a_finish_lands_again() -> str | None:
    """A copy-finished lands again, after the same term deleted its segment and erased its facts."""
    world = SmallWorld(2)
    world.lands_twice = True
    _take(world, "0*", "order", "hour", "0*", "hour", "0*")
    finished = next(entry for entry in world.topic.log if entry.key.endswith("copy-finished") and entry.value)
    assert finished.key not in world.topic.live_at(len(world.topic.log)), "the segment was not erased"
    world.topic.land(finished.key, finished.value)
    return _broken(world)


def a_trim_after_two_elections() -> str | None:
    """An agent stops right before DeleteRecords; its broker loses a branch of its log and leads again."""
    world = SmallWorld(3)
    zombie = world.processes[0]
    while zombie.next_step != "delete-records":
        if not world.take("0"):
            world.cluster.produce()
    world.cluster.brokers[1].truncate_to(1)
    _elect_unclean(world, 1, segments=6)
    world.cluster.toggle_on(0)
    world.cluster.elect_broker(world.cluster.brokers[0])
    _take(world, "0")
    return _broken(world)


def a_branch_comes_back() -> str | None:
    """Segments of a lost branch are out of lineage, until an unclean election makes the branch the log again."""
    world = SmallWorld(2)
    world.cluster.brokers[1].online = False
    world.cluster.brokers[1].truncate_to(world.cluster.leader.bases[1])
    _take(world, "0*", "hour", "0*")
    _elect_unclean(world, 1)
    _take(world, "1*", "hour", "1*", "hour", "1*")
    _elect_unclean(world, 0, segments=0)
    return _broken(world)


def a_lineage_is_needed_again() -> str | None:
    """A lost branch becomes the log again, and needs its epochs: a trim has cut its broker's checkpoint."""
    world = SmallWorld(1)
    _take(world, "0*")
    world.cluster.elect_broker(world.cluster.brokers[1])
    for _ in range(2):
        world.cluster.produce()
    _take(world, "1*")
    world.cluster.elect_broker(world.cluster.brokers[0])
    world.cluster.brokers[1].online = False
    for _ in range(4):
        world.cluster.produce()
    _take(world, "0*", "hour", "0*")
    _elect_unclean(world, 1, segments=3)
    _take(world, "1*", "hour", "1*")
    _elect_unclean(world, 0, segments=2)
    _take(world, "0*", "hour", "0*")
    return _unknown(world) or _broken(world)


def the_last_copy_is_fenced() -> str | None:
    """A copy-finished lands again after a later term began and trimmed. Only idempotence excludes this (0011)."""
    world = SmallWorld(2)
    world.lands_twice = True
    while not world.promises.live.view().readable:
        world.take("0")
    finished = next(entry for entry in world.topic.log if entry.key.endswith("copy-finished") and entry.value)
    world.cluster.elect_broker(world.cluster.brokers[1])
    _take(world, "1*", "hour", "1*")
    world.topic.land(finished.key, finished.value)
    _take(world, "hour", "1*", "hour", "1*", "hour", "1*")
    parsed = parse_key(finished.key)
    assert parsed is not None
    assert parsed.segment_id is not None
    meant = world.promises.history.view().segments[parsed.segment_id]
    assert meant.subject is not None
    key = object_key(meant.subject.object_key, ObjectKind.LOG)
    there = {info.key for info in world.store.list()}
    return None if key in there else f"{key} is gone, and the broker has not got these offsets any more"


def a_forger_speaks_as_the_term_in_force() -> str | None:
    """A producer forges facts of the term: another topic's only copy was copied here, and is to be deleted."""
    world = SmallWorld(2)
    _take(world, "0*")
    term = world.promises.live.view().term
    assert term is not None
    segment = stolen(EVENTS[0], world.cluster.partition, "orders", term)
    for kind in ("copy-started", "delete-started"):
        world.forger.forge(segment, kind)
    try:
        _take(world, "0*", "hour", "0*", "hour", "0*")
    except AssertionError as error:
        return str(error)
    return _broken(world)


def an_order_for_a_lost_log() -> str | None:
    """The log restarts empty before an agent executes an order, and grows beyond the order's offset."""
    world = SmallWorld(2)
    _take(world, "0*")
    world.order_below(world.cluster.leader.end)
    world.cluster.begin_anew()
    for _ in range(4):
        world.cluster.produce()
    return _told(world, "0*", "hour", "0*")


def a_log_start_is_needed_again() -> str | None:
    """A branch has a lower log start than another one, and needs it if it becomes the log again.

    The higher log start holds on this branch only for offsets that both branches share.
    """
    world = SmallWorld(2)
    _away(world, 2, 4)
    _take(world, "0*")
    world.order_below(20)
    _take(world, "0*", "hour", "0*")
    _elect_unclean(world, 2, segments=3)
    _take(world, "2*")
    world.order_below(28)
    return _told(world, "2*", "hour", "2*")


def a_lost_branch_is_known() -> str | None:
    """A lost branch becomes the log again, with a checkpoint that a trim has cut.

    The log start of another branch is above all that was copied of it.
    """
    world = SmallWorld(1)
    _away(world, 2, 12)
    _take(world, "0*")
    world.cluster.elect_broker(world.cluster.brokers[1])
    for _ in range(2):
        world.cluster.produce()
    _take(world, "1*", "hour", "1*")
    _elect_unclean(world, 2, segments=6)
    _take(world, "2*")
    world.order_below(60)
    _take(world, "2*", "hour", "2*", "hour", "2*")
    _elect_unclean(world, 1, segments=2)
    _take(world, "1*", "hour", "1*")
    return _unknown(world) or _broken(world)


def a_lineage_is_folded() -> str | None:
    """After hundreds of elections the log start is inside an epoch whose later segments are still read."""
    world = SmallWorld(0)
    cluster = world.cluster
    for number in range(FOLDED_AT_ONCE + 4):
        cluster.elect_broker(cluster.brokers[number % 2])
        batch = Written(1000 + number, cluster.leader.end, 1, cluster.epoch, world.clock.now_ms())
        for broker in cluster.brokers:
            broker.append(batch, roll=False)
    for _ in range(2):
        cluster.produce()
    _take(world, "1*", "hour", "1*")
    world.order_below(cluster.leader.end - 10)
    _take(world, "1*", "hour", "1*")
    cluster.elect_broker(cluster.brokers[0])
    cluster.produce()
    _take(world, *["0"] * 40)  # a segment that no lineage contains would be copied endlessly
    view = world.promises.live.view()
    assert len(view.lineage.entries) < 8, "nothing was folded"
    return "the lineage of the log is unknown, and with it what was copied" if view.lineage_unknown else _broken(world)


def a_quiet_restart() -> str | None:
    """Agents have nothing to do in an epoch with few records; then Kafka's retention takes even the active segment."""
    world = SmallWorld(2)
    _take(world, "0*")
    world.cluster.restart()
    _take(world, "0*")
    world.take_all()
    for _ in range(4):
        world.cluster.produce()
    _take(world, "0*", "hour", "0*")
    return _unknown(world) or _broken(world)


def a_restart_on_an_empty_log() -> str | None:
    """A restart on an empty log replaces the only epoch of the checkpoint by one that no fact names."""
    world = SmallWorld(2)
    _take(world, "0*")
    world.take_all()
    _take(world, "0*")
    world.cluster.restart()
    _take(world, "0*")
    return _unknown(world) or _broken(world)


def a_person_tells_the_past() -> str | None:
    """All records of an epoch are deleted before an agent sees them; later a person settles the unknown lineage."""
    world = SmallWorld(2)
    _take(world, "0*")
    world.cluster.restart()
    world.take_all()
    _take(world, "0*")
    assert _unknown(world), "somebody knows"
    world.people.tell_past(FactId.of(bytes(16)), world.clock.now_ms())
    world.clock.advance(120)
    _take(world, "0*")
    return _unknown(world) or _broken(world)


def a_person_keeps_a_segment() -> str | None:
    """A segment's copy-finished lands again after its delete-started. A person keeps the segment's objects."""
    world = SmallWorld(2)
    world.lands_twice = True
    _take(world, "0*", "order", "hour", "0*")
    finished = next(entry for entry in world.topic.log if entry.key.endswith("copy-finished") and entry.value)
    world.topic.land(finished.key, finished.value)
    (contradiction,) = world.promises.live.view().contradictions
    now = world.clock.now_ms()
    world.say(ContradictionSettled(world.cluster.partition, FactId.of(bytes(16)), contradiction, True, "ops", now))
    _take(world, "hour", "0*", "hour", "0*")
    return _broken(world)


def _unknown(world: SmallWorld) -> str | None:
    view = world.promises.live.view()
    return f"the lineage is unknown: {view.lineage.entries}" if view.lineage_unknown else None


def a_view_sleeps_for_months() -> str | None:
    """A view that was stopped for months holds a fact whose tombstone is on no replica when it continues."""
    clock = ManualClock()
    topic = HistoryTopic(Steady(), clock)
    topic.land(A_KEY, b"value")
    topic.land(KEPT_KEY, b"value")  # the view recognises the topic by this fact when it continues
    memory = InMemory(1)
    follower = Follower(ProcessTopic(topic, 0, kind=True), memory.fresh(), memory, clock, Following(tail=False)).start()
    follower.require_fresh(0, 0)
    topic.land(A_KEY, None)
    for _ in range(60):
        clock.advance(DAY / 1000)
        for replica in topic.replicas:
            topic.clean(replica, whole=True)
    topic.land(ANOTHER_KEY, b"value")
    follower.require_fresh(0, 0)
    held = {entry.key for _, entry in follower.store.entries(0)}
    return None if held == {KEPT_KEY, ANOTHER_KEY} else f"the view holds {sorted(held)}"


def a_topic_is_created_again() -> str | None:
    """The topic is re-created under the same name, with other facts at the same positions."""
    clock = ManualClock()
    topic = HistoryTopic(Steady(), clock)
    topic.land(A_KEY, b"value")
    memory = InMemory(1)
    seen = ProcessTopic(topic, 0, kind=True)
    follower = Follower(seen, memory.fresh(), memory, clock, Following(tail=False)).start()
    follower.require_fresh(0, 0)
    topic.log.clear()
    topic.times.clear()
    for _ in range(2):
        topic.land(ANOTHER_KEY, b"value")
    seen.topic_id_now = "BBBBBBBBBBBBBBBBBBBBBA"
    clock.advance(3600.0)
    try:
        follower.require_fresh(0, 0)
    except TierstateError:
        return None
    held = {entry.key for _, entry in follower.store.entries(0)}
    return f"the view holds {sorted(held)}, the topic has {ANOTHER_KEY} alone"


def a_reader_reads_on() -> str | None:
    """A segment is marked for deletion under a reader's first lease, and would be deleted under its second."""
    world = SmallWorld(2)
    _take(world, "0*")
    read = world.promises.live.view().readable[0].offsets
    _lease(world, read, 1, 2 * HOUR)
    _take(world, "order", "hour", "0*")
    states = {each.state for each in world.promises.live.view().segments.values()}
    assert SegmentState.DELETE_SEGMENT_STARTED in states, "nothing was condemned under the first lease"
    _lease(world, read, 2, 9 * HOUR)
    return _told(world, *["hour", "0*"] * 6)


def _lease(world: SmallWorld, offsets: OffsetRange, number: int, left: int) -> None:
    until = TimestampMs(world.clock.now_ms() + left)
    fact = ReaderLease(world.cluster.partition, FactId.of(bytes(15) + bytes([number])), offsets, "reader", until)
    world.topic.land(key_of(fact), encode_fact(fact))


def a_copy_is_finished_too_late() -> str | None:
    """An agent stops before it appends its copy-finished; the next leader sweeps the attempt."""
    world = SmallWorld(1)
    while world.processes[0].next_step != "append copy-finished":
        world.take("0")
    return _told(world, "elect", *["1*", "hour"] * 4, "0*", "1*")


def a_reader_reads_what_is_condemned() -> str | None:
    """A segment is marked for deletion while a reader has a lease that is longer than the grace period."""
    world = SmallWorld(2)
    _take(world, "0*")
    _lease(world, world.promises.live.view().readable[0].offsets, 1, 90 * HOUR)
    return _told(world, "order", *["hour", "0*"] * 6)


DIRECTED = {
    "finish needs its start": a_finish_lands_again,
    "leadership before irreversible acts": a_trim_after_two_elections,
    "lineage never condemns": a_branch_comes_back,
    "lineage kept": a_lineage_is_needed_again,
    "only copy": the_last_copy_is_fenced,
    "own objects only": a_forger_speaks_as_the_term_in_force,
    "orders in their lineage": an_order_for_a_lost_log,
    "log starts for every branch": a_log_start_is_needed_again,
    "copied branches are known": a_lost_branch_is_known,
    "folding keeps the owner": a_lineage_is_folded,
    "a term at every leader epoch": a_quiet_restart,
    "begun on an empty log": a_restart_on_an_empty_log,
    "told by people": a_person_tells_the_past,
    "kept by people": a_person_keeps_a_segment,
    "age of the position": a_view_sleeps_for_months,
    "topic id": a_topic_is_created_again,
    "anchor": broken_by_restores,
    **dict.fromkeys(
        ("a proof before each change", "strange signatures", "answers", "trial", "own heartbeat"), broken_by_clones
    ),
    **dict.fromkeys(
        ("writers have stopped", "a look before each change", "a look after a slow write"), broken_by_moves
    ),
    "leases that go on": a_reader_reads_on,
    "lost facts": a_tail_is_cut,
    "fencing": a_copy_is_finished_too_late,
    "leases": a_reader_reads_what_is_condemned,
} | DIRECTED_FETCH
