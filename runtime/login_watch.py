"""The logins of this process that are refused now. Each refusal names the user, the mechanism and the server."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from .listener import Listener, LoginAccepted, LoginRefused


class LoginWatch:
    """The logins of this process at one service. Thread-safe."""

    def __init__(self, service: str, listener: Listener) -> None:
        self._service, self._listener = service, listener
        self._refused: dict[str, LoginRefused] = {}
        self.count = 0
        """Number of refusals until now."""

    def refused(self, server: str, user: str, mechanism: str, reason: str) -> None:
        """Report the refusal to the listener, and remember it until `accepted`."""
        refusal = LoginRefused(self._service, server, user, mechanism, reason)
        self.count += 1
        again = self._refused.get(server)
        same = again is not None and again.user == user
        self._refused = {**self._refused, server: refusal}
        self._listener(replace(refusal, again=same))

    def accepted(self, server: str, user: str) -> None:
        """Report to the listener that the server accepts the login, if it refused the login before."""
        if server not in self._refused:
            return
        self._refused = {name: each for name, each in self._refused.items() if name != server}
        self._listener(LoginAccepted(self._service, server, user))

    def keep(self, servers: Container[str]) -> None:
        """Forget all servers that are not in ``servers``: they have left the cluster."""
        self._refused = {name: each for name, each in self._refused.items() if name in servers}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._refused)

    def troubles(self) -> list[str]:
        return [str(each) for each in self._refused.values()]
