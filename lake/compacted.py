"""Logs of compacted topics: an agent copies none, so a table follows the broker, up to the last stable offset.

The cleaner removes records below a newer one of their key. So a table of the newest records can be read at any time:
what is missing was replaced by a record that is there, or that is still to come. Only tombstones end without a
successor. The cleaner keeps each for `delete.retention.ms` from the first time that it meets it.

    the table had all records at T      a later tombstone stays until T + delete.retention.ms, at least
    read before that                    no tombstone was missed
    read later, or T is unknown         a key may have been deleted unseen: the partition is folded again

Each place has T and the setting at T (`table_place.Seen`): a higher setting keeps no tombstone that the cleaner met
before. A follower commits T again while nothing is written. While the rows are folded, T is when the fold began.
"""

from __future__ import annotations

from ..app.opening.split_reads import LogAccess
from ..broker.open import Broker
from ..fetch.reader import LogReader
from ..runtime.clock import SystemClock
from ..state.epochs import Lineage
from ..state.errors import InvalidRequest
from ..state.ids import TopicIdPartition
from ..state.lineage import compose
from ..state.offsets import Extent
from ..state.retention import TopicConfig
from ..state.routing import Tier
from .log import TopicLog
from .table_facts import TableFacts
from .tombstones import Tombstones

SHORTEST_MS = 10_000
"""The shortest `delete.retention.ms` with which a follower, which looks every few seconds, is surely in time."""


class CompactedLog(TopicLog):
    """The log of a compacted topic. If it was tiered before, its oldest records are those of the remote tier."""

    def __init__(
        self, reader: LogReader, facts: TableFacts, access: LogAccess, broker: Broker, config: TopicConfig
    ) -> None:
        """Raises the errors of `require_foldable`."""
        super().__init__(reader, facts.topic, facts.isolation, access, local=True)
        require_foldable(facts, config)
        self._broker = broker
        self.tombstones = Tombstones(SystemClock(), config.delete_retention_ms)

    def extent(self, partition: int) -> Extent:
        return self._reader.extent(self.topic, partition, isolation=self._isolation, tier=Tier.AUTO)

    def lineage(self, partition: int) -> Lineage:
        log = self._reader.partition(self.topic, partition)
        epoch = log.local_bounds().leader_epoch
        if epoch is None:
            return Lineage()
        place = TopicIdPartition(self.topic_id(), partition)
        return compose(self._broker.reads.lineage(self.topic, place, epoch), [log.view().lineage])[0]


def is_compacted(config: TopicConfig) -> bool:
    return "compact" in config.cleanup_policy


def require_foldable(facts: TableFacts, config: TopicConfig) -> None:
    """Raise InvalidRequest if a table with these facts would not equal the log after the cleaner ran."""
    if facts.more and facts.upsert:
        raise InvalidRequest("a table of several topics has a row for each record: no --upsert", topic=facts.topic)
    if not is_compacted(config):
        return
    if facts.upsert != (facts.columns.column("key"),) or facts.columns.only is not None:
        raise InvalidRequest(
            "Kafka's cleaner removes records of this topic, so only the newest record of each key can be a row; create"
            " the table with --upsert key, without --dead-letter",
            topic=facts.topic,
        )
    if config.delete_retention_ms < SHORTEST_MS:
        raise InvalidRequest(
            "the cleaner removes tombstones before a table surely has them; set the topic's delete.retention.ms higher",
            topic=facts.topic,
            delete_retention_ms=config.delete_retention_ms,
            at_least=SHORTEST_MS,
        )
