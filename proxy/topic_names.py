"""The names of topics by their ids, for requests that have ids in place of names (KIP-516).

The proxy asks the brokers for all topics when a client uses an id that it does not know. An id that stays unknown is
looked up again after `AGAIN_S`: the topic was deleted, or the proxy's principal may not DESCRIBE it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..fetch.reader import LogReader
from ..runtime.pool import Pool
from ..state.errors import TierstateError

AGAIN_S = 5.0


class TopicNames:
    """The known names. Used by the proxy's event loop only."""

    def __init__(self, reader: LogReader, metadata: Pool) -> None:
        self._reader, self._metadata = reader, metadata
        self.known: dict[bytes, str] = {}
        """Names by the 16 bytes of the id."""
        self._asked_at: dict[bytes, float] = {}
        self._lock = asyncio.Lock()

    async def learn(self, topics: Iterable[bytes]) -> None:
        """Look up the names of these ids, unless that was done a short time ago. If it fails, they stay unknown."""
        time = asyncio.get_running_loop().time
        async with self._lock:
            due = [each for each in topics if each not in self.known and self._is_due(each, time())]
            if not due:
                return
            try:
                names = await self._metadata.run(self._reader.topic_names, goes_on=True)
            except TierstateError:
                names = {}
            self.known = {topic_id.raw: name for topic_id, name in names.items()} or self.known
            recent = {each: at for each, at in self._asked_at.items() if not self._is_due(each, time())}
            self._asked_at = recent | {each: time() for each in due if each not in self.known}

    def _is_due(self, topic: bytes, now: float) -> bool:
        return now - self._asked_at.get(topic, float("-inf")) >= AGAIN_S
