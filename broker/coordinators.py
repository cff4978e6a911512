"""Proves that a listing of groups lacks none. A broker lists only the groups that it coordinates at that moment.

While a coordinator moves or is offline, no broker lists its groups, and none reports an error. The name of a group is
hashed to a partition of `__consumer_offsets`, whose leader is the coordinator. OffsetFetch refuses the names of other
coordinators. So each broker is asked for one name of each partition, before and after it lists its groups. A listing is
complete if every name had a coordinator that was there all the time, by the leader epochs too where they are visible.

A coordinator that has just moved reads its log to the end, but lists groups only up to the high watermark, until its
followers have fetched the rest. OffsetFetch with ``require_stable`` waits for that (since Kafka 3.9, KAFKA-16973). The
coordinator of Kafka before 4.0 lists all that it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from ..state.epochs import LeaderEpoch
from ..state.errors import TierstateError, UnknownTopic
from .answers import metadata_of
from .fenced_producer import GROUP, coordinator
from .raw import RawClient, metadata_request

OFFSETS_TOPIC = "__consumer_offsets"
HIDDEN_PARTITIONS = 256
"""The number of names where the topic is hidden from these credentials. It has 50 partitions by default."""


class Coordinators:
    """The coordinators that were active while their broker listed its groups. Raises as `RawClient.metadata`."""

    def __init__(self, raw: RawClient) -> None:
        metadata = raw.metadata([OFFSETS_TOPIC])
        topic = metadata.topics[OFFSETS_TOPIC]
        self.brokers = sorted(metadata.brokers)
        # names of groups that do not exist: the hash of one character is its number, so theirs are consecutive
        self._names = [chr(256 + number) for number in range(len(topic.partitions) or HIDDEN_PARTITIONS)]
        self._seen: set[str] = set()
        self._never = bool(self.brokers) and isinstance(topic.error, UnknownTopic)
        if topic.error is not None and not self._never:
            with suppress(TierstateError):
                coordinator(raw, GROUP, self._names[0])  # Kafka creates the topic, if there is none behind the refusal

    @contextmanager
    def listing(self, ask: Callable[[Any], Any]) -> Iterator[None]:
        """Ask a broker before and after the block, which lists its groups. Raises the errors of ``ask``."""
        before = self._active(ask)
        yield
        self._seen |= {name for name, _ in before & self._active(ask)}

    def why_incomplete(self) -> str | None:
        """Return why groups may be missing after all brokers were asked; None if none is."""
        if len(self._seen) == len(self._names) or (self._never and not self._seen):  # no group has ever existed
            return None
        share = f"{len(self._names) - len(self._seen)} of {len(self._names)}"
        return f"groups may be missing: {share} coordinators moved, are offline or have not confirmed their groups"

    def _active(self, ask: Callable[[Any], Any]) -> set[tuple[str, LeaderEpoch | None]]:
        """Return the names that this broker coordinates, with the leader epochs of their partitions.

        The epochs are read before the answers, so the coordinator of an epoch that is the same after a listing was
        there all the time: brokers publish an epoch before its coordinator starts or stops.
        """
        topic = metadata_of(ask(metadata_request([OFFSETS_TOPIC]))).topics[OFFSETS_TOPIC]
        self._never &= isinstance(topic.error, UnknownTopic)
        epochs = {number: partition.leader_epoch for number, partition in topic.partitions.items()}
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        groups = [kind(group_id=name, topics=[]) for name in self._names]
        answer = ask(OffsetFetchRequest(groups=groups, require_stable=True, min_version=8, max_version=9))
        active = (group.group_id for group in answer.groups if not group.error_code)
        return {(name, epochs.get(ord(name) % len(epochs)) if epochs else None) for name in active}
