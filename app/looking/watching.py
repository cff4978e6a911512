"""The health of a serving process: of its services, its view, its store. No function here waits for an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...broker.tier_reader import lost_heads
from ...follower.view_watch import ViewWatch
from ...rules.reasons import Reason
from ...runtime.clock import Clock
from ...runtime.service import Service
from ...runtime.settings import Settings
from ...runtime.units import counted
from ...state.errors import Unavailable
from ...state.view import TierView

if TYPE_CHECKING:
    from ...broker.acls import RightsWatch
    from ...broker.tier_topic import TierTopic
    from ...follower.archives import Archives
    from ...follower.follower import Follower
    from ...follower.prefix_claim import PrefixClaim
    from ...leader.open import LeaderRole
    from ...leader.status import StatusBoard
    from ...runtime.metrics import Metrics
    from ...runtime.watchdog import Watchdog
    from .copied_folders import FolderWatch
    from .store_watches import StoreWatches

FRESH_S = 60.0
"""A view is behind if this many seconds passed since it was at the topic's end. Decisions need a fresher view."""

BROKER_S = 900.0
"""Seconds for an iteration that queries brokers and disks, even if nothing answers: between two signs of life it makes
a few dozen requests at most, each with a deadline of seconds to half a minute."""
STORE_OPERATIONS = 3
"""Most store requests between two signs of life: the last parts of an upload, its completion, and a repeated request
or one that cleans up."""
UNSEEN_NAMED = 5
ENDED_S = 5.0
"""Most seconds that a process continues after its view has ended."""
SLACK_S = 300.0
"""Additional seconds for a disk or a processor that is busy with other work."""


def longest_silence(settings: Settings) -> dict[str, float]:
    """Return, for each loop of an agent, a gateway and a proxy, the most seconds between two signs of life.

    The limits are large: a restart on a false alarm costs more than a hang that is found a quarter of an hour later. A
    loop that waits (for work, an unavailable store or broker, a backoff, a quota) still gives signs of life.
    """
    operation = settings.store.request_timeout + settings.store.throttle_timeout
    store = STORE_OPERATIONS * operation + SLACK_S
    return {
        "start": max(store, BROKER_S),
        "agent": BROKER_S,
        "operations": max(store, BROKER_S),
        "chores": max(store, BROKER_S),
        "view": max(store, BROKER_S),
        "heartbeat": max(store, BROKER_S),
        "view watch": BROKER_S,
        "topic watch": BROKER_S,
        "store watch": store,
        "broker watch": BROKER_S,
        "rights watch": BROKER_S,
        "folder watch": BROKER_S,
        "ownership": BROKER_S,
        "gateway": SLACK_S,
        "proxy": SLACK_S,
    }


class AgentWatches:
    """An agent's watches, in threads of their own: tier-state topic, stores, rights, log folders, end of the view."""

    def __init__(
        self,
        topic: TierTopic,
        follower: Follower,
        stores: StoreWatches,
        archives: Archives,
        claim: PrefixClaim,
        rights: RightsWatch,
        folders: FolderWatch | None,
        clock: Clock,
        watchdog: Watchdog,
        trim_proof: str,
    ) -> None:
        self.view = ViewWatch(topic, follower, clock)
        self.stores = stores
        self.rights, self.folders, self.trim_proof = rights, folders, trim_proof
        self._follower, self._watchdog, self._archives, self._claim = follower, watchdog, archives, claim
        self.services: list[Service] = []
        """The services of the whole process, once it runs."""
        self.backup_problems: Callable[[], Sequence[str] | None] = lambda: None
        """Returns what the newest backup of the cluster lacks; None if this agent does not back up."""

    def threads(self) -> list[Service]:
        """Return the services of the watches, not yet started."""
        return [
            Service("view watch", self.view.run),
            Service("topic watch", self.view.run_problems),
            *self.stores.services(),
            Service("rights watch", self.rights.run),
            *([Service("folder watch", self.folders.run)] if self.folders else []),
            ending_with(self._follower, self._archives.check_over),
        ]

    def answer(self, status: dict[str, object]) -> dict[str, object]:
        """Return a partition's status, with how a trim proves objects, and with problems of the agent as a whole."""
        rights = self.rights.refused + self.rights.told(str(status["topic"]))
        copied_folders = self.folders.problem if self.folders else None
        wrong: dict[str, object] = {"rights_lacking": rights, "copied_folders": copied_folders}
        place = str(status["topic"]), str(status["topic_id"]), int(str(status["partition"]))
        away = self.stores.trouble_of(*place) if status["refused"] is None else None
        is_waiting = status["copy_lag_segments"] and status["not_copied_reason"] in (None, Reason.ALL_COPIED)
        if away and is_waiting:  # a copy has not failed yet, and the reasons are older than the segment
            wrong |= {"not_copied": f"the object store is away: {away}", "not_copied_reason": Reason.STORE_AWAY}
        wrong |= {"store_away": away, "backup_problems": self.backup_problems()}
        return status | wrong | {"trim_proof": self.trim_proof}

    def not_healthy(self) -> list[str]:
        return why_unhealthy(self.services, self._watchdog, self._follower)

    def not_ready(self, leader: LeaderRole) -> list[str]:
        reasons = why_hanging(self._watchdog)
        reasons += [f"the tier-state topic is away: {since[0]}"] if (since := self.view.away) else []
        reasons += lost_heads("the tier-state topic", self.view.beheaded)  # a new view will lack these records
        reasons += why_behind(self._follower, self.view, FRESH_S)
        reasons += [str(self._archives.broken)] if self._archives.broken else []
        reasons += [self._claim.contested] if self._claim.contested else []
        reasons += self.rights.refused
        reasons += [f"a right lacks: {each}" for each in self.rights.told()]
        reasons += [self.folders.problem] if self.folders and self.folders.problem else []
        if unseen := leader.unseen():
            reasons.append(
                f"{counted(len(unseen), 'partition')} that this broker leads: "
                "in no folder of agent.log_dirs that can be read: " + ", ".join(unseen[:UNSEEN_NAMED])
            )
        reasons += why_later_release(leader.board, self._follower)
        blind = leader.agent.last_error
        reasons += [blind] if blind else []
        return reasons + [f"the object store is away: {away}" for away in self.stores.troubles()]

    def feed(self, metrics: Metrics, leader: LeaderRole, chores: Sequence[str]) -> None:
        """Add the gauges of the process; those of its partitions are in `leader/gauges.py`."""
        feed_view_gauges(metrics, self.view)
        feed_loop_gauges(metrics, self._watchdog)
        metrics.tally("tierstate_copy_quota_waited_seconds_total", lambda: [((), leader.quota.waited)])
        metrics.gauge("tierstate_discovery_failing", lambda: [((), leader.agent.last_error is not None)])
        metrics.gauge("tierstate_partitions_not_seen", lambda: [((), len(leader.unseen()))])
        folders = self.folders
        if folders is not None:
            metrics.gauge("tierstate_log_folders_lost", lambda: [((), len(folders.lost))])
        metrics.gauge("tierstate_history_broken", lambda: [((), self._archives.broken is not None)])
        metrics.gauge("tierstate_prefix_contested", lambda: [((), self._claim.contested is not None)])
        metrics.gauge("tierstate_prefix_unproven", lambda: [((), self._claim.proof.trim is not None)])
        metrics.gauge("tierstate_prefix_on_trial", lambda: [((), self._claim.on_trial)])
        metrics.gauge(
            "tierstate_rights_lacking",
            lambda: [((each.right.operation.name, each.name), 1) for each in self.rights.lacking],
        )
        metrics.gauge(
            "tierstate_backup_problems",
            lambda: [] if (lacks := self.backup_problems()) is None else [((), len(lacks))],
        )
        self.stores.feed(metrics)
        for chore in chores:
            metrics.begin("tierstate_chore_failures_total", chore)


def ending_with(follower: Follower, check_over: Callable[[], None] = lambda: None) -> Service:
    """Return a service that fails, and so ends the process, once the view has ended for good: above all, if another
    topic now has the name. ``check_over`` is called repeatedly; its errors end the process, too, except Unavailable.
    """

    def work(stop: threading.Event) -> None:
        while not stop.wait(ENDED_S):
            if follower.failure is not None:
                raise follower.failure
            with suppress(Unavailable):  # checked again later
                check_over()

    return Service("view's end", work)


def why_unhealthy(services: Sequence[Service], watchdog: Watchdog, follower: Follower | None = None) -> list[str]:
    """Return the problems that only a restart removes: a service, a thread or the view ended, or a thread hangs."""
    reasons = [service.ended for service in services if service.ended] + why_hanging(watchdog)
    failure = None if follower is None else follower.failure
    return reasons if failure is None else [*reasons, f"the follower of the view ended: {failure}"]


def why_hanging(watchdog: Watchdog) -> list[str]:
    return [str(each) for each in watchdog.hangs()]


def why_behind(follower: Follower, watch: ViewWatch, max_age: float) -> list[str]:
    """Return the reasons why a reader that accepts a view of ``max_age`` seconds must not rely on this view."""
    if follower.failure is not None:
        return [f"the follower of the view ended: {follower.failure}"]
    reasons = []
    if follower.trouble is not None:
        reasons.append(f"the view makes no progress: {follower.trouble}")
    if follower.lost is not None:
        reasons.append(f"the view is being rebuilt: {follower.lost}")
    old = {number: age for number, age in watch.ages().items() if age >= max_age or not watch.reached(number)}
    if old:
        oldest = max(old, key=lambda number: old[number])
        reasons.append(
            f"{counted(len(old), 'tier-state partition is', 'tier-state partitions are')} behind. "
            f"oldest={oldest} seconds={old[oldest]:.0f} "
            f"records={watch.lags().get(oldest, 'unknown')}"
        )
    return reasons


def why_later_release(board: StatusBoard, view: TierView) -> list[str]:
    """Return a sentence on partitions led here with facts of a later release: this release writes no facts of them."""
    led = []
    for partition, status in board.by_partition().items():
        with suppress(Unavailable):  # `why_behind` reports a view that is behind
            if status.leads and (later := view.partition(partition).later):
                led.append(f"{status.topic}-{status.partition}: {later[0]}")
    more = f" (and {len(led) - 1} more partitions)" if len(led) > 1 else ""
    return [f"upgrade this agent: a later release wrote facts. {led[0]}{more}"] if led else []


def feed_view_gauges(metrics: Metrics, watch: ViewWatch) -> None:
    metrics.gauge("tierstate_view_age_seconds", lambda: [((str(n),), age) for n, age in watch.ages().items()])
    metrics.gauge("tierstate_heads_lost", lambda: [((), len(watch.beheaded))])
    metrics.gauge("tierstate_topic_problems", lambda: [] if watch.problems is None else [((), watch.problems)])


def feed_loop_gauges(metrics: Metrics, watchdog: Watchdog) -> None:
    def hanging() -> list[tuple[tuple[str], float]]:
        hangs = [each.loop for each in watchdog.hangs()]
        return [((loop,), float(hangs.count(loop))) for loop in watchdog.longest_s]

    metrics.gauge("tierstate_hung_threads", hanging)
