"""Logs on stderr: lines for people, or one JSON object a line. No secret, by name or by value."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TextIO

import structlog
from structlog.typing import FilteringBoundLogger

from ..state.errors import InvalidSettings, apart
from ..state.offsets import OffsetRange
from .listener import (
    ActFailed,
    ChoreFailed,
    ChunkCacheOff,
    ClocksDiffer,
    ConditionalPutIgnored,
    CopyFailed,
    CustodyStepTaken,
    Event,
    FactsApplied,
    GatewayAnswered,
    HoldReported,
    KeyRingRefused,
    Listener,
    LogFolderLost,
    PartitionRefused,
    RemoteFetched,
    SecondValueSeen,
    StoreThrottled,
    TermEnded,
    TransactionIndexRebuilt,
    TrimRefused,
    ViewRebuilt,
)
from .visible import visible

FORMAT_VARIABLE = "TIERSTATE_LOG"
SHORTEST_SECRET = 4
"""What is shorter is in too many words to be hidden by its value."""
_SECRET = re.compile(r"password|secret|token|authorization|private_key", re.IGNORECASE)
_OURS = frozenset({"event", "level", "timestamp"})
"""What a line of our own says in words that stand in the code. ``event`` of a library is its whole message."""
_WARNINGS = (
    ActFailed,
    ChoreFailed,
    ChunkCacheOff,
    ClocksDiffer,
    CustodyStepTaken,
    HoldReported,
    ConditionalPutIgnored,
    KeyRingRefused,
    LogFolderLost,
    CopyFailed,
    PartitionRefused,
    SecondValueSeen,
    StoreThrottled,
    TermEnded,
    TransactionIndexRebuilt,
    ViewRebuilt,
)
_DETAILS = (FactsApplied, GatewayAnswered, RemoteFetched, TrimRefused)


def open_logs(
    environ: Mapping[str, str],
    *,
    as_json: bool = False,
    colour: bool = True,
    debug: bool = False,
    secrets: Collection[str] = (),
    stream: TextIO | None = None,
) -> FilteringBoundLogger:
    """A logger to ``stream`` (stderr): JSON on demand or with ``TIERSTATE_LOG=json``, colours only on a terminal, and
    none with ``NO_COLOR`` (no-color.org). Raises InvalidSettings for another ``TIERSTATE_LOG``.

    ``secrets``: values that are hidden wherever they stand, also within what a library says; not in names of events.
    """
    form = environ.get(FORMAT_VARIABLE, "")
    if form not in ("", "text", "json"):
        raise InvalidSettings([f"{FORMAT_VARIABLE} is 'json' or 'text', not {form!r}"])
    hidden = sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True)
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
            lambda logger, method, entry: _without(entry, hidden),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        context_class=dict,
    )
    return logger


def log_events(logger: FilteringBoundLogger) -> Listener:
    """A listener that logs what happens: trouble as warnings, what happens all the time only for debugging."""

    def tell(event: Event) -> None:
        facts = apart({field.name: getattr(event, field.name) for field in fields(event)})
        name = _spaced(type(event).__name__)
        if isinstance(event, _WARNINGS):
            logger.warning(name, **facts)
        elif isinstance(event, _DETAILS):
            logger.debug(name, **facts)
        else:
            logger.info(name, **facts)

    return tell


def take_library_logs(logger: FilteringBoundLogger) -> None:
    """Warnings of libraries that use Python's logging go the same way as ours. Called once by a process that serves."""
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
        except Exception:  # a line that cannot be written stops nothing of what it is about
            self.handleError(record)


def _for_programs(value: object) -> object:
    return asdict(value) if isinstance(value, OffsetRange) else str(value)


def _for_people(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A partition as Kafka writes it, ``orders-0``, ranges as ``0..99``, and names as they can be shown."""
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
            continue  # no value of anybody's: a password may be one of these words
        text = value if isinstance(value, str) else str(value)
        for secret in secrets:
            if secret in text:
                text = text.replace(secret, "(hidden)")
                entry[name] = text
    return entry


def _spaced(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
