"""Proves that a listing of groups lacks none. A broker lists only the groups that it coordinates at that moment.

While a coordinator moves or is offline, no broker lists its groups, and none reports an error. The name of a group is
hashed to a partition of `__consumer_offsets`, whose leader is the coordinator. OffsetFetch refuses the names of other
coordinators. So each broker is asked for one name of each partition, before and after it lists its groups. A listing is
complete if every name had a coordinator that was there all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from ..state.errors import TierstateError, UnknownTopic
from .fenced_producer import GROUP, coordinator
from .raw import RawClient

OFFSETS_TOPIC = "__consumer_offsets"
HIDDEN_PARTITIONS = 256
"""The number of names where the topic is hidden from these credentials. It has 50 partitions by default."""


class Coordinators:
    """The coordinators that were active while their broker listed its groups. Raises as `RawClient.metadata`."""

    def __init__(self, raw: RawClient) -> None:
        topic = raw.metadata([OFFSETS_TOPIC]).topics[OFFSETS_TOPIC]
        never = isinstance(topic.error, UnknownTopic)  # no group has ever existed
        count = 0 if never else len(topic.partitions) or HIDDEN_PARTITIONS
        # names of groups that do not exist: the hash of one character is its number, so theirs are consecutive
        self._names = [chr(256 + number) for number in range(count)]
        self._seen: set[str] = set()
        if topic.error is not None and not never:
            with suppress(TierstateError):
                coordinator(raw, GROUP, self._names[0])  # Kafka creates the topic, if there is none behind the refusal

    @contextmanager
    def listing(self, ask: Callable[[Any], Any]) -> Iterator[None]:
        """Ask a broker before and after the block, which lists its groups. Raises the errors of ``ask``."""
        before = self._active(ask)
        yield
        self._seen |= before & self._active(ask)

    def why_incomplete(self) -> str | None:
        """Return why groups may be missing after all brokers were asked; None if none is."""
        if len(self._seen) == len(self._names):
            return None
        share = f"{len(self._names) - len(self._seen)} of {len(self._names)}"
        return f"groups may be missing: {share} coordinators moved or are offline"

    def _active(self, ask: Callable[[Any], Any]) -> set[str]:
        if not self._names:
            return set()
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        groups = [kind(group_id=name, topics=[]) for name in self._names]
        answer = ask(OffsetFetchRequest(groups=groups, require_stable=False, min_version=8, max_version=9))
        return {group.group_id for group in answer.groups if not group.error_code}
