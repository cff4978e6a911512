"""Plans an adoption from another store by its manifests, and carries it out (`adoption.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from ...fetch.read_price import GET_PRICE, PUT_PRICE
from ...follower.archives import left_behind
from ...follower.object_names import PART_OF
from ...follower.paired_stores import read_pair, unnamed_pairs
from ...leader.copier import CopyTools
from ...leader.object_proof import ObjectProof
from ...leader.open import format_policy
from ...leader.recover import RecoverTools
from ...leader.recover_scan import Bucket, DamagedManifest, Found, continued, said_by, scan_bucket
from ...rules.adoption import Proposal, contradicted, propose, with_log_starts
from ...rules.recovery import ArchivedPartition, FoundSegment, Verdict
from ...runtime.id_source import RandomIds
from ...runtime.operation import run
from ...runtime.quota import ByteQuota
from ...state.errors import CorruptData, InvalidRequest, TierstateError, UnknownTopic
from ...state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ...state.lineage import confirmed_end
from ...state.object_keys import ObjectKeys, ObjectName, base_of, may_be_of
from ...state.objects import ObjectInfo
from ...state.routing import LocalBounds
from ...storage.object_store import DEFAULT_PART_BYTES, ObjectStore
from ...storage.open import open_store
from ...storage.routed import RoutedStore
from ...storage.segment.log_chunks import WINDOW_BYTES
from ...storage.segment.manifest import SegmentManifest
from ...storage.segment.reader import SegmentReader
from ..opening.connection import Connection
from ..opening.moved import place_of
from .adoption import Adopted, AdoptTools, adopt_partition, recorded
from .foreign_segments import NO_TOPIC, adoptable
from .prefix_lock import PrefixLock
from .recovery import Recovery, archived_partitions, require_stopped
from .topic_stores import require_every_store

Wanted = tuple[str, int | None]
"""A topic, by its name or its id, and one of its partitions, or None for all."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """``recovery``: the plan in the form of a recovery's, in which the restored segments are those to adopt.

    ``price``: US dollars for requests to S3; the transfer out of a region costs extra.
    """

    recovery: Recovery
    partitions: tuple[Adopted, ...]

    @property
    def bytes(self) -> int:
        """Return the bytes that the segments to adopt take in the source."""
        return sum(each.segment.log_object_bytes for each in self.new)

    @property
    def price(self) -> float:
        windows = sum(each.segment.log_object_bytes // WINDOW_BYTES for each in self.new)
        parts = sum(each.segment.log_object_bytes // DEFAULT_PART_BYTES for each in self.new)
        return (windows + 12 * len(self.new)) * GET_PRICE + (parts + 4 * len(self.new)) * PUT_PRICE

    @property
    def corrupt(self) -> int:
        """Return how many segments are refused, damaged, missing or behind a hole, and how many gaps there are."""
        refused = sum(len(each.problems) + len(each.proposal.behind) for each in self.partitions)
        return self.recovery.corrupt + self.recovery.gaps + refused

    @property
    def unproven(self) -> int:
        """Return how many segments are left out because they lie below the log start."""
        return sum(len(plan.of(Verdict.UNPROVEN)) for plan in self.recovery.plans)

    @property
    def new(self) -> list[FoundSegment]:
        """Return the segments to adopt, or that were adopted."""
        return [each for adopted in self.partitions for each in adopted.proposal.new]


def open_source(connection: Connection, url: str) -> ObjectStore:
    """Return the other writer's store, with its stores of topics. Nothing in it is changed. Raises InvalidRequest for
    the own store and for a store of topics alone, and as `open_store`.
    """
    place, clock = place_of(connection.settings), connection.clock
    options = place.options_of(url, connection.settings.store.region or None)
    if options is not place.next_options:
        options = options.for_url(place.url, url)
    source = open_store(url, options, clock=clock, marked=False)
    if (source.description, options.endpoint) == (connection.stores[0].description, place.options.endpoint):
        raise InvalidRequest("this is the store in use: tierstate recover brings its segments back", store=url)
    if read_pair(source, PART_OF) is not None:
        problem = "this store has only some topics of a tierstate: name that one's store.url, which has its archive"
        raise InvalidRequest(problem, store=url)
    pairs = [pair.url for _, pair in unnamed_pairs(source, ())]
    stores = [open_store(each, options, clock=clock, marked=False) for each in pairs]
    return RoutedStore(source, [(".*", each) for each in stores], ObjectKeys()) if stores else source


def plan_adoption(
    connection: Connection, source: ObjectStore, wanted: Sequence[Wanted], *, past_holes: bool = False
) -> Adoption:
    """Return a plan from the manifests in ``source`` and the facts. Writes nothing.

    Raises UnknownTopic if the source has no segment of a topic, InvalidRequest if it has those of another topic id.
    """
    broker = connection.control
    names = {described.topic_id: described.name for described in broker.topics()}
    locked = dict[str, str]()
    findings = list(_scan(connection, source, wanted, locked))
    chosen = {place for each in wanted for place in _places(each, findings, names)}
    damaged = [each for each in findings if isinstance(each, DamagedManifest) and _place_of(each.key) in chosen]
    segments = [each for each in findings if isinstance(each, FoundSegment) and each.segment.partition in chosen]
    archive, left = _archives(source, segments)
    bounds = {place: _bounds(connection, names.get(place.topic_id), place) for place in chosen}
    kafkas = {place: each.log_start for place, each in bounds.items() if each and each.log_start is not None}
    aivens = with_log_starts([each for each in segments if each.tier_state_topic_id == NO_TOPIC], kafkas)
    segments = [*aivens, *(each for each in segments if each.tier_state_topic_id != NO_TOPIC)]
    follower = connection.view(sorted(chosen))
    proposals, addresses = [], set[str]()
    for place in sorted(chosen):
        view = follower.partition(place)
        archived = recorded(archive.get(place) or ArchivedPartition(place), view)
        addresses |= said_by(view).addresses
        own = [each for each in segments if each.segment.partition == place]
        at = bounds[place]
        begins = None if at is None else at.local_start
        proposal = propose(view, own, archived, begins, left, past_holes=past_holes)
        proposals.append(_confirmed(connection, proposal, names.get(place.topic_id), at))
    cluster, bucket = broker.cluster(), Bucket((), (), tuple(damaged), ())
    recovery = Recovery(cluster.cluster_id, bucket, (), names, None, frozenset(addresses), cluster.hosts)
    return _adoption(recovery, [_without(locked, each, past_holes=past_holes) for each in proposals])


def write_adoption(
    connection: Connection, source: ObjectStore, adoption: Adoption, lock: PrefixLock, *, past_holes: bool = False
) -> Adoption:
    """Carry out the plan. ``lock`` must be held since before the plan. Return what was adopted, and why not more.

    Raises Fenced if an agent runs while the cluster has the topic, or if another command took the lock over.
    """
    recovery, settings = adoption.recovery, connection.settings

    def require() -> None:
        lock.require()
        if not recovery.all_gone:
            require_stopped(connection, recovery)

    require()
    require_every_store(connection)
    topic_id = TopicId(connection.topic.topic_id)
    copy = CopyTools(
        store=connection.store,
        proof=ObjectProof(connection.store, settings.trim.proof == "read", connection.keys),
        keys=connection.names,
        format=format_policy(settings, connection.cluster_id, topic_id, connection.keys),
        throttle=ByteQuota(connection.clock, settings.copy_.quota).take,
        listener=connection.listener,
        longest_s=math.inf,
    )
    follower = connection.view([each.proposal.plan.partition for each in adoption.partitions])
    recover = RecoverTools(connection.topic, follower, connection.clock, RandomIds())
    adopted, total = [], sum(each.segment.log_bytes for each in adoption.new)
    with connection.progress("adopting", total) as advance:
        tools = AdoptTools(source, connection.keys, copy, recover, past_holes, lock.require, require, advance)
        for each in adoption.partitions:
            if each.proposal.new:
                done = run(adopt_partition(each.proposal, tools))
                each = replace(done, problems={**each.problems, **done.problems})
            adopted.append(each)
    return _adoption(recovery, adopted)


def _adoption(recovery: Recovery, partitions: Sequence[Adopted]) -> Adoption:
    plans = [replace(each.proposal.plan, restored=each.proposal.new, standing=()) for each in partitions]
    return Adoption(replace(recovery, plans=tuple(plans)), tuple(partitions))


def _without(locked: Mapping[str, str], proposal: Proposal, *, past_holes: bool) -> Adopted:
    """Return the proposal without segments that no key opens, and, unless ``past_holes``, without those behind them."""
    keys, new = [each.segment.object_key for each in proposal.new], proposal.new
    problems = {key: locked[key] for key in keys if key in locked}
    first = next((at for at, key in enumerate(keys) if key in problems), len(new))
    after = tuple(each for each in new[first:] if each.segment.object_key not in problems)
    adopted, behind = (after, ()) if past_holes else ((), after)
    new, behind = (*new[:first], *adopted), (*behind, *proposal.behind)
    return Adopted(replace(proposal, new=new, behind=behind), problems)


def _scan(
    connection: Connection, source: ObjectStore, wanted: Sequence[Wanted], locked: dict[str, str]
) -> Iterator[Found]:
    """Yield the findings in the source. Add to ``locked`` why no key opens a segment, by its object key."""

    def judge(manifest: SegmentManifest, base: str, objects: Mapping[str, ObjectInfo]) -> Found:
        try:
            SegmentReader(source, base, manifest, keys=connection.keys)
        except (CorruptData, InvalidRequest) as error:
            locked[base] = str(error)
        return adoptable(manifest, base, objects)

    def selector(base: str) -> bool:
        place = _place_of(base)
        return any(
            may_be_of(base, topic, number)
            or (place is not None and topic == place.topic_id and number in (None, place.partition))
            for topic, number in wanted
        )

    with connection.progress("reading manifests") as advance:
        for finding in scan_bucket(source, selector=selector, judge=judge):
            advance(1)
            yield finding


def _place_of(key: str) -> TopicIdPartition | None:
    name = ObjectName.parse(base_of(key))
    return None if name is None else name.partition


def _places(wanted: Wanted, findings: Iterable[Found], names: Mapping[TopicId, str]) -> set[TopicIdPartition]:
    """Return the partitions in the source that are meant. Raises UnknownTopic, InvalidRequest."""
    topic, number = wanted
    segments = [each.segment for each in findings if isinstance(each, FoundSegment)]
    places = {each.partition for each in segments if topic in (each.topic, each.partition.topic_id)}
    places = {each for each in places if number in (None, each.partition)}
    ids = {each.topic_id for each in places}
    if not places:
        raise UnknownTopic("the source has no segment of this topic", topic=topic, partition=number)
    here = next((each for each, name in names.items() if name == topic), None)
    if here in ids:
        return {each for each in places if each.topic_id == here}
    if topic not in ids and (here is not None or len(ids) > 1):
        raise InvalidRequest(
            "the source has this topic under other topic ids: name one of the ids, under which its records are read",
            topic=topic,
            topic_id=here,
            source_ids=", ".join(sorted(ids)),
        )
    return places


def _archives(
    source: ObjectStore, segments: Iterable[FoundSegment]
) -> tuple[Mapping[TopicIdPartition, ArchivedPartition], frozenset[RemoteSegmentId]]:
    """Return what the source's archives record, the later tier-state topic last, and segments of lost histories."""
    writers = dict.fromkeys(
        (each.cluster_id, each.tier_state_topic_id)
        for each in sorted(segments, key=lambda each: each.segment.copied_at, reverse=True)
        if each.tier_state_topic_id != NO_TOPIC
    )
    archive: Mapping[TopicIdPartition, ArchivedPartition] = {}
    left = frozenset[RemoteSegmentId]()
    for cluster_id, topic_id in reversed(writers):
        partitions, _ = archived_partitions(source, (topic_id,), cluster_id, None, demanded=False)
        archive, left = continued(archive, partitions), left | left_behind(source, topic_id)
    return archive, left


def _bounds(connection: Connection, topic: str | None, place: TopicIdPartition) -> LocalBounds | None:
    """Return the broker's bounds, with the start of both tiers if Kafka tiers the topic. None: it does not answer."""
    if topic is not None:
        with suppress(TierstateError):
            both = connection.control.config(topic).remote_storage_enable
            return connection.broker.reads.bounds(topic, place.partition, both_tiers=both)
    return None


def _confirmed(connection: Connection, proposal: Proposal, topic: str | None, bounds: LocalBounds | None) -> Proposal:
    """Return the proposal, refused if the leader's log contradicts its epochs."""
    if topic is None or bounds is None or bounds.leader_epoch is None:
        return proposal
    partition, epoch = proposal.plan.partition.partition, bounds.leader_epoch
    ask = partial(connection.broker.reads.end_of_epoch, topic, partition, leader_epoch=epoch)
    return contradicted(proposal, confirmed_end(proposal.plan.lineage, ask))
