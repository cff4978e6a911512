"""A cluster whose topics Kafka tiers itself (KIP-405): its metadata topic, brokers and bucket. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.settings import require
from ...state.ids import TopicIdPartition
from ...state.routing import LocalBounds
from ...state.view import TierView
from .connection import BROKER, ConnectionParts

if TYPE_CHECKING:
    from ...broker.control import BrokerControl
    from ...fetch.reader import LogReader
    from ...kip405.topic import MetadataTopic
    from ...kip405.view import MetadataView

FOLDER = "kip405"


class Kip405Connection(ConnectionParts):
    """A cluster and what Kafka tiered of it. Each property opens its part at first use. Use it as a context manager."""

    @property
    def control(self) -> BrokerControl:
        return self.parts.control

    @property
    def cluster_id(self) -> str:
        return self.parts.cluster_id

    @cached_property
    def topic(self) -> MetadataTopic:
        """Return the metadata topic. Raises the errors of `open_metadata_topic`."""
        from ...kip405.topic import open_metadata_topic

        require(self.settings, BROKER)
        _ = self.cluster_id  # before librdkafka connects: see `Connection.reachable`
        return open_metadata_topic(self.parts.kafka, self.parts.broker)

    def view(self, partitions: Iterable[TopicIdPartition] | None = None, folder: Path | None = None) -> MetadataView:
        """Return a view of ``partitions`` (None: of all). With ``folder`` it is kept there, and has all partitions.

        It reads the metadata topic when it is asked. Raises UnknownTopic, AccessDenied, BrokerUnavailable.
        """
        from ...kip405.view import MetadataView

        topics = None if partitions is None or folder is not None else frozenset(each.topic_id for each in partitions)
        view = MetadataView(
            self.topic,
            self.store,
            self.clock,
            self.settings.kip405.key_prefixes,
            topics=topics,
            folder=None if folder is None else folder / FOLDER,
            keys=self.keys,
        )
        return self._keep(view)

    def growing_view(self) -> MetadataView:
        """Return a view of all partitions. It reads a metadata partition when one of its partitions is asked for."""
        return self.view()

    def bounds(self, topic: str, partition: int) -> LocalBounds:
        """Return the broker's bounds, with the start of both tiers. Raises UnknownTopic, BrokerUnavailable."""
        return self.parts.broker.reads.bounds(topic, partition, both_tiers=True)

    def reader(self, view: TierView) -> LogReader:
        from ...fetch.open import Reading
        from ...kip405.tiers import open_kafkas_reader

        reading = Reading(self.settings.cache, self.settings.state_dir, self.keys)
        broker = self.parts.broker
        reader = open_kafkas_reader(view, broker, self.store, self.clock, reading, self.parts.listener)
        return self._keep(reader)
