"""Watches of all stores of a serving process. A store of topics that is away stops the work on its topics only."""

from __future__ import annotations

from collections.abc import Callable

from ...follower.paired_stores import PairedStore
from ...runtime.metrics import Metrics, Sample
from ...runtime.service import Service
from ...state.ids import TopicId
from ...storage.probe import StoreWatch
from ..opening.connection import Connection


class StoreWatches:
    """``default`` False: the caller watches the default store by itself, or not at all.

    ``use`` is called with each store of topics, again and again while it answers.
    """

    def __init__(
        self, connection: Connection, use: Callable[[PairedStore], object] = lambda store: None, *, default: bool = True
    ) -> None:
        self._connection = connection
        self._default = [StoreWatch(connection.stores[0], connection.clock)] if default else []
        self._watches = dict(zip([connection.stores[0].description], self._default, strict=False))
        self._of_topics = [store for store in connection.stores if isinstance(store, PairedStore)]
        for store in self._of_topics:
            store.use, self._watches[store.description] = use, store.watch

    def services(self) -> list[Service]:
        """Start the watches of the stores of topics. Return the service of the default store's, not yet started."""
        for store in self._of_topics:
            store.start()
        return [Service("store watch", watch.run) for watch in self._default]

    def troubles(self) -> list[str]:
        """Return why stores do not answer."""
        return [trouble for watch in self._watches.values() if (trouble := watch.trouble) is not None]

    def trouble_of(self, topic: str, topic_id: str, partition: int) -> str | None:
        """Return why a store that may have objects of this partition does not answer; None if each one answers."""
        folder = self._connection.names.partition_prefix(topic, TopicId(topic_id), partition)
        watches = (self._watches.get(store.description) for store in self._connection.holders(folder))
        return next((trouble for watch in watches if watch and (trouble := watch.trouble) is not None), None)

    def on_return(self, call: Callable[[], None]) -> None:
        """Call ``call`` each time that a store answers again."""
        for watch in self._watches.values():
            watch.returned = call

    def feed(self, metrics: Metrics) -> None:
        metrics.gauge("tierstate_object_store_away", self.samples)

    def samples(self) -> list[Sample]:
        return [((url,), watch.trouble is not None) for url, watch in self._watches.items()]
