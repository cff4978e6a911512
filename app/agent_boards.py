"""What agents say of all their partitions at once: each is asked once in a while, however many topics are looked at."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..runtime.clock import Clock

AGE_S = 10.0
"""How old what is known may be before an agent is asked again."""
PATIENCE_S = 2.0
AT_ONCE = 8
LONGEST_BYTES = 256 << 20
"""Of one answer: 1 KB a partition."""

Place = tuple[str, int]
Board = Mapping[Place, Mapping[str, Any]]
"""Topic and partition to its status, of the partitions that a broker leads."""


@dataclass(frozen=True, slots=True)
class _Known:
    board: Board | None
    asked_at: float


class AgentBoards:
    """By the addresses that terms name. Thread-safe. Of an agent that is silent there is no board: None.

    ``hosts``: of those that may be asked; none: all. Any other one counts as silent.
    """

    def __init__(self, clock: Clock, hosts: Collection[str] = ()) -> None:
        self._clock, self._hosts = clock, hosts
        self._known: dict[str, _Known] = {}
        self._asking: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="agent-boards")

    def now(self, addresses: Collection[str]) -> dict[str, Board | None]:
        """All of them, asked now; takes `PATIENCE_S` where one is silent."""
        return dict(zip(addresses, self._pool.map(self._asked, addresses), strict=True))

    def known(self) -> dict[str, Board | None]:
        """What has been answered so far."""
        with self._lock:
            return {address: known.board for address, known in self._known.items()}

    def renew(self, addresses: Collection[str]) -> None:
        """Who was asked too long ago, or never, is asked behind the caller's back."""
        now = self._clock.monotonic()
        with self._lock:
            old = [
                each
                for each in addresses
                if each not in self._asking and (each not in self._known or now - self._known[each].asked_at >= AGE_S)
            ]
            self._asking.update(old)
        for each in old:
            self._pool.submit(self._asked, each)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _asked(self, address: str) -> Board | None:
        board = _asked(address) if may_ask(address, self._hosts) else None
        with self._lock:
            self._known[address] = _Known(board, self._clock.monotonic())
            self._asking.discard(address)
        return board


def _asked(address: str) -> Board | None:
    try:
        said = (asked_of_agent(address, "/v1/status") or {})["partitions"]
        return {(each["topic"], each["partition"]): each for each in said if each["leads"]}
    except (KeyError, TypeError):
        return None


def may_ask(address: str, hosts: Collection[str]) -> bool:
    """Whether its host is one of these, where there are any."""
    return not hosts or address.rpartition(":")[0].strip("[]").lower() in hosts


def asked_of_agent(address: str, path: str) -> Any | None:
    """The JSON of its management port; None: it does not answer, or knows nothing of it."""
    import urllib3

    pool = urllib3.PoolManager(retries=False)
    try:
        answer = pool.request("GET", f"http://{address}{path}", timeout=PATIENCE_S, preload_content=False)
        data = answer.read(LONGEST_BYTES)
        answer.close()
        return json.loads(data) if answer.status == 200 else None
    except (urllib3.exceptions.HTTPError, ValueError):
        return None
    finally:
        pool.clear()
