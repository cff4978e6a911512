"""Removes names of groups and users that a caller may not know from agents' statuses and leases' holders.

This happens only if Kafka decides about rights. A caller sees the groups that the brokers list to this caller, and the
leases' holders that are the caller's own plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..app.operating.plans import user_of_plan
from ..broker.acls import ADDED_BY
from ..rules.reasons import Reason
from ..runtime.units import counted

ANOTHER = "another reader"


def shown_holder(holder: str, user: str | None) -> str:
    """Return the holder, or `ANOTHER` if the holder is not a plan of ``user``. ``user`` None: the caller sees all."""
    return holder if user is None or user_of_plan(holder) == user else ANOTHER


def shown_status(status: Mapping[str, Any], groups: Collection[str], user: str) -> dict[str, Any]:
    """Return the status of a partition as this user may read it. ``groups``: the groups that the user may see."""
    made, held_by = dict(status), status.get("held_by") or ()
    shown_groups = [each for each in held_by if each in groups]
    if "held_by" in made:
        made["held_by"] = shown_groups
    match status.get("not_trimmed_reason"):
        case Reason.GROUP_HOLDS if len(shown_groups) < len(held_by) or not held_by:
            others = counted(max(1, len(held_by) - len(shown_groups)), "consumer group") + " that this user may not see"
            made["not_trimmed"] = f"held by {', '.join([*shown_groups, others])}"
        case Reason.GROUPS_UNKNOWN:
            made["not_trimmed"] = "consumer groups could not be listed completely"
    if status.get("rights_lacking"):
        made["rights_lacking"] = [each.partition(ADDED_BY)[0] for each in status["rights_lacking"]]
    if status.get("not_expired_reason") == Reason.LEASED:
        made["not_expired"] = "readers' leases keep the objects of condemned segments"
    return made
