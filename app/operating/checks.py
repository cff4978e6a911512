"""Checks of everything that an agent needs, to be made before an agent starts."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from ...broker.acls import lacking, rights_of_agent
from ...broker.client_config import in_their_name
from ...broker.raw import RawClient
from ...broker.tier_topic_setup import look_at_tier_topic
from ...follower.archives import Archives
from ...follower.paired_stores import PairedStore
from ...leader.brokers_time import BrokersTime
from ...leader.discovery import led_unseen
from ...log.local_log import LogDirs
from ...log.partition import folder_name
from ...rules.decide import refusal
from ...runtime.clock import Clock
from ...runtime.id_source import RandomIds
from ...runtime.settings import HIGHEST_PORT
from ...runtime.units import counted
from ...state.errors import (
    InvalidRequest,
    InvalidSettings,
    TierstateError,
    TierStateLost,
    TimedOut,
    UpgradeNeeded,
)
from ...state.ids import FactId, TopicId, TopicIdPartition
from ...state.offsets import TimestampMs, moment
from ...storage.segment.keyring import KeyRing
from ..looking.copied_folders import require_own_folders
from ..looking.lacking_rights import refuse_lacking
from ..looking.lost_state import facts_are_there
from ..looking.watching import UNSEEN_NAMED
from ..opening.connection import Connection, tier_topic_spec
from .fact_checks import later_facts, soon_deleted
from .log_source import chosen_topics, leaders_that_fence
from .prefix import check_prefix, require_one_source
from .store_checks import condition_of, proof_in
from .topic_stores import require_every_store

INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Kafka's own topics."""
ROW_S, REPLAY_S = 10.0, 300.0
"""Seconds that a check may take. The larger limit is for checks that read the whole tier-state topic (`REPLAYING`)."""
REPLAYING = frozenset({"history", "release", "facts", "prefix"})
OF_TOPIC = ("broker", "object store", "tier-state topic")
NEEDS: Mapping[str, tuple[str, ...]] = {
    "log folders": ("broker",),
    "fetching": ("broker",),
    "conditional put": ("object store",),
    "topic names": ("broker",),
    "topics": ("broker",),
    "rights": ("broker",),
    "tier-state topic": ("broker",),
    "history": OF_TOPIC,
    "clocks": OF_TOPIC,
    "release": ("broker", "tier-state topic"),
    "facts": OF_TOPIC,
    "prefix": OF_TOPIC,
    "proxy": ("broker",),
}
"""Earlier checks that a check depends on, by its name. The check is skipped if one of them did not answer in time."""
ALL = "broker, object store or topic is"
LONGEST_FILE_NAME = 255
"""In bytes. Every usual file system has this limit."""
Check = tuple[str, Callable[[], str]]
"""A name, and a function that returns the detail of its row. It raises a typed error if the check fails."""


class NotAsked(Exception):
    """A check was not made, because an earlier one failed."""


@contextmanager
def _fit(parts: str) -> Iterator[None]:
    """Raise NotAsked if the block, which opens or asks ``parts``, fails: an earlier check has reported why."""
    try:
        yield
    except TierstateError as error:
        raise NotAsked(f"not asked: {parts} not fit") from error


class Warned(str):
    """A finding that a person should look at. It does not prevent an agent from starting."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one check. ``state``: ok, warning, wrong, or - for a check that was not made."""

    check: str
    state: str
    detail: str
    facts_lost: bool = False


def checked(connection: Connection, row_s: float = ROW_S, replay_s: float = REPLAY_S) -> Iterator[Row]:
    """Yield the row of each check as it ends. A check that does not answer in time is wrong."""
    silent = set[str]()
    for name, look in checks(connection):
        if away := silent.intersection(NEEDS.get(name, ())):
            yield Row(name, "-", f"not asked: the {min(away)} does not answer")
            continue
        try:
            detail = _in_time(name, look, replay_s if name in REPLAYING else row_s, connection.clock)
        except NotAsked as reason:
            yield Row(name, "-", str(reason))
        except TierstateError as error:
            silent |= {name} if isinstance(error, _NoAnswer) else set()
            yield Row(name, "wrong", str(error), isinstance(error, TierStateLost))
        else:
            yield Row(name, "warning" if isinstance(detail, Warned) else "ok", detail)


class _NoAnswer(TimedOut):
    """A check whose deadline passed."""


def _in_time(name: str, look: Callable[[], str], seconds: float, clock: Clock) -> str:
    """Return the result of ``look``. Raises its errors, and _NoAnswer after ``seconds``; its thread continues then."""
    answer, due = Future[str](), clock.now_ms() + round(seconds * 1000)

    def ask() -> None:
        try:
            answer.set_result(look())
        except BaseException as error:  # raised again in the thread that waits
            answer.set_exception(error)

    threading.Thread(target=ask, name=f"check {name}", daemon=True).start()
    if wait([answer], seconds).not_done:
        raise _NoAnswer(
            f"the {name} does not answer: it should have within {seconds:g} s, by {moment(TimestampMs(due))}"
        )
    return answer.result()


def checks(connection: Connection) -> Iterator[Check]:
    """Yield the checks. Each comes after the checks that it depends on."""
    settings, broker = connection.settings, connection.broker.control

    def settings_are_right() -> str:
        settings.management.announced(settings.management.of("agent"))
        return f"tiering {', '.join(settings.tiering.include) or 'nothing (tiering.include is empty)'}"

    def broker_answers() -> str:
        cluster = broker.cluster()
        return f"cluster {cluster.cluster_id}, brokers {', '.join(str(broker) for broker in cluster.brokers)}"

    def folders_are_this_brokers() -> str:
        cluster = broker.cluster()
        with LogDirs(settings.agent.log_dirs, alone=False) as log:  # an agent may be running
            require_own_folders(log, broker)
            if log.node_id not in cluster.brokers:
                raise InvalidRequest("the cluster does not know this broker", node_id=log.node_id)
            here = log.partitions()
            unseen = [name for topic in chosen_topics(connection) for name in led_unseen(topic, log.node_id, here)]
            if unseen:
                raise InvalidRequest(
                    "partitions that this broker leads are in no folder of agent.log_dirs: does it name all of them, "
                    "and are they mounted here?",
                    partitions=",".join(unseen[:UNSEEN_NAMED]),
                    count=len(unseen),
                )
            lost = "".join(f"; goes on without {folder}: {why}" for folder, why in log.broker_folders.lost.items())
            return f"node {log.node_id}, {len(log.broker_folders.live)} folder(s){lost}"

    def leaders_can_be_fetched_from() -> str:
        leaders, partitions = leaders_that_fence(connection)
        if not leaders:
            return Warned("no partition to try: no topic is to be tiered, or none has a leader")
        fence = counted(leaders, "leader fences", "leaders fence")
        return f"{fence} by epoch and topic id; {counted(partitions, 'partition')}"

    def state_can_be_kept() -> str:
        folder = settings.state_dir
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
            raise InvalidRequest("this user may not write to the state folder: set state_dir", state_dir=folder)
        return str(folder)

    def store_takes_and_gives() -> str:
        default = connection.stores[0]
        require_every_store(connection)
        return proof_in(default, settings)

    def store_of_topics(store: PairedStore) -> str:
        store.standing_pair()
        return f"{proof_in(store.bare, settings)}; conditional put {condition_of(store.bare)}"

    def condition_is_honoured() -> str:
        with _fit("the object store is"):
            return condition_of(connection.stores[0])

    def names_fit_the_store() -> str:
        if not str(settings.store.url).startswith("file:"):
            return "any name fits this store"
        with _fit("the broker is"):
            names = [each.name for each in chosen_topics(connection)]
        return require_short(names)

    def topics_can_be_tiered() -> str:
        with _fit("the broker is"):
            names = {each.name for each in broker.topics() if not each.internal} - {settings.tier_state.topic}
            covered = sorted(filter(settings.tiering.covers, names))
            configs = broker.configs(covered, broker=min(broker.cluster().brokers))
        warnings = [
            f"tiering.include {pattern!r} matches no topic"
            for pattern in settings.tiering.include
            if not any(re.fullmatch(pattern, name) for name in names)
        ]
        whys = {name: refusal(each) for name, each in configs.items() if not isinstance(each, TierstateError)}
        refused = [f"{name} is not tiered: {why.text}" for name, why in whys.items() if why is not None]
        warnings += refused[:UNSEEN_NAMED] + [f"and {len(refused) - UNSEEN_NAMED} more"] * (len(refused) > UNSEEN_NAMED)
        tiered = f"{counted(len(covered) - len(refused), 'topic is', 'topics are')} tiered"
        return Warned(f"{tiered}; {'; '.join(warnings)}") if warnings else tiered

    def key_ring_opens() -> str:
        if settings.encryption.keyring is None:
            return "none: segments are not encrypted"
        ring = KeyRing.load(settings.encryption.keyring)
        return f"{settings.encryption.keyring}, active key {ring.active}"

    def topic_is_safe() -> str:
        broker.cluster()  # fails at once; librdkafka would retry
        findings = look_at_tier_topic(connection.kafka, tier_topic_spec(settings))
        if findings.lost:
            raise TierStateLost("; ".join(findings.problems))
        if findings.problems:
            raise InvalidRequest("; ".join(findings.problems))
        empty = counted(findings.unmapped, "partition, added later, stays", "partitions, added later, stay")
        more = f"; its last {empty} empty" if findings.unmapped else ""
        return f"{settings.tier_state.topic}{more}"

    def topic_and_archive_agree() -> str:
        with _fit(ALL):
            store, topic = connection.store, connection.topic
        identity = connection.identity
        archives = Archives(topic, store, identity, connection.clock)
        for number in range(topic.mapped_partitions):
            archives.check(number)
        return f"the topic goes on where its archive ends (history {identity.history})"

    def clocks_agree() -> str:
        with _fit(ALL):
            topic, store = connection.topic, connection.store
            partition = TopicIdPartition(TopicId.of(RandomIds().uuid()), 0)
            time = BrokersTime(connection.clock, topic, store)
            time.ask(partition, FactId.of(RandomIds().uuid()))
        clocks = time.clocks()
        if clocks.apart is not None:
            raise InvalidRequest(f"{clocks.apart}; docs/on-fire.md, The clock is wrong")
        names = ", ".join(each.clock for each in clocks.others)
        return clocks.noted or f"this machine agrees with {names}"

    def facts_are_readable() -> str:
        with _fit("the topic is"):
            topic = connection.topic
        later = later_facts(topic, connection.clock)
        if later:
            more = f" (and {len(later) - 1} more)" if len(later) > 1 else ""
            raise UpgradeNeeded(f"a later release wrote facts that this one cannot read: {later[0]}{more}")
        return "this release reads every fact, or may ignore it"

    def facts_are_whole() -> str:
        with _fit(ALL):
            _ = connection.topic, broker.cluster(), next(iter(connection.stores[0].list()), None)
        chosen = [
            (topic.name, each, TopicIdPartition(topic.topic_id, each.partition))
            for topic in chosen_topics(connection)
            for each in topic.partitions
        ]
        if settings.agent.source == "fetch":
            led = [(name, place) for name, each, place in chosen if each.leader is not None]
        else:
            with LogDirs(settings.agent.log_dirs, alone=False) as log:
                here = log.partitions()
                led = [(name, place) for name, each, place in chosen if each.leader == log.node_id and place in here]
        follower = connection.view([place for _, place in led])
        sentence, old = facts_are_there(connection, follower, led), soon_deleted(connection, follower, led)
        return Warned(f"{old}; {sentence}") if old else sentence

    def nobody_else_writes() -> str:
        with _fit(ALL):
            _ = connection.store, connection.topic
        require_one_source(connection)
        return check_prefix(connection)

    def rights_are_enough() -> str:
        with _fit("the broker is"):
            # KRaft's own log has a folder too, and so have topics that are internal, and hidden from these credentials
            never = dict.fromkeys((settings.tier_state.topic, "__cluster_metadata", *INTERNAL), True)
            internal = {each.name: each.internal for each in broker.topics()} | never
        fetches = settings.agent.source == "fetch"
        log_dirs = () if fetches else settings.agent.log_dirs
        folders = [each for folder in log_dirs if folder.is_dir() for each in folder.iterdir()]
        here = {parsed[0] for each in folders if (parsed := folder_name(each)) is not None}  # also of hidden topics
        tiered = (name for name in here | internal.keys() if not internal.get(name, False))
        covered = sorted(name for name in tiered if settings.tiering.covers(name))
        rights = lacking(
            connection.broker.raw,
            settings.tier_state.topic,
            covered,
            rights_of_agent(trims=settings.trim.enabled, fetches=fetches),
        )
        refuse_lacking(rights, settings)
        return f"all that an agent needs, on {counted(len(covered), 'topic')}"

    def proxy_has_a_port_for_each_broker() -> str:
        """Return the addresses that a proxy would give to clients, or why no proxy can run. This check never fails."""
        with _fit("the broker is"):
            brokers = broker.cluster().brokers
        try:
            host = settings.proxy.reachable
        except InvalidSettings as error:
            return f"cannot be run: {'; '.join(error.problems)}"
        if _by_certificate_alone(connection):
            return "cannot be run: the brokers want a certificate of every client, and TLS of clients ends at a proxy"
        if settings.proxy.sni is not None:
            return f"bootstrap.servers={host}:{settings.proxy.listen.port}, brokers by the names {settings.proxy.sni}"
        ports = {int(each): settings.proxy.port_of(each) for each in brokers}
        if max(ports.values(), default=0) > HIGHEST_PORT:
            return f"cannot be run: a broker would have port {max(ports.values())}, choose a lower proxy.listen"
        shown = ", ".join(f"broker {each} at {port or 'a free port'}" for each, port in sorted(ports.items()))
        return f"bootstrap.servers={host}:{settings.proxy.listen.port}, {shown}"

    yield "settings", settings_are_right
    yield "broker", broker_answers
    if settings.agent.source == "fetch":
        yield "fetching", leaders_can_be_fetched_from
    else:
        yield "log folders", folders_are_this_brokers
    yield "state folder", state_can_be_kept
    yield "object store", store_takes_and_gives
    yield "conditional put", condition_is_honoured
    with suppress(TierstateError):  # reported above
        for store in connection.stores:
            if isinstance(store, PairedStore):
                yield f"store {store.description}", partial(store_of_topics, store)
    yield "topic names", names_fit_the_store
    yield "topics", topics_can_be_tiered
    yield "key ring", key_ring_opens
    yield "rights", rights_are_enough
    yield "tier-state topic", topic_is_safe
    yield "history", topic_and_archive_agree
    yield "clocks", clocks_agree
    yield "release", facts_are_readable
    yield "facts", facts_are_whole
    yield "prefix", nobody_else_writes
    yield "proxy", proxy_has_a_port_for_each_broker


def require_short(topics: Iterable[str]) -> str:
    """Return a sentence if all names fit into a folder's name of a file store. Raises InvalidRequest if not."""
    longest = LONGEST_FILE_NAME - len(f"-{TopicId.of(bytes(16))}")
    if long := sorted(name for name in topics if len(name) > longest):
        raise InvalidRequest(
            "names of topics are too long for a folder as object store: name these topics in tiering.exclude, or use "
            "another kind of store",
            topics=",".join(long[:UNSEEN_NAMED]),
            count=len(long),
            longest=longest,
        )
    return f"names of up to {longest} characters fit"


def _by_certificate_alone(connection: Connection) -> bool:
    """Return whether brokers refuse clients without the certificate of [kafka]. Clients of a proxy have none."""
    theirs = in_their_name(connection.settings.kafka)
    if theirs == connection.settings.kafka:
        return False
    with closing(RawClient(theirs, connection.clock)) as client:
        try:
            client.metadata()
        except TierstateError:
            return True
    return False
