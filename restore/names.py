"""Names of the objects of restores: the only file that creates and parses them. Keys are relative to the store's URL,
next to `_tierstate/`, whose listings they would slow down.

    _tierstate_restore/<target cluster id>/<target topic id>/<partition>/<number>    a step of a restore (`ledger.py`)

Numbers have 8 digits, so that a LIST returns them in ascending order.
"""

from __future__ import annotations

import re

from ..follower.object_names import RESTORES
from ..state.ids import TopicId

_NUMBER = re.compile("[0-9]{8}")


def steps_prefix(cluster_id: str, topic_id: TopicId, partition: int) -> str:
    """Return the text with which the keys of all steps of one target partition begin."""
    return f"{RESTORES}{cluster_id}/{topic_id}/{partition}/"


def step_key(prefix: str, number: int) -> str:
    return f"{prefix}{number:08d}"


def step_number(prefix: str, key: str) -> int | None:
    """Return the number of a step; None for the key of anything else."""
    return int(key[len(prefix) :]) if _NUMBER.fullmatch(key, len(prefix)) else None
