"""A view that another process serves is that process' view at this moment, or it is reported as behind."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from tests.follower.said import PARTITIONS, Topic, attempt, elected, finished, log_start, partition
from tests.follower.test_damaged_views import flip, names
from tests.follower.test_follower import Follow
from tests.scenarios.house import eventually
from tierstate.follower.asked_view import AskedView, ViewAnswers
from tierstate.runtime.socket_pair import control_pair, hand_over, receive_message, send_message, taken_over
from tierstate.state.errors import ViewBehind
from tierstate.state.facts import Fact, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.keys import key_of
from tierstate.state.offsets import Position
from tierstate.state.view import TierView

Ask = Callable[[TierView], AskedView]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Yield a worker's view of another view: both ends are in this process, everything between them goes by sockets."""
    controls: list[socket.socket] = []
    hearing: list[threading.Thread] = []

    def opened_view(view: TierView) -> AskedView:
        control, theirs = control_pair()
        controls.extend((control, theirs))
        answers = ViewAnswers(view)

        def hear() -> None:
            while (end := taken_over(theirs)[1]) is not None:
                threading.Thread(target=answers.answer, args=(end,), daemon=True).start()

        hearing.append(threading.Thread(target=hear, daemon=True))
        hearing[-1].start()
        return AskedView(lambda: hand_over(control, "view"), PARTITIONS)

    yield opened_view
    for peer in controls:
        peer.shutdown(socket.SHUT_RDWR)
    for thread in hearing:
        thread.join()
    for peer in controls:
        peer.close()


def facts_of(seed: int, count: int) -> Iterator[Fact]:
    """Yield facts about three partitions: terms, segments that are copied, log starts."""
    dice = random.Random(seed)
    leaders = {number: elected(number, 1, number) for number in range(3)}
    yield from leaders.values()
    for step in range(count):
        number = dice.randrange(3)
        copy = attempt(number, 100 * step, leaders[number], 0)
        yield SegmentCopyStarted(copy)
        if dice.random() < 0.8:
            yield SegmentCopyFinished(finished(copy))
        if dice.random() < 0.3:
            yield log_start(number, 50 * step, leaders[number], 0, counter=step)


@pytest.mark.parametrize("seed", range(3))
def test_after_every_fact_both_processes_see_the_same(said: Topic, follow: Follow, ask: Ask, seed: int) -> None:
    follower = follow(said.topic)
    view = ask(follower)
    for fact in facts_of(seed, 30):
        view.wait_applied(said.number(key_of(fact)), said.say(fact), 10)
        for place in map(partition, range(3)):
            assert view.partition(place) == follower.partition(place)
            assert view.facts(place) == follower.facts(place)
    assert view.partitions() == follower.partitions()


def test_a_partition_that_did_not_change_is_not_sent_again(said: Topic, follow: Follow, ask: Ask) -> None:
    view = ask(follow(said.topic))
    leader = elected(0, 1, 1)
    view.wait_applied(view.tier_partition(partition(0)), said.say(leader), 10)
    before = view.partition(partition(0))
    assert view.partition(partition(0)) is before
    view.wait_applied(view.tier_partition(partition(0)), said.say(log_start(0, 5, leader, 0)), 10)
    assert view.partition(partition(0)) is not before


def test_one_of_many_simultaneous_questions_brings_a_changed_partition(said: Topic, follow: Follow, ask: Ask) -> None:
    view, leader = ask(follow(said.topic)), elected(0, 1, 1)
    said.say(leader)
    for step in range(300):
        said.say(SegmentCopyStarted(attempt(0, 100 * step, leader, 0)))
    view.require_fresh(view.tier_partition(partition(0)), 0)
    with ThreadPoolExecutor(16) as pool:
        views = list(pool.map(view.partition, [partition(0)] * 16))
    assert len(views[0].segments) == 300
    assert all(view is views[0] for view in views)


def test_errors_are_those_of_the_view_with_their_facts(said: Topic, follow: Follow, ask: Ask) -> None:
    view = ask(follow(said.topic))
    with pytest.raises(ViewBehind) as behind:
        view.wait_applied(0, Position(5), 0.05)
    assert behind.value.facts == {"tier_partition": 0, "position": 5, "applied": 0}


def test_workers_never_see_the_old_view_during_a_rebuild(said: Topic, follow: Follow, ask: Ask) -> None:
    follower = follow(said.topic)
    view, leader = ask(follower), elected(0, 1, 1)
    at, number = said.say(leader), view.tier_partition(partition(0))
    said.say(log_start(0, 5, leader, at))
    view.require_fresh(number, 0)
    assert view.partition(partition(0)).log_start == 5
    said.topic.truncate(number, 1)

    def fresh() -> bool:
        try:
            view.require_fresh(number, 0)
        except ViewBehind:
            return False
        assert view.partition(partition(0)).log_start is None, "a fresh view had what the topic lost"
        return True

    eventually(fresh)
    assert view.partition(partition(0)).leader == leader


def test_damage_that_a_worker_meets_rebuilds_the_view_of_all(
    said: Topic, follow: Follow, ask: Ask, tmp_path: Path
) -> None:
    leaders = [elected(user, 1, user) for user in range(20)]
    for leader in leaders:
        said.say(leader)
    first = follow(said.topic)
    for number in range(PARTITIONS):
        first.require_fresh(number, 0)
    first.close()
    flip(names(tmp_path / "state", "*.sst"), 0.3)
    view = ask(follow(said.topic))

    def whole() -> bool:
        try:
            return [view.partition(partition(user)).leader for user in range(20)] == leaders
        except ViewBehind:
            return False

    eventually(whole)


class Slow:
    """Answers on demand, with the number of the partition that was asked about."""

    def __init__(self) -> None:
        self.let = threading.Event()

    def serve(self, end: socket.socket) -> None:
        with end:
            while True:
                try:
                    _, arguments = cast(tuple[str, tuple[int]], receive_message(end))
                except (OSError, EOFError):
                    return
                if arguments[0] == 1:
                    assert self.let.wait(30)
                try:
                    send_message(end, float(arguments[0]))
                except OSError:
                    return


def test_without_an_answer_the_view_is_behind_and_a_late_answer_is_dropped() -> None:
    slow = Slow()

    def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        threading.Thread(target=slow.serve, args=(theirs,), daemon=True).start()
        return ours

    view = AskedView(connect, PARTITIONS, answer_s=0.1)
    with pytest.raises(ViewBehind, match="does not answer"):
        view.age_s(1)
    slow.let.set()
    assert view.age_s(2) == 2.0


def test_a_bug_of_the_process_that_follows_ends_one_question_and_not_the_next(
    said: Topic, follow: Follow, ask: Ask
) -> None:
    view = ask(follow(said.topic))
    with pytest.raises(RuntimeError, match="failed"):
        view.facts("no partition")  # type: ignore[arg-type]
    assert view.partitions() == []


def test_a_process_that_has_gone_answers_nothing(said: Topic) -> None:
    control, theirs = control_pair()
    view = AskedView(lambda: hand_over(control, "view"), PARTITIONS)
    theirs.close()
    with pytest.raises(ViewBehind, match="does not answer"):
        view.partitions()
    control.close()
