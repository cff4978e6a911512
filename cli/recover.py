"""``tierstate recover``: the tier-state topic from the bucket alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .begin_history import begin
from .context import Context
from .flags import acts, pass_context
from .opened import following, open_store_of, opened_broker, opened_topic

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..leader.recover_scan import Found
    from ..rules.recovery import ArchivedPartition, FoundSegment
    from ..state.ids import TopicId, TopicIdPartition
    from ..state.offsets import Offset
    from ..storage.object_store import ObjectStore
    from .recovery_plan import Recovery

AGENT_TIMEOUT_S = 2.0
AGENTS_METRIC = b"remote_copy_lag_segments"
AGENT_RUNS = "an agent still runs: stop every agent first"


@click.command("recover", epilog="Example: tierstate recover --store s3://bucket/prefix")
@acts(unasked=False)
@click.option("--resume", is_flag=True, help="Go on with a recovery that was interrupted.")
@click.option(
    "--from-archive/--without-archive",
    "from_archive",
    default=None,
    help="Demand the archive, or do without; by default it binds where there is one.",
)
@click.option("--agents-are-stopped", is_flag=True, help="Demanded where no archive tells where agents answer.")
@click.option("--topic-id", "topic_ids", multiple=True, metavar="ID", help="Lost tier-state topics, oldest first.")
@click.option("--cluster-id", metavar="ID", help="The cluster the segments are of, when it is not this one.")
@click.option("--history", type=click.IntRange(0), help="Of the archive; by default the newest.")
@click.option(
    "--begin-history", is_flag=True, help="Settle that the topic parted from its archive: the topic counts from now on."
)
@pass_context
def command(
    context: Context,
    execute: bool,
    resume: bool,
    from_archive: bool | None,
    agents_are_stopped: bool,
    topic_ids: tuple[str, ...],
    cluster_id: str | None,
    history: int | None,
    begin_history: bool,
) -> None:
    """Rebuild a lost tier-state topic from the bucket: print the plan, or write it into a fresh topic.

    The archive binds where there is one; without it nothing below the largest log start of any manifest comes back.
    Stop every agent first, unless this cluster has none of these topics. With --begin-history nothing is rebuilt: an
    older backup was put back, and what the topic has counts from now on, not what was archived of the history it lost.
    Exit code 4 when offsets are missing or a manifest is damaged, 1 when segments are left out.
    """
    from ..state.errors import InvalidRequest
    from ..state.ids import TopicId
    from .recovery_plan import show

    if begin_history:
        if resume or topic_ids or cluster_id or from_archive is not None or history is not None:
            raise InvalidRequest("--begin-history goes with --execute alone")
        begin(context, execute)
        return
    chosen = tuple(TopicId(each) for each in topic_ids)
    with _opened_store(context) as store, opened_broker(context) as broker:
        recovery = _planned(context, store, broker.control, chosen, cluster_id, from_archive, history)
    if execute:
        if recovery.archived_to is None and not agents_are_stopped and not recovery.all_gone:
            raise InvalidRequest(
                "without an archive nothing tells where agents answer: stop every agent, and say so by "
                "--agents-are-stopped"
            )
        if _write(context, recovery, resume):
            context.output.note("already recovered: everything stands in the topic, nothing was written")
    show(context.output, recovery, execute)
    _judge(recovery)


@contextmanager
def _opened_store(context: Context) -> Iterator[ObjectStore]:
    store = open_store_of(context.settings_with("kafka.bootstrap.servers", "store.url"))
    try:
        yield store
    finally:
        store.close()


def _planned(
    context: Context,
    store: ObjectStore,
    broker: BrokerControl,
    chosen: tuple[TopicId, ...],
    cluster_id: str | None,
    from_archive: bool | None,
    history: int | None,
) -> Recovery:
    from ..follower.histories import left_behind
    from ..leader.recover_scan import scan_bucket, sort_out
    from ..rules.recovery import plan_partitions
    from ..state.ids import RemoteSegmentId
    from .recovery_plan import Recovery

    here = broker.cluster()
    cluster = cluster_id or here.cluster_id
    names = {described.topic_id: described.name for described in broker.topics()}
    with context.output.progress("reading manifests") as advance:

        def counted() -> Iterator[Found]:
            for found in scan_bucket(store):
                advance(1)
                yield found

        bucket = sort_out(counted(), cluster, chosen)
    lost = chosen or tuple({each.tier_state_topic_id for each in bucket.ours})
    archive: Mapping[TopicIdPartition, ArchivedPartition] = {}
    archived_to: dict[str, int] | None = None
    if from_archive is not False:
        archive, archived_to = _archived(store, lost, cluster, history, demanded=from_archive is True)
    left = frozenset[RemoteSegmentId]().union(*(left_behind(store, topic_id, history) for topic_id in lost))
    plans = plan_partitions(bucket.ours, archive, _local_starts(broker, bucket.ours, names), left)
    addresses = frozenset(address for each in archive.values() for address in each.addresses)
    return Recovery(cluster, bucket, plans, names, archived_to, addresses, here.hosts)


def _archived(
    store: ObjectStore, lost: tuple[TopicId, ...], cluster_id: str, history: int | None, *, demanded: bool
) -> tuple[Mapping[TopicIdPartition, ArchivedPartition], dict[str, int] | None]:
    """What the archives of the lost topics say, oldest first, and how far each goes."""
    from ..follower.archive_chain import chain_of, read_header
    from ..follower.histories import places
    from ..follower.rocksdb_view import ViewIdentity
    from ..follower.time_travel import archived_entries
    from ..leader.recover_archive import continued, read_history
    from ..state.errors import InvalidRequest

    archive: Mapping[TopicIdPartition, ArchivedPartition] = {}
    ends: dict[str, int] = {}
    if history is None:
        for topic_id in lost:
            require_whole(store, topic_id)
    every = places(store, history)
    for topic_id in lost:
        said: dict[TopicIdPartition, ArchivedPartition] = {}
        for place in (each for each in every if each.topic_id == topic_id):
            chain = chain_of(store, place)
            if not chain.names:
                continue
            header = read_header(store, place, chain.names[-1])
            identity = ViewIdentity(cluster_id, topic_id, header.partitions, history=place.history)
            said.update(read_history(archived_entries(store, identity, place.tier_partition)))
            ends[f"{topic_id}/{place.tier_partition}"] = chain.end
        archive = continued(archive, said)
    if demanded and not ends:
        raise InvalidRequest("there is no archive of this tier-state topic in the bucket", ids=", ".join(lost) or None)
    return archive, ends or None


def require_whole(store: ObjectStore, topic_id: TopicId) -> None:
    """Raises HistoryBroken when the topic had parted from its archive, and nobody has said which of the two counts."""
    from ..follower.histories import has_parted, newest_history
    from ..state.errors import HistoryBroken

    newest = newest_history(store, topic_id)
    parted = has_parted(store, topic_id, newest)
    if parted is not None:
        raise HistoryBroken(
            "the lost topic had parted from its archive, and nobody said which counts: name --history to restore what "
            "was archived of the history that was lost, or restore --without-archive",
            topic_id=topic_id,
            history=newest,
            said=parted.message,
        )


def _local_starts(
    broker: BrokerControl, found: tuple[FoundSegment, ...], names: Mapping[TopicId, str]
) -> dict[TopicIdPartition, Offset]:
    """Where the brokers' logs begin, as far as they tell."""
    from ..state.errors import TierstateError

    starts: dict[TopicIdPartition, Offset] = {}
    for partition in sorted({each.segment.partition for each in found}):
        name = names.get(partition.topic_id)
        try:
            if name is not None:
                starts[partition] = broker.bounds(name, partition.partition).local_start
        except TierstateError:
            continue  # a gap above what is restored is then not seen
    return starts


def _write(context: Context, recovery: Recovery, resume: bool) -> bool:
    """Whether everything stood already. Raises Fenced when an agent runs or the topic is not a fresh one."""
    from ..leader.recover import RecoverTools, check_target, recover_all
    from ..runtime.clock import SystemClock
    from ..runtime.id_source import RandomIds

    if not recovery.all_gone:
        require_silent(recovery.addresses)
        port = context.settings.management.of_agent.port
        require_no_agent(f"{host}:{port}" for host in recovery.hosts if port)
    steps = sum(1 + 2 * len(plan.restored) for plan in recovery.plans)
    with opened_topic(context) as topic, following(context, topic) as follower:
        if check_target(topic, follower, recovery.plans, resume=resume):
            return True
        tools = RecoverTools(topic, follower, SystemClock(), RandomIds())
        with context.output.progress("writing facts", steps) as advance:
            for _ in recover_all(recovery.plans, tools):
                advance(1)
    return False


def require_silent(addresses: Iterable[str]) -> None:
    """No agent that an archived term names answers, whatever it would say. Raises Fenced."""
    from ..state.errors import Fenced

    for address in sorted(addresses):
        if _answer(f"http://{address}/healthz") is not None:
            raise Fenced(AGENT_RUNS, address=address)


def require_no_agent(addresses: Iterable[str]) -> None:
    """Nothing that measures what an agent measures answers where agents would beside their brokers. Raises Fenced.

    Others may have taken that port there, so here what it answers counts.
    """
    from ..state.errors import Fenced

    for address in addresses:
        if AGENTS_METRIC in (_answer(f"http://{address}/metrics") or b""):
            raise Fenced(AGENT_RUNS, address=address)


def _answer(url: str) -> bytes | None:
    """What is answered, with whatever status; None when nothing is."""
    import urllib3

    try:
        return urllib3.PoolManager(retries=False).request("GET", url, timeout=AGENT_TIMEOUT_S).data
    except urllib3.exceptions.HTTPError:
        return None


def _judge(recovery: Recovery) -> None:
    from ..state.errors import CorruptData, Difference

    if recovery.corrupt or recovery.gaps:
        raise CorruptData("not everything is there", damaged_or_missing=recovery.corrupt, gaps=recovery.gaps)
    if recovery.left_out:
        raise Difference("segments are left out", segments=recovery.left_out)
