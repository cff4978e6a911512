"""Partitions that a command cannot read to their end: each is named at once, and the others are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..state.errors import TierstateError
from .context import Context
from .topic_argument import TopicArgument


class UnreadPartitions:
    """The partitions of one command that could not be read to their end, and why. In JSON: `as_json`."""

    def __init__(self, context: Context, topic: TopicArgument) -> None:
        self._output, self._topic = context.output, topic
        self.errors: dict[int, TierstateError] = {}
        self._waiting: str | None = None

    @contextmanager
    def reading(self, partition: int) -> Iterator[None]:
        """Keep what goes wrong in this block as an error of the partition.

        The block is over then, and nothing is raised.
        """
        try:
            yield
        except TierstateError as error:
            self.errors[partition] = error
            if self._topic.partition is None:  # of one partition alone, the end of the command says it
                self._output.note(f"{self._topic.topic}-{partition} is not read to its end: {error}")

    def wait(self, error: TierstateError) -> None:
        """Say once that the command waits for Kafka or the store, and why."""
        if str(error) != self._waiting:
            self._waiting = str(error)
            self._output.note(f"{error}: waiting until it answers")

    def as_json(self) -> list[dict[str, object]]:
        """Return the partitions in their order, each with the kind of its error and its message."""
        return [
            {"partition": partition, "error": type(error).__name__, "message": str(error)}
            for partition, error in sorted(self.errors.items())
        ]

    def require_none(self) -> None:
        """Raise the first partition's error, which names all of them where there are more."""
        if not self.errors:
            return
        partitions = sorted(self.errors)
        error = self.errors[partitions[0]]
        if len(partitions) > 1:
            error.facts["not_read"] = ",".join(f"{self._topic.topic}-{each}" for each in partitions)
        raise error
