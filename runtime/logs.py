"""Logs on stderr: lines for people, or one JSON object per line. Secrets are hidden by name and by value."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

import structlog
from structlog.typing import FilteringBoundLogger

from ..state.errors import InvalidSettings, apart
from ..state.offsets import OffsetRange
from .listener import Detail, Event, Listener, Warned
from .visible import visible

FORMAT_VARIABLE = "TIERSTATE_LOG"
SHORTEST_SECRET = 4
"""Shortest secret that is hidden by its value: shorter ones are part of too many words."""
_SECRET = re.compile(r"password|secret|token|authorization|private_key", re.IGNORECASE)
_OURS = frozenset({"event", "level", "timestamp"})
"""Fields whose text comes from tierstate's code. In a library's line, ``event`` is the library's whole message."""


def open_logs(
    environ: Mapping[str, str],
    *,
    as_json: bool = False,
    colour: bool = True,
    debug: bool = False,
    secrets: Collection[str] = (),
    later: Callable[[], Iterable[str]] = tuple,
    stream: TextIO | None = None,
) -> FilteringBoundLogger:
    """Return a logger to ``stream`` (default: stderr). It writes JSON if ``as_json`` or ``TIERSTATE_LOG=json``; colours
    only on a terminal without ``NO_COLOR`` (no-color.org). Raises InvalidSettings for an unknown ``TIERSTATE_LOG``.

    ``secrets``: values that are hidden everywhere, also in messages of libraries, but not in names of events.
    ``later``: returns the current values of secrets that change. It is called for each line.
    """
    form = environ.get(FORMAT_VARIABLE, "")
    if form not in ("", "text", "json"):
        raise InvalidSettings([f"{FORMAT_VARIABLE} is 'json' or 'text', not {form!r}"])

    def hidden() -> list[str]:
        return sorted({each for each in (*secrets, *later()) if len(each) >= SHORTEST_SECRET}, key=len, reverse=True)

    to = stream if stream is not None else sys.stderr
    renderers: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer(default=_for_programs)]
    if not (as_json or form == "json"):
        colours = colour and not environ.get("NO_COLOR") and to.isatty()
        renderers = [_for_people, structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, sort_keys=False)]
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(to),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask,
            lambda logger, method, entry: _without(entry, hidden()),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        context_class=dict,
    )
    return logger


def log_events(logger: FilteringBoundLogger) -> Listener:
    """Return a listener that logs events: problems as warnings, frequent and repeated events only for debugging."""

    def tell(event: Event) -> None:
        facts = apart(vars(event))
        name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()
        if isinstance(event, Detail) or getattr(event, "again", False):  # metrics count repeated events
            logger.debug(name, **facts)
        elif isinstance(event, Warned):
            logger.warning(name, **facts)
        else:
            logger.info(name, **facts)

    return tell


def take_library_logs(logger: FilteringBoundLogger) -> None:
    """Send warnings of libraries that use Python's logging to ``logger``. A process that serves calls it once."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_Forward(logger))
    root.setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._logger.log(record.levelno, record.getMessage(), library=record.name)
        except Exception:  # a line that cannot be written must not stop the code that logs it
            self.handleError(record)


def _for_programs(value: object) -> object:
    return asdict(value) if isinstance(value, OffsetRange) else str(value)


def _for_people(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Write a partition as Kafka does, ``orders-0``, ranges as ``0..99``, and hidden characters of names as escapes."""
    if "topic" in entry and "partition" in entry:
        topic = entry.pop("topic") or entry.get("topic_id")
        entry["partition"] = f"{topic}-{entry['partition']}"
    for name, value in entry.items():
        entry[name] = visible(str(value)) if isinstance(value, OffsetRange | str) else value
    return entry


def _mask(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in entry:
        if _SECRET.search(name):
            entry[name] = "(hidden)"
    return entry


def _without(entry: MutableMapping[str, Any], secrets: Sequence[str]) -> MutableMapping[str, Any]:
    for name, value in entry.items():
        if name in _OURS and "library" not in entry:
            continue  # these words come from the code: a password may be equal to one of them
        text = value if isinstance(value, str) else str(value)
        for secret in secrets:
            if secret in text:
                text = text.replace(secret, "(hidden)")
                entry[name] = text
    return entry
