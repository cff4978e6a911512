"""Opens all parts of an agent in order, and returns its services, including the management port's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial

from structlog.typing import FilteringBoundLogger

from ...broker.acls import RightsWatch, lacking, rights_of_agent
from ...follower.archives import left_behind
from ...follower.following import Following
from ...follower.move import StoreMoved
from ...follower.object_names import ROOT
from ...follower.open import open_view
from ...follower.paired_stores import PairedStore
from ...leader.discovery import FactsKept
from ...leader.gauges import feed_clock_gauge, feed_gauges
from ...leader.open import Beside, LeaderRole, Parts, open_leader
from ...leader.other_replicas import epochs_of
from ...leader.schedule import Schedule
from ...leader.status import PartitionStatus
from ...log.local_log import LogDirs
from ...runtime.clock import SystemClock
from ...runtime.id_source import RandomIds
from ...runtime.listener import fan_out
from ...runtime.logs import log_events
from ...runtime.management import Health, ManagementServer
from ...runtime.metrics import Metrics
from ...runtime.quota import ByteQuota, repeats_taken_from
from ...runtime.service import Service
from ...runtime.settings import Settings
from ...runtime.watchdog import Supervisor, Watchdog, loop
from ...state.errors import AccessDenied, PrefixContested, StorageUnavailable
from ...state.keys import tier_partition_of
from ...storage.probe import probe_at_start, proof_of
from ...storage.wrapped_stores import claimed, living
from ...tail.fetch_log import FetchLog
from ..looking.archived_deletes import ArchivedDeletes
from ..looking.store_watches import StoreWatches
from ..looking.watching import AgentWatches, longest_silence
from ..opening.connection import Connection, refuse_kip405
from .log_source import disk_source, fetch_source
from .prefix import claim_of, refuse_sources, require_one_source
from .topic_stores import require_every_store
from .upkeep import Upkeep, seed_of

JOINED_S = 120.0
"""Seconds for an agent with ``--once`` to be assigned partitions."""


@contextmanager
def open_agent(settings: Settings, logger: FilteringBoundLogger, *, once: bool) -> Iterator[list[Service]]:
    """Yield the services of the agent, not yet started. ``once``: they end when nothing remains to be done.

    Raises InvalidRequest for log folders of another cluster and for a copy of the broker's folders. Also raises the
    errors of opening each part.
    """
    refuse_kip405(settings)
    clock, metrics, name = SystemClock(), Metrics(), settings.tier_state.topic
    listener = fan_out(metrics.listen, log_events(logger))
    with ExitStack() as stack:
        watchdog = Watchdog(clock, longest_silence(settings), Supervisor(), logger.warning)
        stack.enter_context(watchdog)
        starting = stack.enter_context(ExitStack())
        starting.enter_context(loop("start"))
        fetches = settings.agent.source == "fetch"
        folders = None if fetches else stack.enter_context(LogDirs(settings.agent.log_dirs, listener=listener))
        quota = ByteQuota(clock, settings.copy_.quota)
        listened = fan_out(listener, repeats_taken_from(quota))
        connection = stack.enter_context(Connection(settings, clock, listener=listened))
        broker, topic = connection.broker, connection.topic
        with suppress(StorageUnavailable, AccessDenied):  # it is looked for again before the first change
            connection.followed.stay()
        source = stack.enter_context(fetch_source(connection) if folders is None else disk_source(connection, folders))
        log = source.log
        require_stores = cache(partial(require_every_store, connection))  # an error is not cached
        with suppress(StorageUnavailable, AccessDenied):  # an agent that cannot ask waits for its store, as below
            require_one_source(connection)
            require_stores()
        claim = claim_of(connection, living(connection.stores[0]), source.claimant)
        stack.callback(claim.leave)  # after the last thread that changes the bucket has ended

        def require(*, harms: bool) -> None:
            claim.require(harms=harms)
            require_stores()

        store = claimed(living(connection.store), require, ROOT)
        upkeep = Upkeep(connection, store, listener, claim)
        archives = upkeep.archives
        facts_kept = FactsKept(log, source.led, everything=fetches)
        facts_kept.refresh()
        schedule = Schedule(clock, lambda partition: tier_partition_of(partition, topic.mapped_partitions))
        follower = open_view(
            topic,
            connection.cluster_id,
            clock,
            Following(
                keep=facts_kept.keep,
                seed=seed_of(connection, store, upkeep.identity, listener),
                listener=fan_out(listener, schedule.listen, archives.listen),
            ),
            state_dir=settings.state_dir / "agent",
        )
        stack.callback(follower.close)
        if isinstance(log, FetchLog):
            log.view = follower.partition

        needed = rights_of_agent(trims=settings.trim.enabled, fetches=fetches)
        rights = RightsWatch(
            lambda: lacking(broker.raw, name, leader.agent.led_topics, needed), connection.kafka, broker.raw
        )
        proof = settings.trim.proof

        def pair(store: PairedStore) -> None:
            if not store.is_paired and claim.proof.copy is None:
                store.pair()
                probe_at_start(store.bare, listener)

        stores = StoreWatches(connection, pair)
        watches = AgentWatches(topic, follower, stores, archives, claim, rights, source.folders, clock, watchdog, proof)
        watches.backup_problems = lambda: upkeep.backups.problems
        listen = settings.management.of("agent")
        settings.management.announced(listen)  # raises before the port is bound
        server = ManagementServer(
            listen,
            Health(
                not_healthy=watches.not_healthy,
                not_ready=lambda: watches.not_ready(leader) + source.problems(),
                metrics=metrics.exposition,
                status=lambda name, partition: (
                    None
                    if (status := leader.board.find(name, partition, clock.now_ms())) is None
                    else watches.answer(status)
                ),
                statuses=lambda: [*map(watches.answer, leader.board.whole(clock.now_ms()))],
                epochs=lambda name, partition: epochs_of(log, name, partition),
            ),
            settings.management.advertised,
            settings.management.hosts,
        )
        stack.callback(server.close)
        extras = Beside(
            archives.archived_to,
            ArchivedDeletes(store, upkeep.identity, clock, listener),
            lambda partition: archives.problem(follower.tier_partition(partition)),
            lambda: claim.proof,
            quota,
            schedule,
            lambda: left_behind(store, upkeep.identity.topic_id),
            lambda: claim.heartbeats_lost,
        )
        parts = Parts(broker.control, topic, follower, store, clock, RandomIds())
        leader: LeaderRole = open_leader(
            settings, log, parts, listener, str(settings.management.announced(server.address)), extras
        )
        stores.on_return(partial(leader.agent.returned, StorageUnavailable, AccessDenied))
        watches.rights.returned = partial(leader.agent.returned, AccessDenied)
        chores = upkeep.chore_loop(leader.context, follower, facts_kept, source.led)
        feed_gauges(metrics, leader.board, follower, clock)
        feed_clock_gauge(metrics, leader.context.time)
        upkeep.drills.feed(metrics)
        watches.feed(metrics, leader, chores.names)

        def check_source(stop: threading.Event) -> None:
            noted = None
            while not stop.wait(settings.prefix.heartbeat):
                refuse_sources(settings, claim.older_agents())
                if (move := claim.move) != noted:
                    if move is None:
                        logger.warning("the move was cancelled: this agent goes on")
                    else:
                        logger.warning("the objects move: nothing is copied, trimmed or deleted", target=move.target)
                    noted = move
                if claim.move is not None and connection.followed.has_moved():
                    raise StoreMoved("the objects were moved: this agent starts again there", target=claim.move.target)

        def work(stop: threading.Event) -> None:
            # logged here, because signals are handled by now
            broker_id = {} if fetches else {"broker": log.agent_id}
            logger.info("agent ready", **broker_id, cluster=connection.cluster_id, management=str(server.address))
            with loop("start"):
                if (probe := probe_at_start(connection.stores[0], listener)) is not None:
                    watches.trim_proof = proof_of(proof, probe.info)
            if once:
                if source.group is not None:
                    source.group.wait(stop, JOINED_S)
                with suppress(PrefixContested):  # the agent still looks at its partitions and reports the reasons
                    claim.wait(stop)
                left = list[PartitionStatus]()

                def idle() -> None:
                    left[:] = (each for each in leader.board.all() if each.leads)
                    chores.advance(stop)

                leader.agent.run_once(stop, idle)
                for each in left:  # describe cannot ask this process later
                    reasons = {name: getattr(each, name) for name in ("not_copied", "not_trimmed", "not_expired")}
                    logger.info("left undone", partition=f"{each.topic}-{each.partition}", **reasons)
                if archives.broken is None:
                    claim.check()
            else:
                leader.agent.run(stop)

        starting.close()
        services = [] if once else [*watches.threads(), Service("chores", chores.run), Service("source", check_source)]
        services.append(Service("heartbeat", claim.run))
        if source.group is not None:
            services.append(Service("ownership", source.group.run))
        watches.services += [server.service(), *services, Service("agent", work, on_stop=leader.quota.stop)]
        yield watches.services
