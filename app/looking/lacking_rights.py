"""Which rights a command's own credentials lack in Kafka, with the commands that add them."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from ...broker.acls import Lacking, Resource, lacking, rights_of_agent
from ...runtime.settings import Settings
from ...state.errors import AccessDenied, TierstateError

if TYPE_CHECKING:
    from ...broker.acls import Right
    from ..opening.connection import Connection

TO_LOOK = frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})
"""The operations on a topic that a reader needs to describe it. An agent needs more."""
LITERAL = re.compile(r"[\w.-]+")
"""A pattern of ``tiering.include`` that is the name of a topic."""


def refuse_lacking(missing: Collection[Lacking], settings: Settings) -> None:
    """Raise AccessDenied, which has the missing rights and the commands that add them, if there are any."""
    if missing:
        first, commands = "; ".join(map(str, missing)), "; ".join(each.command(settings.kafka) for each in missing)
        raise AccessDenied(f"lacking: {first}. An administrator adds them: {commands}")


def name_rights(connection: Connection, error: AccessDenied) -> None:
    """Raise an error with the missing rights if Kafka refused a request about a topic. Return if none is missing."""
    settings, topic, missing = connection.settings, error.facts.get("topic"), list[Lacking]()
    if isinstance(topic, str) and topic != settings.tier_state.topic:
        with suppress(TierstateError):  # then the first error says enough
            missing = lacking(connection.broker.raw, settings.tier_state.topic, [topic], _on_topics(settings))
    try:
        refuse_lacking(missing, settings)
    except AccessDenied as reason:
        raise reason from error


def hidden_topics(connection: Connection, shown: Collection[str]) -> list[str]:
    """Return a sentence on each topic that ``tiering.include`` names, that is not ``shown`` and may not be described.

    A broker answers the same for a topic that does not exist.
    """
    settings = connection.settings
    names = [each for each in settings.tiering.include if LITERAL.fullmatch(each) and each not in shown]
    rights = [right for right in _on_topics(settings) if right.operation.name == "DESCRIBE"]
    missing = lacking(connection.broker.raw, settings.tier_state.topic, names, rights) if names else []
    return [f"{each.name}: does not exist, or the broker hides it: {each.told(settings.kafka)}" for each in missing]


def _on_topics(settings: Settings) -> list[Right]:
    """Return the rights on its topics that an agent needs, or without an agent's settings, those that a look needs."""
    fetches = settings.agent.source == "fetch"
    rights = rights_of_agent(trims=settings.trim.enabled, fetches=fetches)
    agents = bool(fetches or settings.agent.log_dirs)
    return [
        right for right in rights if right.resource is Resource.TOPICS and (agents or right.operation.name in TO_LOOK)
    ]
