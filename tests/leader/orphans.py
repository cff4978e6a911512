"""Objects that outlive their facts: a `World` in which writes land after their segment was deleted."""

from __future__ import annotations

from collections.abc import Collection

from tests.leader.expiry import Expiry, by_size
from tests.leader.world import Process, World
from tierstate.leader.expirer import Quarantine
from tierstate.leader.sweeper import OrphanSweeps, SweepTools
from tierstate.leader.term import TermSession
from tierstate.rules.sweep import UnneededObject
from tierstate.runtime.listener import OrphansFound
from tierstate.runtime.operation import run
from tierstate.state.ids import RemoteSegmentId, TopicIdPartition
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key

GRACE_S = 86_400.0
KEYS = ObjectKeys()


class Late:
    """A world where two of five segments are deleted, and writes of a gone attempt land after it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = world.process()
        self.session = self.process.copy_all()
        self.gone = world.view().readable[0]
        Expiry(self.process, self.session, by_size(world, 3)).work()
        self.archived: dict[RemoteSegmentId, str] = {}
        self.restart(self.process, self.session)

    def restart(self, process: Process, session: TermSession, keys: ObjectKeys = KEYS, aside: str = "") -> None:
        """Go on with a process that has seen nothing yet."""
        self.process, self.session = process, session
        self.tools = SweepTools(
            self.world.store, keys, self.says_archive, GRACE_S, process.events.append, Quarantine(aside)
        )
        self.watch = OrphanSweeps(process.context, self.world.partition, self.world.name, self.tools)

    def says_archive(
        self, partition: TopicIdPartition, segment_ids: Collection[RemoteSegmentId]
    ) -> dict[RemoteSegmentId, str]:
        return {each: self.archived[each] for each in segment_ids if each in self.archived}

    def land(self, *kinds: ObjectKind) -> list[str]:
        keys = [object_key(self.gone.object_key, kind) for kind in kinds or tuple(ObjectKind)]
        for key in keys:
            self.world.store.put_if_absent(key, b"late")
        return keys

    def forget(self) -> None:
        """Erase the facts of deleted segments."""
        for segment in self.world.view().unsettled:
            for live in segment.facts:
                self.world.topic.append(0, live.key, None)

    def findings(self) -> dict[str, UnneededObject]:
        return {each.info.key: each for each in self.watch.look(self.world.view()).findings}

    def sweep(self) -> int:
        """Look, and delete what is ripe. Return how many were deleted."""
        self.watch.look(self.world.view())
        return run(self.watch.sweep(self.session))

    def ripen(self) -> None:
        """Look twice, a grace apart."""
        self.sweep()
        self.world.clock.advance(GRACE_S)
        self.watch.look(self.world.view())

    def told(self) -> OrphansFound:
        return [event for event in self.process.events if isinstance(event, OrphansFound)][-1]
