"""Names of the objects of restores and backups: the only file that creates and parses them. Keys are relative to the
store's URL, beside `_tierstate/`, whose listings they would slow down.

    _tierstate_restore/<target cluster id>/<target topic id>/<partition>/<number>    a step of a restore (`ledger.py`)
    _tierstate_backup/<cluster id>/<milliseconds>                                    a backup (`backups.py`)

Numbers have 8 digits and times 15, so that a LIST returns them in ascending order.
"""

from __future__ import annotations

import re

from ..state.ids import TopicId
from ..state.offsets import TimestampMs

_NUMBER, _TIME = re.compile("[0-9]{8}"), re.compile("[0-9]{15}")


def steps_prefix(cluster_id: str, topic_id: TopicId, partition: int) -> str:
    """Return the text with which the keys of all steps of one target partition begin."""
    return f"_tierstate_restore/{cluster_id}/{topic_id}/{partition}/"


def step_key(prefix: str, number: int) -> str:
    return f"{prefix}{number:08d}"


def step_number(prefix: str, key: str) -> int | None:
    """Return the number of a step; None for the key of anything else."""
    return int(key[len(prefix) :]) if _NUMBER.fullmatch(key, len(prefix)) else None


def backups_prefix(cluster_id: str) -> str:
    return f"_tierstate_backup/{cluster_id}/"


def backup_key(cluster_id: str, at: TimestampMs) -> str:
    return f"{backups_prefix(cluster_id)}{at:015d}"


def backup_time(cluster_id: str, key: str) -> TimestampMs | None:
    """Return the time of a backup; None for the key of anything else."""
    prefix = backups_prefix(cluster_id)
    return TimestampMs(int(key[len(prefix) :])) if _TIME.fullmatch(key, len(prefix)) else None
