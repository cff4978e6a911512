"""What a process that serves knows about its own health: its services, its view, its store. Nothing here waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..broker.tier_reader import lost_heads
from ..follower.view_watch import ViewWatch
from ..runtime.service import Service
from ..runtime.units import counted
from ..state.errors import Unavailable
from ..storage.store_watch import StoreWatch

if TYPE_CHECKING:
    from ..broker.broker_watch import BrokerWatch
    from ..broker.rights_watch import RightsWatch
    from ..broker.tier_topic import TierTopic
    from ..follower.archives import Archives
    from ..follower.follower import Follower
    from ..follower.prefix_claim import PrefixClaim
    from ..leader.open import LeaderRole
    from ..leader.status import StatusBoard
    from ..runtime.clock import Clock
    from ..runtime.metrics import Metrics
    from ..runtime.settings import Settings
    from ..runtime.watchdog import Watchdog
    from ..state.view import TierView
    from ..storage.object_store import ObjectStore
    from .copied_folders import FolderWatch

FRESH_S = 60.0
"""Whoever decides from a view that was last known to be at the end longer ago is told that it is behind."""

BROKER_S = 900.0
"""A turn that asks brokers and disks: a few dozen requests at most between two signs of life, each with a deadline of
seconds to half a minute, and nobody answers."""
STORE_OPERATIONS = 3
"""So many go by between two signs of life of who asks the store: the last parts of an upload, its completion, and one
that is repeated or cleared up behind it."""
UNSEEN_NAMED = 5
ENDED_S = 5.0
"""How long a process goes on at most whose view has ended."""
SLACK_S = 300.0
"""For a disk or a processor that is busy with something else."""


def longest_silence(settings: Settings) -> dict[str, float]:
    """Every loop of an agent, a gateway and a proxy, and how long it may take for one thing at most, seconds.

    Generous: a restart on a false alarm costs more than a hang that is found a quarter of an hour later. Who waits
    (for work, for a store or a broker that is away, in a back-off, for a quota) goes on going round meanwhile.
    """
    operation = settings.store.request_timeout + settings.store.throttle_timeout
    store = STORE_OPERATIONS * operation + SLACK_S
    return {
        "start": max(store, BROKER_S),
        "agent": BROKER_S,
        "acts": max(store, BROKER_S),
        "chores": max(store, BROKER_S),
        "view": max(store, BROKER_S),
        "heartbeat": max(store, BROKER_S),
        "view watch": BROKER_S,
        "topic watch": BROKER_S,
        "store watch": store,
        "broker watch": BROKER_S,
        "rights watch": BROKER_S,
        "folder watch": BROKER_S,
        "gateway": SLACK_S,
        "proxy": SLACK_S,
    }


class AgentWatches:
    """What an agent watches beside its work: the ends of the tier-state topic, its configuration, the store."""

    def __init__(
        self,
        topic: TierTopic,
        follower: Follower,
        store: ObjectStore,
        archives: Archives,
        claim: PrefixClaim,
        rights: RightsWatch,
        folders: FolderWatch,
        clock: Clock,
        watchdog: Watchdog,
        trim_proof: str,
    ) -> None:
        self.view = ViewWatch(topic, follower, clock)
        self.store = StoreWatch(store, clock)
        self.rights, self.folders, self._trim_proof = rights, folders, trim_proof
        self._follower, self._watchdog, self._archives, self._claim = follower, watchdog, archives, claim
        self.services: list[Service] = []
        """Of the whole process, once it runs."""

    def threads(self) -> list[Service]:
        """Not yet started."""
        return [
            Service("view watch", self.view.run),
            Service("topic watch", self.view.run_problems),
            Service("store watch", self.store.run),
            Service("rights watch", self.rights.run),
            Service("folder watch", self.folders.run),
            ending_with(self._follower, self._archives.check_over),
        ]

    def answer(self, status: dict[str, object]) -> dict[str, object]:
        """Return a partition's status, with ``trim.proof`` and with what is wrong with the whole agent."""
        told = self.rights.refused + self.rights.told(str(status["topic"]))
        wrong = {"rights_lacking": told, "copied_folders": self.folders.problem}
        return status | wrong | {"trim_proof": self._trim_proof}

    def not_healthy(self) -> list[str]:
        return why_unhealthy(self.services, self._follower, self._watchdog)

    def not_ready(self, leader: LeaderRole) -> list[str]:
        found = why_hanging(self._watchdog) + why_topic_away(self.view) + why_beheaded(self.view)
        found += why_behind(self._follower, self.view, FRESH_S)
        found += [str(self._archives.broken)] if self._archives.broken else []
        found += [self._claim.contested] if self._claim.contested else []
        found += self.rights.refused
        found += [f"a right lacks: {each}" for each in self.rights.told()]
        found += [self.folders.problem] if self.folders.problem else []
        if unseen := leader.unseen():
            found.append(
                f"{counted(len(unseen), 'partition')} that this broker leads: "
                "in no folder of agent.log_dirs that can be read: " + ", ".join(unseen[:UNSEEN_NAMED])
            )
        found += why_later_release(leader.board, self._follower)
        blind = leader.agent.last_error
        return found + ([blind] if blind else []) + why_store_away(self.store)

    def feed(self, metrics: Metrics, leader: LeaderRole, chores: Sequence[str]) -> None:
        """Gauges of the process; those of its partitions are in `leader/gauges.py`."""
        feed_view_gauges(metrics, self.view)
        feed_loop_gauges(metrics, self._watchdog)
        metrics.tally("tierstate_copy_quota_waited_seconds_total", lambda: [((), leader.quota.waited)])
        metrics.gauge("tierstate_discovery_failing", lambda: [((), leader.agent.last_error is not None)])
        metrics.gauge("tierstate_partitions_not_seen", lambda: [((), len(leader.unseen()))])
        metrics.gauge("tierstate_log_folders_lost", lambda: [((), len(leader.log.broker_folders.lost))])
        metrics.gauge("tierstate_history_broken", lambda: [((), self._archives.broken is not None)])
        metrics.gauge("tierstate_prefix_contested", lambda: [((), self._claim.contested is not None)])
        metrics.gauge("tierstate_prefix_unproven", lambda: [((), self._claim.proof.trim is not None)])
        metrics.gauge("tierstate_prefix_on_trial", lambda: [((), self._claim.on_trial)])
        metrics.gauge(
            "tierstate_rights_lacking",
            lambda: [((each.right.operation.name, each.name), 1) for each in self.rights.lacking],
        )
        metrics.gauge("tierstate_object_store_away", lambda: [((), self.store.trouble is not None)])
        for chore in chores:
            metrics.begin("tierstate_chore_failures_total", chore)


def ending_with(follower: Follower, check_over: Callable[[], None] = lambda: None) -> Service:
    """Ends, and the process with it, when its view ended for good: another topic has the name now, above all.

    ``check_over`` may raise too.
    """

    def work(stop: threading.Event) -> None:
        while not stop.wait(ENDED_S):
            if follower.failure is not None:
                raise follower.failure
            with suppress(Unavailable):  # who cannot look now looks again
                check_over()

    return Service("view's end", work)


def why_unhealthy(services: Sequence[Service], follower: Follower, watchdog: Watchdog) -> list[str]:
    """What only a new process brings back: a thread that ended, or hangs."""
    found = [service.ended for service in services if service.ended] + why_hanging(watchdog)
    return found if follower.failure is None else [*found, f"the follower of the view ended: {follower.failure}"]


def why_hanging(watchdog: Watchdog) -> list[str]:
    return [str(each) for each in watchdog.hangs()]


def why_topic_away(watch: ViewWatch) -> list[str]:
    return [f"the tier-state topic is away: {watch.away[0]}"] if watch.away else []


def why_beheaded(watch: ViewWatch) -> list[str]:
    """Also while this very view has all that is gone: nobody after it will."""
    return lost_heads("the tier-state topic", watch.beheaded)


def why_behind(follower: Follower, watch: ViewWatch, max_age: float) -> list[str]:
    """What keeps the view from being what somebody can rely on who accepts one that is ``max_age`` seconds old."""
    if follower.failure is not None:
        return [f"the follower of the view ended: {follower.failure}"]
    found = []
    if follower.trouble is not None:
        found.append(f"the view does not get on: {follower.trouble}")
    if follower.lost is not None:
        found.append(f"the view is being rebuilt: {follower.lost}")
    old = {number: age for number, age in watch.ages().items() if age >= max_age or not watch.reached(number)}
    if old:
        oldest = max(old, key=lambda number: old[number])
        found.append(
            f"{counted(len(old), 'tier-state partition is', 'tier-state partitions are')} behind. "
            f"oldest={oldest} seconds={old[oldest]:.0f} "
            f"records={watch.lags().get(oldest, 'unknown')}"
        )
    return found


def why_later_release(board: StatusBoard, view: TierView) -> list[str]:
    """Partitions led here of which a later release wrote facts: nothing is written about them by this one."""
    found = []
    for partition, status in board.by_partition().items():
        with suppress(Unavailable):  # a view that is behind says so itself
            if status.leads and (later := view.partition(partition).later):
                found.append(f"{status.topic}-{status.partition}: {later[0]}")
    more = f" (and {len(found) - 1} more partitions)" if len(found) > 1 else ""
    return [f"upgrade this agent: a later release wrote facts. {found[0]}{more}"] if found else []


def why_store_away(watch: StoreWatch) -> list[str]:
    return [] if watch.trouble is None else [f"the object store is away: {watch.trouble}"]


def why_brokers_away(watch: BrokerWatch) -> list[str]:
    """Whoever reads the remote tier alone is served all the same."""
    return [] if watch.trouble is None else [f"the brokers are away: {watch.trouble}"]


def feed_view_gauges(metrics: Metrics, watch: ViewWatch) -> None:
    """Of any process with a view."""
    metrics.gauge("tierstate_view_age_seconds", lambda: [((str(n),), age) for n, age in watch.ages().items()])
    metrics.gauge("tierstate_heads_lost", lambda: [((), len(watch.beheaded))])
    metrics.gauge("tierstate_topic_problems", lambda: [] if watch.problems is None else [((), watch.problems)])


def feed_loop_gauges(metrics: Metrics, watchdog: Watchdog) -> None:
    """Of any process with loops."""

    def hanging() -> list[tuple[tuple[str], float]]:
        hangs = [each.loop for each in watchdog.hangs()]
        return [((loop,), float(hangs.count(loop))) for loop in watchdog.longest_s]

    metrics.gauge("tierstate_hung_threads", hanging)
