"""Plan a stream in the driver: its start, the size of the next micro-batch, and the detection of lost records."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..fetch.plan import bytes_an_offset
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..state.errors import OffsetOutOfRange, TierstateError, UnknownTopic
from ..state.ids import TopicId
from ..state.offsets import Offset
from .open import KeptLog
from .options import Assigned, Choice, SourceOptions, Subscribed
from .planning import SMALLEST_TARGET, Group, groups, starting_offsets
from .positions import LATEST, Stated, TopicPartition
from .stream_offsets import Extents, Json, Sizes, StreamOffsets, by_bytes, by_offsets, parse_offsets

FORGIVEN = "failOnDataLoss=false goes on with what is there"
log = logging.getLogger("tierstate.spark")

Places = Mapping[TopicPartition, TopicId]
"""The chosen partitions with their topic ids, as the broker has them now."""


class StreamPlanner:
    """The planner of one query, for as long as the query lives. Not thread-safe; Spark makes one call at a time."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._log = KeptLog(options, clock)
        self._initial: Json | None = None
        self._undated: Json | None = None
        self._target: Mapping[TopicPartition, Offset] | None = None
        self._last_batch: float | None = None
        self.latest: StreamOffsets | None = None
        """The ends of the log at the time when the last batch was planned; None before the first batch."""

    def initial(self) -> Json:
        """Return the start of the stream, determined once. Spark calls it until the first batch is committed."""
        if self._initial is None:
            places, reader = self._now(StreamOffsets({}))
            offsets = starting_offsets(self._options, reader, tuple(places))
            self._initial = StreamOffsets(offsets, _ids(places)).to_json()
            if _may_be_the_end(self._options):
                self._undated = self._initial
        return self._initial

    def end_at_what_is_there(self) -> None:
        """Limit all later batches to the current ends of the log, for the trigger availableNow."""
        places, reader = self._now(StreamOffsets({}))
        self._target = {key: self._extent(reader, key)[1] for key in places}

    def following(self, start: Json, limited: bool) -> Json:
        """Return the end of the batch that begins at ``start``. Returns ``start`` itself if no batch is due yet.

        Raises UnknownTopic or OffsetOutOfRange if records are lost, unless ``failOnDataLoss`` is false.
        """
        undated, self._undated = self._undated, None
        if undated is not None and start == undated:
            # Spark's checkpoint has the end of the first batch, not its start. If that batch is repeated, the end of
            # the log may have moved. So the first batch is empty: its end records the start of the stream.
            return start
        begun = parse_offsets(start)
        places, reader = self._now(begun)
        extents = self._left(begun, places, reader)
        self.latest = StreamOffsets({key: end for key, (_, end) in extents.items()}, _ids(places))
        if self._target is not None:
            extents = _up_to(self._target, extents, begun)
        ends = {key: end for key, (_, end) in extents.items()}
        if limited:
            if self._waits(extents):
                return start
            ends = self._limited(extents, reader)
        topics = {topic for topic, _ in ends}
        return StreamOffsets(ends, {topic: each for topic, each in _ids(places).items() if topic in topics}).to_json()

    def groups(self, start: Json, end: Json) -> Iterator[Group]:
        """Yield the groups of a batch. Raises as `plan_groups`, and UnknownTopic as `following`."""
        begun, ended = parse_offsets(start), parse_offsets(end)
        # new partitions begin at 0: a repeated batch has the same start even if the log start has moved
        before = begun.same_topics(ended)
        ranges = {key: (before.get(key, Offset(0)), last) for key, last in ended.offsets.items()}
        ranges = {key: (first, last) for key, (first, last) in ranges.items() if first < last}
        if not ranges:
            return
        batch = StreamOffsets(dict.fromkeys(ranges, Offset(0)), {**begun.topic_ids, **ended.topic_ids})
        places, reader = self._now(batch)
        there = self._same(batch, places)
        keys = tuple(sorted(key for key in ranges if key in there.offsets))
        option = "startingOffsets, from the checkpoint"
        options = replace(
            self._options,
            choice=Assigned(keys),
            starting=Stated({key: ranges[key][0] for key in keys}, option),
            ending=Stated({key: ranges[key][1] for key in keys}, option),
        )
        # a task costs 60 ms, and a small batch of four partitions 60 % more time with four of them than with one
        together = SMALLEST_TARGET if options.min_partitions is None else 0
        yield from groups(options, reader, keys, together=together)

    def close(self) -> None:
        self._log.close()

    # --- existing and lost records ----------------------------------------------------------------------------------

    def _now(self, begun: StreamOffsets) -> tuple[Places, LogReader]:
        """Return the chosen partitions and a reader. UnknownTopic includes the topic's id if ``begun`` has it."""
        choice = self._options.choice
        if not self._options.fail_on_data_loss:
            choice = self._still_there(choice)
        try:
            chosen = self._log.chosen(choice)
        except UnknownTopic as error:
            topic_id = begun.topic_ids.get(str(error.facts.get("topic")))
            if topic_id is None:
                raise
            raise UnknownTopic(
                f"a topic of the stream is gone ({FORGIVEN})", topic=error.facts["topic"], topic_id=topic_id
            ) from error
        return {key: place.topic_id for key, place in chosen.items()}, self._log.reader(chosen.values())

    def _still_there(self, choice: Choice) -> Choice:
        """Return the choice without the topics and partitions that the cluster does not have."""
        there = {each.name: len(each.partitions) for each in self._log.control.topics()}
        match choice:
            case Subscribed(topics):
                return Subscribed(tuple(topic for topic in topics if topic in there))
            case Assigned(partitions):
                return Assigned(tuple(key for key in partitions if key[1] < there.get(key[0], 0)))
        return choice

    def _same(self, begun: StreamOffsets, places: Places) -> StreamOffsets:
        """Return ``begun`` without partitions that were deleted or re-created, or are no longer chosen. Raises
        UnknownTopic for these unless ``failOnDataLoss`` is false.
        """
        now = _ids(places)
        for topic, topic_id in begun.topic_ids.items():
            if topic in now and now[topic] != topic_id:
                self._lost(
                    UnknownTopic(
                        f"a topic of the stream was deleted and created again ({FORGIVEN}, from the new one's start)",
                        topic=topic,
                        topic_id=now[topic],
                        checkpoint_topic_id=topic_id,
                    )
                )
        there = {}
        for (topic, partition), offset in begun.offsets.items():
            old_id = begun.topic_ids.get(topic)
            if (topic, partition) not in places:
                self._lost(
                    UnknownTopic(
                        f"a partition of the stream is gone, or chosen no more ({FORGIVEN})",
                        topic=topic,
                        partition=partition,
                        topic_id=old_id,
                    )
                )
            elif old_id in (None, places[topic, partition]):
                there[topic, partition] = offset
        return StreamOffsets(there, begun.topic_ids)

    def _left(
        self, begun: StreamOffsets, places: Places, reader: LogReader
    ) -> dict[TopicPartition, tuple[Offset, Offset]]:
        """Return the unread offsets ``[start, end)`` after ``begun``; all offsets of a new partition. Raises
        OffsetOutOfRange for lost records, and UnknownTopic, unless ``failOnDataLoss`` is false.
        """
        same = self._same(begun, places)
        extents = {}
        for key in places:
            first, end = self._extent(reader, key)
            start = same.offsets.get(key, Offset(0))
            if not first <= start <= end:
                self._lost(
                    OffsetOutOfRange(
                        f"records of the stream are not there ({FORGIVEN})",
                        valid_start=first,
                        valid_end=end,
                        topic=key[0],
                        partition=key[1],
                        offset=start,
                    )
                )
            extents[key] = min(max(start, first), end), end
        return extents

    def _extent(self, reader: LogReader, key: TopicPartition) -> tuple[Offset, Offset]:
        return reader.extent(*key, isolation=self._options.isolation, tier=self._options.tier)

    def _lost(self, error: TierstateError) -> None:
        if self._options.fail_on_data_loss:
            raise error
        log.warning("%s", error)

    # --- limits -----------------------------------------------------------------------------------------------------

    def _waits(self, extents: Extents) -> bool:
        """Return whether the batch waits for ``minOffsetsPerTrigger``. The first batch and availableNow never wait."""
        limits, now = self._options.limits, self._clock.monotonic()
        if limits.min_offsets is None or self._target is not None:
            return False
        if self._last_batch is not None and now - self._last_batch < limits.max_delay_s:
            if sum(end - start for start, end in extents.values()) < limits.min_offsets:
                return True
        self._last_batch = now
        return False

    def _limited(self, extents: Extents, reader: LogReader) -> dict[TopicPartition, Offset]:
        limits = self._options.limits
        ends = {key: end for key, (_, end) in extents.items()}
        if limits.max_offsets is not None:
            ends = by_offsets(extents, limits.max_offsets)
        if limits.max_bytes is not None:
            views = {key: reader.view(*key) for key in extents}
            sizes = {key: Sizes(view.coverage, bytes_an_offset(view.readable)) for key, view in views.items()}
            for key, end in by_bytes(extents, sizes, limits.max_bytes).items():
                ends[key] = min(ends[key], end)
        return ends


def _ids(places: Places) -> dict[str, TopicId]:
    return {topic: topic_id for (topic, _), topic_id in places.items()}


def _up_to(
    target: Mapping[TopicPartition, Offset], extents: Extents, begun: StreamOffsets
) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """Return the offsets that existed when the trigger availableNow started. Newer partitions wait for the next run."""
    return {
        key: (start, max(start, min(end, target.get(key, start))))
        for key, (start, end) in extents.items()
        if key in target or key in begun.offsets
    }


def _may_be_the_end(options: SourceOptions) -> bool:
    """Return whether a stream without a checkpoint may begin at the end of a partition."""
    starting = options.starting
    if starting.by_time:
        return options.latest_when_no_match
    return LATEST in ((starting.values,) if isinstance(starting.values, int) else starting.values.values())
