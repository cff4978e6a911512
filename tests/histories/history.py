"""Run one history by its seed. If a promise breaks, print it and the few steps that break it.

python -m tests.histories.history SEED [--steps 3,17,42] [--without GUARD] [--late] [--source fetch]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable

from tests.histories.fetched import FetchedWorld
from tests.histories.guards import GUARDS, without
from tests.histories.shrink import shrink
from tests.histories.world import STEPS, World

SOURCES: dict[str, type[World]] = {"disk": World, "fetch": FetchedWorld}


def broken(
    seed: int,
    steps: Iterable[int] = range(STEPS),
    seen: Counter[str] | None = None,
    *,
    late: bool = False,
    source: str = "disk",
) -> tuple[int, str] | None:
    """Return the step at which a promise broke, and the promise; None if all hold. ``seen`` counts events.

    ``late``: writes to the store also land late (`late_store.py`). ``source``: the agents' ``agent.source``.
    """
    world = SOURCES[source](seed)
    world.store.active = late
    try:
        world.run(steps)
    except AssertionError as error:
        return world.now, str(error)
    except Exception as error:
        return world.now, f"a bug: {error!r}"
    finally:
        world.close()
        if seen is not None:
            seen.update(world.seen)
            seen.update(landed=len(world.topic.log), compacted=world.topic.removed)
    return None


def smallest(seed: int, last: int, *, late: bool = False, source: str = "disk") -> list[int]:
    """Return few steps of a failing history that are enough to break it."""

    def fails(steps: list[int]) -> str | None:
        found = broken(seed, steps, late=late, source=source)
        return found[1] if found else None

    return shrink(list(range(last + 1)), fails)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", help="only these, separated by commas (what shrinking printed)")
    parser.add_argument("--without", choices=sorted(GUARDS), help="with one guard taken away")
    parser.add_argument("--late", action="store_true", help="writes to the store land late, and twice")
    parser.add_argument("--source", choices=SOURCES, default="disk", help="where the agents read logs")
    given = parser.parse_args()
    steps = [int(each) for each in given.steps.split(",")] if given.steps else list(range(STEPS))
    with without(given.without):
        found = broken(given.seed, steps, late=given.late, source=given.source)
        if found is None:
            print(f"seed {given.seed}: every promise holds over {len(steps)} steps")
            return 0
        print(f"seed {given.seed}, step {found[0]}: {found[1]}")
        if not given.steps:
            few = smallest(given.seed, found[0], late=given.late, source=given.source)
            again = f" --without {given.without!r}" if given.without else ""
            again += " --late" if given.late else ""
            again += f" --source {given.source}" if given.source != "disk" else ""
            shown = ",".join(map(str, few))
            print(
                f"{len(few)} steps are enough:\n  python -m tests.histories.history {given.seed} --steps {shown}{again}"
            )
    return 1


if __name__ == "__main__":
    sys.exit(main())
