"""The disturbances of a soak, and the effect that each must have; the seed decides their order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.soak import disturbances as acts
from tests.soak import log_disturbances as losses
from tests.soak.clone import cluster_copied


@dataclass(frozen=True)
class Kind:
    """``effect`` must be seen at least once if this happened; the sentence is for people.

    ``slow``: it is seen so late that other disturbances follow before.
    """

    name: str
    effect: str
    act: acts.Act
    slow: bool = False


KINDS = (
    Kind("agent killed (-9)", "its next process began a term", acts.agent_killed),
    Kind("broker killed (-9)", "another agent went on copying what it led", acts.broker_killed),
    Kind("agent frozen, then a zombie", "another agent went on, and the zombie's term ended", acts.agent_frozen),
    Kind("leader moved", "the agent beside the new leader copied", acts.leader_moved),
    Kind("store away", "a copy failed, and a segment was copied when it was back", acts.store_away),
    Kind("agent stopped (TERM)", "it ended with 0, and its next process began a term", acts.agent_terminated),
    Kind("replica taken and given", "it led what others had copied, and went on copying", acts.replicas_moved),
    Kind("tier-state leader moved", "segments were copied afterwards", acts.tier_leader_moved),
    Kind("retention changed", "the log start moved, and segments were deleted", acts.retention_changed, slow=True),
    Kind("paused and resumed", "describe told of it, and segments were copied afterwards", acts.paused),
    Kind("stray object swept", "sweep showed it, and deleted it when it was named", acts.stray_swept),
    Kind("landed late", "an agent swept it by itself", acts.late_landing, slow=True),
    Kind("group reset", "an agent waited for it, and it read everything from there", acts.group_reset),
    Kind("group left behind", "an agent waited for it, and it read everything", acts.group_left_behind, slow=True),
    Kind("unclean election", "what was written after it was copied", losses.election_unclean),
    Kind("log begun anew", "it was copied and trimmed anew", losses.log_begun_anew),
    Kind("quiet topic's broker restarts", "its lineage stayed known", losses.quiet_restarted),
    Kind(
        "head of the tier-state topic lost",
        "it was recovered, and every partition was copied on",
        losses.head_lost,
    ),
    Kind("cluster copied", "nothing was deleted, and segments were copied afterwards", cluster_copied),
    Kind("quiet", "segments were copied", acts.nothing),
)


def sequence(seed: int, kinds: tuple[Kind, ...] = KINDS) -> Iterator[tuple[Kind, random.Random]]:
    """Yield without end: every kind once, in an order of its own, and again."""
    chance, number = random.Random(seed), 0
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            number += 1
            yield kind, random.Random(f"{seed} {number}")
