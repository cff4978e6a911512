"""The follower: tails the tier-state topic into a view store, and is the `TierView` that everybody else sees."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ..broker.tier_topic import TierReader, TierTopic
from ..runtime.clock import Clock
from ..runtime.listener import FactsApplied, Listener, ViewRebuilt, ignore
from ..state.errors import BrokerUnavailable, PositionLost, TierstateError, ViewBehind
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import tier_partition_of
from ..state.offsets import Position
from ..state.partition_view import PartitionView
from ..state.view import ViewStore
from .replay import catch_up

TOPIC_ID_CHECK_S = 30.0
BROKER_RETRY_S = 1.0
AS_OF_S = 60.0
"""How often, at most, the view notes that it has applied a then-current end."""


class Follower:
    """A `TierView` over a store and a topic.

    ``rebuild`` makes an empty store, ``installed`` is told when a rebuilt one replaces the old one.
    ``tier_partitions`` None means all of them.
    """

    def __init__(
        self,
        topic: TierTopic,
        store: ViewStore | None,
        rebuild: Callable[[], ViewStore],
        installed: Callable[[ViewStore], None],
        clock: Clock,
        *,
        tier_partitions: Iterable[int] | None = None,
        listener: Listener = ignore,
    ) -> None:
        self._topic, self._clock, self._listener = topic, clock, listener
        self._rebuild, self._installed = rebuild, installed
        self._partitions = list(range(topic.mapped_partitions) if tier_partitions is None else tier_partitions)
        self._store = store
        self._applied = threading.Condition()
        self._captured: dict[int, float] = {}
        self._marked: dict[int, float] = {}
        self._failure: TierstateError | None = None
        self._stop = threading.Event()
        self._checked_topic_id = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> Follower:
        """Begin to tail. The view is usable at once and fresh after `require_fresh`."""
        if self._store is None:
            self._replace("no view on disk")
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._store is not None:
            self._store.close()
            self._store = None

    # --- the TierView seam -------------------------------------------------------------------------------------

    @property
    def store(self) -> ViewStore:
        """What is followed into. Raises ViewBehind before `start`."""
        if self._store is None:
            raise ViewBehind("the view is not open")
        return self._store

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        return self.store.state(partition).view()

    def partitions(self) -> list[TopicIdPartition]:
        return self.store.partitions()

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        return self.store.state(partition).facts()

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return tier_partition_of(partition, self._topic.mapped_partitions)

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        with self._applied:
            reached = self._applied.wait_for(
                lambda: self._failure is not None or self.store.position(tier_partition) > position, timeout
            )
        if self._failure is not None:
            raise self._failure
        if not reached:
            raise ViewBehind(
                "view has not applied this position yet",
                tier_partition=tier_partition,
                position=position,
                applied=self.store.position(tier_partition),
            )

    def require_fresh(self, tier_partition: int, max_age: float, timeout: float = 30.0) -> None:
        captured = self._captured.get(tier_partition)
        if self._failure is None and captured is not None and self._clock.monotonic() - captured < max_age:
            return
        at = self._clock.monotonic()
        end = self._topic.end(tier_partition)
        if end > 0:
            self.wait_applied(tier_partition, Position(end - 1), timeout)
        self._captured[tier_partition] = at
        if at - self._marked.get(tier_partition, -AS_OF_S) >= AS_OF_S:
            self._marked[tier_partition] = at
            self.store.mark_as_of(tier_partition, self._clock.now_ms())

    # --- the tail ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        reader = self._reader()
        while not self._stop.is_set():
            try:
                self._step(reader)
            except PositionLost as lost:
                reader.close()
                self._replace(str(lost))
                reader = self._reader()
            except BrokerUnavailable:
                # reads go on from the view as it is; whoever needs a fresh one is told so by require_fresh
                self._stop.wait(BROKER_RETRY_S)
            except TierstateError as error:
                self._fail(error)
                break
            except Exception as error:  # a bug: whoever waits for this view must hear of it too
                self._fail(ViewBehind(f"the follower died: {error!r}"))
                raise
        reader.close()

    def _reader(self) -> TierReader:
        return self._topic.reader({number: self.store.position(number) for number in self._partitions})

    def _step(self, reader: TierReader) -> None:
        for batch in reader.poll(0.1):
            self.store.apply(batch.tier_partition, batch.entries, batch.following)
            with self._applied:
                self._applied.notify_all()
            if batch.entries:
                self._listener(FactsApplied(batch.tier_partition, len(batch.entries), batch.following))
        if self._clock.monotonic() - self._checked_topic_id > TOPIC_ID_CHECK_S:
            self._checked_topic_id = self._clock.monotonic()
            if self._topic.current_topic_id() != self._topic.topic_id:
                raise TierstateError(
                    "the tier-state topic was re-created: this process must be started again",
                    topic_id=self._topic.topic_id,
                )

    def _replace(self, reason: str) -> None:
        """A fresh view, caught up to ends captured now, takes the place of the old one."""
        self._listener(ViewRebuilt(reason))
        fresh = self._rebuild()
        ends = {number: self._topic.end(number) for number in self._partitions}
        catch_up(self._topic, fresh, ends, self._stop)
        old, self._store = self._store, fresh
        self._captured.clear()
        if old is not None:
            old.close()
        self._installed(fresh)

    def _fail(self, error: TierstateError) -> None:
        self._failure = error
        with self._applied:
            self._applied.notify_all()
