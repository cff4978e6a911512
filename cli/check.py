"""``tierstate check``: everything an agent needs, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import click

from .context import Context
from .flags import pass_context
from .opened import open_store_of, opened_broker, tier_topic_spec
from .watching import UNSEEN_NAMED

if TYPE_CHECKING:
    from ..broker.topics import TopicDescription
    from ..runtime.settings import Settings

Check = tuple[str, Callable[[], str]]
"""A name, and what tells how well it is; it raises a typed error when it is not."""


@click.command("check", epilog="Example: tierstate check --config /etc/tierstate/tierstate.toml")
@pass_context
def command(context: Context) -> None:
    """Check settings, broker, log folders, store and topic before anything starts (for ExecStartPre).

    Exit code 1 when one of them is not fit for an agent.
    """
    from ..state.errors import Difference, TierstateError

    settings = context.settings_with("kafka.bootstrap.servers", "store.url", "agent.log_dirs")
    rows: list[tuple[str, str, str]] = []
    with opened_broker(context) as broker:
        for name, look in _checks(settings, broker.control.cluster, broker.control.topics):
            try:
                rows.append((name, "ok", look()))
            except TierstateError as error:
                rows.append((name, "wrong", str(error)))
    document = [{"check": name, "ok": state == "ok", "detail": detail} for name, state, detail in rows]
    context.output.table(("check", "state", "detail"), rows, document)
    wrong = [name for name, state, _ in rows if state != "ok"]
    if wrong:
        raise Difference("not ready for an agent", wrong=",".join(wrong))


def _checks(
    settings: Settings, cluster: Callable[[], object], topics: Callable[[], Sequence[TopicDescription]]
) -> Iterator[Check]:
    from ..broker.control import ClusterDescription
    from ..broker.tier_topic_setup import look_at_tier_topic
    from ..leader.discovery import led_unseen
    from ..log.local_log import LogDirs
    from ..state.errors import AccessDenied, InvalidRequest, TierstateError

    def settings_are_right() -> str:
        settings.management.announced(settings.management.of_agent)
        return f"tiering {', '.join(settings.tiering.include) or 'nothing (tiering.include is empty)'}"

    def broker_answers() -> str:
        found = cluster()
        assert isinstance(found, ClusterDescription)
        return f"cluster {found.cluster_id}, brokers {', '.join(str(broker) for broker in found.brokers)}"

    def folders_are_this_brokers() -> str:
        found = cluster()
        assert isinstance(found, ClusterDescription)
        with LogDirs(settings.agent.log_dirs, alone=False) as log:  # an agent may be running
            if log.cluster_id != found.cluster_id:
                raise InvalidRequest("log folders of another cluster", folders=log.cluster_id, cluster=found.cluster_id)
            if log.node_id not in found.brokers:
                raise InvalidRequest("the cluster does not know this broker", node_id=log.node_id)
            here = log.partitions()
            tiered = (each for each in topics() if settings.tiering.covers(each.name) and not each.internal)
            unseen = [name for topic in tiered for name in led_unseen(topic, log.node_id, here)]
            if unseen:
                raise InvalidRequest(
                    "partitions that this broker leads are in no folder of agent.log_dirs: does it name all of them, "
                    "and are they mounted here?",
                    partitions=",".join(unseen[:UNSEEN_NAMED]),
                    count=len(unseen),
                )
            lost = "".join(f"; goes on without {folder}: {why}" for folder, why in log.broker_folders.lost.items())
            return f"node {log.node_id}, {len(log.broker_folders.live)} folder(s){lost}"

    def store_takes_and_gives() -> str:
        from ..runtime.id_source import RandomIds
        from ..state.ids import FactId

        store = open_store_of(settings)
        key = f"_tierstate/check/{FactId.of(RandomIds().uuid())}"
        try:
            store.put_if_absent(key, b"tierstate check")
            if store.get(key) != b"tierstate check":
                raise InvalidRequest("the store gave back other bytes than it took", object_key=key)
        finally:
            store.delete(key)
            store.close()
        return store.description

    def condition_is_honoured() -> str:
        from ..storage.probe import probe_conditional_put

        try:
            with closing(open_store_of(settings)) as store:
                if probe_conditional_put(store):
                    return "honoured"
        except TierstateError:
            return "not asked: the object store is not fit"
        return "ignored: writers are kept apart by their keys alone, which are never reused; see tierstate certify"

    def key_ring_opens() -> str:
        from ..storage.segment.keyring import KeyRing

        if settings.encryption.keyring is None:
            return "none: segments are not encrypted"
        ring = KeyRing.load(settings.encryption.keyring)
        return f"{settings.encryption.keyring}, active key {ring.active}"

    def topic_is_safe() -> str:
        cluster()  # fails at once, where librdkafka would go on trying
        found = look_at_tier_topic(settings.kafka, tier_topic_spec(settings))
        if found.problems:
            raise InvalidRequest("; ".join(found.problems))
        more = f"; its last {found.unmapped} partitions, added later, stay empty" if found.unmapped else ""
        return f"{settings.tier_state.topic}{more}"

    def topic_and_archive_agree() -> str:
        from ..broker.tier_topic_setup import open_tier_topic
        from ..follower.archives import Archives
        from ..runtime.clock import SystemClock
        from .keeping import newest_identity

        with ExitStack() as opened:
            try:
                found = cluster()
                store = opened.enter_context(closing(open_store_of(settings)))
                topic = opened.enter_context(closing(open_tier_topic(settings.kafka, tier_topic_spec(settings))))
            except TierstateError:
                return "not asked: broker, object store or topic is not fit"
            assert isinstance(found, ClusterDescription)
            identity = newest_identity(store, found.cluster_id, topic)
            archives = Archives(topic, store, identity, SystemClock())
            for number in range(topic.mapped_partitions):
                archives.check(number)
            return f"the topic goes on where its archive ends (history {identity.history})"

    def rights_are_enough() -> str:
        from confluent_kafka.admin import AdminClient

        from ..broker.acls import lacking
        from ..broker.client_config import admin_config
        from ..log.partition import folder_name

        try:
            never = {settings.tier_state.topic: True, "__cluster_metadata": True}  # KRaft's own log has a folder too
            internal = {each.name: each.internal for each in topics()} | never
        except TierstateError:
            return "not asked: the broker is not fit"
        folders = [each for folder in settings.agent.log_dirs if folder.is_dir() for each in folder.iterdir()]
        here = {named[0] for each in folders if (named := folder_name(each)) is not None}  # also of what is hidden
        tiered = (name for name in here | internal.keys() if not internal.get(name, False))
        covered = sorted(name for name in tiered if settings.tiering.covers(name))
        found = lacking(AdminClient(admin_config(settings.kafka)), settings.tier_state.topic, covered)
        if found:
            first = "; ".join(map(str, found))
            commands = "; ".join(each.command(settings.kafka) for each in found)
            raise AccessDenied(f"lacking: {first}. An administrator adds them: {commands}")
        return f"all that an agent needs, on {len(covered)} topics"

    yield "settings", settings_are_right
    yield "broker", broker_answers
    yield "log folders", folders_are_this_brokers
    yield "object store", store_takes_and_gives
    yield "conditional put", condition_is_honoured
    yield "key ring", key_ring_opens
    yield "rights", rights_are_enough
    yield "tier-state topic", topic_is_safe
    yield "history", topic_and_archive_agree
