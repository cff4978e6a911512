"""A consumer group divides the partitions among the agents that copy by Fetch for one cluster.

The group subscribes to the tier-state topic and reads nothing. The owner of tier-state partition k works for all
partitions whose facts are in k, and for k itself (custody, archive, checkpoints). An assignment counts only for a time
after the coordinator confirmed it by a commit, which it refuses to a member that the group has removed.

The group decides which agent works. Safety never depends on the group, but on terms (`leader/term.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ..broker.acls import group_of
from ..broker.client_config import admin_config
from ..broker.error_codes import error_of_exception
from ..runtime.clock import Clock
from ..runtime.watchdog import go_round
from ..state.errors import Unavailable

SESSION_S = 30.0
"""Seconds after which the group removes a silent member."""
CONFIRMED_S = SESSION_S / 3
"""For how many seconds an assignment counts after it was confirmed."""
COMMIT_EVERY_S, POLL_S = 3.0, 0.5


class Ownership:
    """The tier-state partitions that this process is assigned. Run `run` in a thread. Thread-safe."""

    def __init__(
        self,
        kafka: Mapping[str, Any],
        tier_state: str,
        clock: Clock,
        new_consumer: Callable[[Mapping[str, Any]], Any] = Consumer,
    ) -> None:
        """Join the group. Nothing is owned before `look` has been called a few times."""
        self._topic, self._clock = tier_state, clock
        self._lock = threading.Lock()
        self._assigned: frozenset[int] = frozenset()
        self._confirmed_at = float("-inf")
        self._committed_at = float("-inf")
        self.problem: str | None = None
        """Why nothing can be owned; None if the group answers."""
        config = {
            **admin_config(kafka),
            "group.id": group_of(tier_state),
            "session.timeout.ms": round(SESSION_S * 1000),
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
        self._consumer: Any = new_consumer(config)
        self._consumer.subscribe([tier_state], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def owned(self) -> Collection[int]:
        """Return the tier-state partitions that this agent works for now. Does not wait."""
        with self._lock:
            current = self._clock.monotonic() - self._confirmed_at < CONFIRMED_S
            return self._assigned if current else frozenset()

    def run(self, stop: threading.Event) -> None:
        go_round("ownership", stop, self.look, lambda: 0.0)

    def look(self) -> None:
        """Poll the group once, and confirm the assignment by a commit if that is due."""
        message = self._consumer.poll(POLL_S)
        if message is not None and message.error() is not None:
            self.problem = f"the agents' consumer group does not answer: {message.error().str()}"
        now = self._clock.monotonic()
        with self._lock:
            assigned = self._assigned
        if not assigned or now - self._committed_at < COMMIT_EVERY_S:
            return
        self._committed_at = now
        offsets = [TopicPartition(self._topic, number, 0) for number in assigned]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self.problem = f"the agents' consumer group does not confirm its members: {error_of_exception(error)}"
            return
        with self._lock:
            if assigned == self._assigned:
                self._confirmed_at, self.problem = now, None

    def wait(self, stop: threading.Event, timeout_s: float) -> None:
        """Wait until a partition is owned. Raises Unavailable after ``timeout_s`` seconds."""
        deadline = self._clock.monotonic() + timeout_s
        while not self.owned() and not stop.wait(POLL_S):
            if self._clock.monotonic() > deadline:
                raise Unavailable(self.problem or "other agents own every partition", group_id=group_of(self._topic))

    def close(self) -> None:
        """Leave the group: other members take over at once."""
        with self._lock:
            self._assigned = frozenset()
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _assign(self, consumer: Any, partitions: Collection[Any]) -> None:
        consumer.incremental_assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])
        consumer.pause(list(partitions))  # the follower reads the facts
        with self._lock:
            self._assigned |= {each.partition for each in partitions}
        self._committed_at = float("-inf")

    def _revoke(self, consumer: Any, partitions: Collection[Any]) -> None:
        with self._lock:
            self._assigned -= {each.partition for each in partitions}
        with suppress(KafkaException):
            consumer.incremental_unassign(list(partitions))
