"""The statuses of all partitions of each agent. One answer of an agent is used for all topics, for `AGE_S` seconds."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...runtime.clock import Clock

AGE_S = 10.0
"""Seconds after which an agent is queried again."""
TIMEOUT_S = 2.0
AT_ONCE = 8
LONGEST_BYTES = 256 << 20
"""Most bytes of an answer that are read. A partition takes about 1 KB."""

Place = tuple[str, int]
Board = Mapping[Place, Mapping[str, Any]]
"""Statuses by topic and partition, of the partitions that a broker leads."""


@dataclass(frozen=True, slots=True)
class _Known:
    board: Board | None
    asked_at: float


class AgentBoards:
    """Requests agents' boards at the addresses that terms name. A silent agent has no board (None). Thread-safe.

    ``hosts``: the hosts that may be queried; empty: all. An agent on any other host counts as silent.
    """

    def __init__(self, clock: Clock, hosts: Collection[str] = ()) -> None:
        self._clock, self._hosts = clock, hosts
        self._answers: dict[str, _Known] = {}
        self._asking: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="agent-boards")

    def now(self, addresses: Collection[str]) -> dict[str, Board | None]:
        """Query all of these agents now, and return their boards by address. A silent agent takes `TIMEOUT_S`."""
        return dict(zip(addresses, self._pool.map(self._asked, addresses), strict=True))

    def known(self) -> dict[str, Board | None]:
        """Return the latest board of each agent that was queried, by address; None: the agent was silent."""
        with self._lock:
            return {address: answer.board for address, answer in self._answers.items()}

    def renew(self, addresses: Collection[str]) -> None:
        """Query, in the background, the agents that were not queried in the last `AGE_S` seconds."""
        now = self._clock.monotonic()
        with self._lock:
            old = [
                each
                for each in addresses
                if each not in self._asking
                and (each not in self._answers or now - self._answers[each].asked_at >= AGE_S)
            ]
            self._asking.update(old)
        for each in old:
            self._pool.submit(self._asked, each)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _asked(self, address: str) -> Board | None:
        board = _asked(address) if may_ask(address, self._hosts) else None
        with self._lock:
            self._answers[address] = _Known(board, self._clock.monotonic())
            self._asking.discard(address)
        return board


def _asked(address: str) -> Board | None:
    try:
        statuses = (asked_of_agent(address, "/v1/status") or {})["partitions"]
        return {(each["topic"], each["partition"]): each for each in statuses if each["leads"]}
    except (KeyError, TypeError):
        return None


def may_ask(address: str, hosts: Collection[str]) -> bool:
    """Return whether the host of this address is one of ``hosts``. Without ``hosts``, every address is allowed."""
    return not hosts or address.rpartition(":")[0].strip("[]").lower() in hosts


def asked_of_agent(address: str, path: str) -> Any | None:
    """Return the JSON of the agent's management port. Returns None without an answer of status 200."""
    import urllib3

    pool = urllib3.PoolManager(retries=False)
    try:
        answer = pool.request("GET", f"http://{address}{path}", timeout=TIMEOUT_S, preload_content=False)
        data = answer.read(LONGEST_BYTES)
        answer.close()
        return json.loads(data) if answer.status == 200 else None
    except (urllib3.exceptions.HTTPError, ValueError):
        return None
    finally:
        pool.clear()
