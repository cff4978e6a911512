"""The view of another process: a `TierView` that asks the process that follows, and the answers of that process.

    worker                              the process that follows
    partition(P), "I have number 17"  ->  its own `TierView`, now  ->  "still 17", or 18 and the view

The follower answers every question at the moment it is asked: no copy of the view is ever used without that. So its
rules for fresh, ready, applied, rebuilt and lost views hold for the worker too. When it does not answer (it was
stopped, it hangs) the worker gets ViewBehind, never an older answer.

The view of an unchanged partition is not sent again: the follower keeps it as one object until a fact changes it
(`state/apply.py`), and numbers the objects that it sends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, cast

from cachetools import LRUCache

from ..runtime.socket_pair import receive_message, send_message
from ..state.errors import TierstateError, ViewBehind
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import tier_partition_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.view import SecondValue, TierView

ANSWER_S = 5.0
FRESH_S = 30.0
"""How long `Follower.require_fresh` itself waits."""
REMEMBERED_SEGMENTS = 100_000
"""Segments of all partitions together whose views both ends remember."""
LOCKS = 64
UNANSWERED = "the process that follows the tier-state topic does not answer"
_tier_partition_of = lru_cache(65_536)(tier_partition_of)


class ViewAnswers:
    """Answers questions about a view of this process. Thread-safe."""

    def __init__(self, view: TierView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._told: LRUCache[TopicIdPartition, tuple[PartitionView, int]] = _remembering()
        self._methods: Mapping[str, Callable[..., object]] = {
            "partition": self._partition,
            "partitions": view.partitions,
            "facts": view.facts,
            "second_values": view.second_values,
            "forget_second_value": view.forget_second_value,
            "wait_applied": view.wait_applied,
            "require_fresh": view.require_fresh,
            "require_ready": view.require_ready,
            "age_s": view.age_s,
        }

    def answer(self, asking: socket.socket) -> None:
        """Answer one worker, question after question, until it closes its end."""
        with asking, suppress(OSError, EOFError):
            while True:
                method, arguments = cast(tuple[str, tuple[object, ...]], receive_message(asking))
                answer: object
                try:
                    answer = self._methods[method](*arguments)
                except TierstateError as error:
                    answer = error
                except Exception as bug:  # the worker that asked must see its call fail
                    answer = RuntimeError(f"the process that follows failed: {bug!r}")
                send_message(asking, answer)

    def _partition(self, partition: TopicIdPartition, known: int) -> tuple[int, PartitionView | None]:
        view = self._view.partition(partition)
        with self._lock:
            entry = self._told.get(partition)
            if entry is None or entry[0] is not view:
                entry = view, next(self._numbers)
                _remember(self._told, partition, entry)
        return entry[1], None if entry[1] == known else view


class AskedView:
    """A `TierView`. ``connect`` returns a new socket whose other end `ViewAnswers.answer` serves.

    ``answer_s``: how long the process that follows may take, in addition to what a question lets it wait.
    """

    def __init__(self, connect: Callable[[], socket.socket], tier_partitions: int, answer_s: float = ANSWER_S) -> None:
        self._connect, self._tier_partitions, self._answer_s = connect, tier_partitions, answer_s
        self._idle: list[socket.socket] = []
        self._asking = [threading.Lock() for _ in range(LOCKS)]
        self._lock = threading.Lock()
        self._known: LRUCache[TopicIdPartition, tuple[PartitionView, int]] = _remembering()

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        asking = self._asking[hash(partition) % LOCKS]
        if not asking.acquire(timeout=self._answer_s):
            raise ViewBehind(UNANSWERED, asked="partition")
        try:
            return self._partition(partition)
        finally:
            asking.release()

    def _partition(self, partition: TopicIdPartition) -> PartitionView:
        """Ask for a view. Callers hold the partition's lock: else a view of megabytes would be sent to each of them."""
        with self._lock:
            entry = self._known.get(partition)
        number, view = self._ask("partition", partition, 0 if entry is None else entry[1])
        if view is None:
            assert entry is not None
            return entry[0]
        with self._lock:
            _remember(self._known, partition, (view, number))
        return view  # type: ignore[no-any-return]

    def partitions(self) -> list[TopicIdPartition]:
        return self._ask("partitions")  # type: ignore[no-any-return]

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        return self._ask("facts", partition)  # type: ignore[no-any-return]

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return _tier_partition_of(partition, self._tier_partitions)

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return self._ask("second_values", partition)  # type: ignore[no-any-return]

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        self._ask("forget_second_value", partition, key)

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        self._ask("wait_applied", tier_partition, position, timeout, wait_s=timeout)

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        self._ask("require_fresh", tier_partition, max_age, wait_s=FRESH_S)

    def require_ready(self, tier_partition: int) -> None:
        self._ask("require_ready", tier_partition, wait_s=FRESH_S)

    def age_s(self, tier_partition: int) -> float | None:
        return self._ask("age_s", tier_partition)  # type: ignore[no-any-return]

    def _ask(self, method: str, *given: object, wait_s: float = 0.0) -> Any:
        """Return the answer. Raises ViewBehind when none comes, and what the view raises."""
        end = None
        try:
            end = self._idle_end() or self._connect()
            end.settimeout(wait_s + self._answer_s)
            send_message(end, (method, given))
            answer = receive_message(end)
        except (OSError, EOFError) as error:
            if end is not None:
                end.close()  # a late answer must not reach another question
            raise ViewBehind(UNANSWERED, asked=method) from error
        with self._lock:
            self._idle.append(end)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _idle_end(self) -> socket.socket | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


def _remembering() -> LRUCache[TopicIdPartition, tuple[PartitionView, int]]:
    return LRUCache(REMEMBERED_SEGMENTS, lambda each: 1 + len(each[0].segments))


def _remember(
    cache: LRUCache[TopicIdPartition, tuple[PartitionView, int]],
    partition: TopicIdPartition,
    view: tuple[PartitionView, int],
) -> None:
    with suppress(ValueError):  # this partition alone has more segments than may be remembered
        cache[partition] = view
