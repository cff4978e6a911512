"""A recovery whose lock another one took over writes nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.leader.recovery import Target, bucket, plan
from tests.leader.world import World
from tierstate.app.opening.connection import Advance, Connection
from tierstate.app.operating.prefix_lock import PrefixLock
from tierstate.app.operating.recovery import Recovery, write_lost_facts, write_recovery
from tierstate.rules.lost_facts import LostFacts
from tierstate.rules.prefix import SILENT_PERIODS
from tierstate.runtime.settings import Settings
from tierstate.state.errors import Fenced


@pytest.mark.parametrize("named", [False, True])
def test_no_fact_is_written_once_another_recovery_has_the_lock(world: World, named: bool) -> None:
    world.process().copy_all()
    settings, target = Settings(), Target.fresh(world)

    @contextmanager
    def overtaken(label: str, total: int | None = None, /) -> Iterator[Advance]:
        """Let this process hang after its second step, until another one has the lock."""
        steps = iter(range(100))

        def advance(amount: int) -> None:
            if label == "writing facts" and next(steps) == 1:
                world.clock.advance(SILENT_PERIODS * settings.prefix.heartbeat)
                second.take()

        yield advance

    connection = Connection(settings, world.clock, progress=overtaken)
    vars(connection).update(topic=target.topic, store=world.store, cluster_id="memory")
    first, second = PrefixLock(connection, "recover"), PrefixLock(connection, "recover")
    first.take()
    recovery_plan = plan(world)
    added = {recovery_plan.partition: LostFacts(recovery_plan, recovery_plan.restored)} if named else {}
    recovery = Recovery("memory", bucket(world), (recovery_plan,), {}, None, frozenset(), (), added)
    write = write_lost_facts if named else partial(write_recovery, resume=False)
    with pytest.raises(Fenced, match="another command has the lock"):
        write(connection, recovery, first)
    second.require()
    facts = connection.view().facts(recovery_plan.partition)
    assert len(facts) == 1
    connection.close()
