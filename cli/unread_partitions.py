"""Partitions that a command cannot read to their end. A note names each at once, and the command reads the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..state.errors import TierstateError
from .context import Context
from .topic_argument import TopicArgument


class UnreadPartitions:
    """The partitions that one command could not read to their end, each with its error."""

    def __init__(self, context: Context, topic: TopicArgument) -> None:
        self._output, self._topic = context.output, topic
        self.errors: dict[int, TierstateError] = {}
        self._waiting: str | None = None

    @contextmanager
    def reading(self, partition: int) -> Iterator[None]:
        """Record an error of tierstate in the ``with`` block as the partition's error. Prints a note for whole topics.

        The error ends the block, but is not raised.
        """
        try:
            yield
        except TierstateError as error:
            self.errors[partition] = error
            if self._topic.partition is None:  # for a single named partition, `require_none` reports the error
                self._output.note(f"{self._topic.topic}-{partition} is not read to its end: {error}")

    def wait(self, error: TierstateError) -> None:
        """Print a note that the command waits for Kafka or the store, unless the last such note had the same reason."""
        if str(error) != self._waiting:
            self._waiting = str(error)
            self._output.note(f"{error}: waiting until it answers")

    def as_json(self) -> list[dict[str, object]]:
        """Return the partitions by ascending number, each with class and message of its error."""
        return [
            {"partition": partition, "error": type(error).__name__, "message": str(error)}
            for partition, error in sorted(self.errors.items())
        ]

    def require_none(self) -> None:
        """Raise the error of the lowest partition, if any. If there are several, it names all of the partitions."""
        if not self.errors:
            return
        partitions = sorted(self.errors)
        error = self.errors[partitions[0]]
        if len(partitions) > 1:
            error.facts["not_read"] = ",".join(f"{self._topic.topic}-{each}" for each in partitions)
        raise error
