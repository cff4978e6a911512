"""A process that serves, and ends within ten seconds after it was asked to stop, whatever hangs in it.

Services get `STOP_SECONDS` to return. Work that has not returned then (a request to a store that never answers, a
listing) is abandoned: nothing is closed under it, the process ends. That is as harmless as `kill -9`, which every
operation must survive anyway: an upload that is cut off is never readable, and the next term sweeps it.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from .exit_codes import DONE, exit_code

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ..runtime.service import Service
    from ..runtime.settings import Settings
    from .context import Context

CLOSING_SECONDS = 1.0
"""Time to close clients and files after the last service returned, plus what the services left of their time."""

DEBUG_VARIABLE = "TIERSTATE_DEBUG"
"""The variable of `main.py` that shows stack traces; here it also shows lines for debugging."""

FEWEST_FILES, MOST_FILES = 512, 65_536
"""Open files: the number that every process of ours needs, and the most that it takes if the system allows."""

Warn = Callable[..., object]


def keep_files_private(context: Context) -> None:
    """Hide view, chunk cache and logs from other users of this machine, who may not be allowed to read all of it."""
    if context.own_process:
        os.umask(0o077)


def require_open_files() -> None:
    """Take as many open files as the system allows this process. Raises InvalidRequest for fewer than are needed."""
    from ..state.errors import InvalidRequest

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft != resource.RLIM_INFINITY and soft < FEWEST_FILES:
        raise InvalidRequest(
            "this process may open too few files: raise `ulimit -n`, or LimitNOFILE of its unit",
            allowed=soft,
            needed=FEWEST_FILES,
        )


def service_logs(context: Context) -> FilteringBoundLogger:
    """Return the logger of a process that serves. It has libraries' warnings too, and no secret of the settings."""
    from ..runtime.logs import FORMAT_VARIABLE, open_logs, take_library_logs

    if context.own_process:
        require_open_files()
    logger = open_logs(
        os.environ,
        as_json=context.as_json,
        colour=not context.no_color,
        debug=os.environ.get(DEBUG_VARIABLE) == "1",
        secrets=list(secrets_of(context.settings)),
        later=lambda: rotated_secrets(context.settings),
    )
    take_library_logs(logger)
    if context.as_json or os.environ.get(FORMAT_VARIABLE) == "json":
        context.output.to_log = logger.info
    if context.own_process:
        faulthandler.enable()  # shows where every thread was when a supervisor's watchdog aborts a process that hangs
    return logger


def secrets_of(settings: Settings) -> Iterator[str]:
    """Yield every value that is a secret by its key, and URLs that came by reference, which may have a password.

    Other values that came by reference are not secrets: a user's name is a common word.
    """
    from pydantic import BaseModel, SecretStr

    from ..runtime.settings_keys import is_secret

    for section, values in (("kafka", settings.kafka), ("catalog", settings.catalog)):
        for name, value in values.items():
            if is_secret((section, name)) or (settings.is_masked(f"{section}.{name}") and "://" in str(value)):
                yield str(value)
    for _, one in settings:
        for value in dict(one).values() if isinstance(one, BaseModel) else ():
            if isinstance(value, SecretStr):
                yield value.get_secret_value()


def rotated_secrets(settings: Settings) -> list[str]:
    """Return the current values of the secrets that are read again while the process runs."""
    from ..runtime.settings_keys import is_secret, path_of_dotted

    return [secret.value for key, secret in settings.live.items() if is_secret(path_of_dotted(key))]


def serve(context: Context, services: Sequence[Service], warn: Warn) -> None:
    """Call `run_services`; in a process of its own, do not return if something had to be abandoned.

    The exit code is then that of the error that ended the process, and 0 after SIGTERM. ``warn`` gets one line.
    """
    from ..runtime.service import STOP_SECONDS, run_services
    from ..state.errors import TimedOut

    if not context.own_process:
        run_services(services, STOP_SECONDS)
        return
    closing = _Closing(warn)
    try:
        run_services(services, STOP_SECONDS, closing.begin)
    except BaseException as error:
        clean_stop = isinstance(error, TimedOut) and all(service.failure is None for service in services)
        closing.code = DONE if clean_stop else exit_code(error)
        late = ",".join(service.name for service in services if not service.join(0))
        if late:
            reason = None if clean_stop else str(error)
            closing.leave("services did not stop and are abandoned", services=late, error=reason)
        raise


class _Closing:
    """A thread that ends the process if closing takes too long, counted from the stop on."""

    def __init__(self, warn: Warn) -> None:
        self._warn, self.code = warn, DONE

    def begin(self) -> None:
        threading.Thread(target=self._watch, name="closing", daemon=True).start()

    def _watch(self) -> None:
        from ..runtime.service import STOP_SECONDS

        threading.Event().wait(STOP_SECONDS + CLOSING_SECONDS)
        self.leave("closing took too long and is abandoned")

    def leave(self, what: str, **facts: object) -> NoReturn:
        """Warn and end the process; it never returns."""
        self._warn(what, exit_code=self.code, **{name: value for name, value in facts.items() if value is not None})
        leave(self.code)


def leave(code: int) -> NoReturn:
    """End the process now. Text that is buffered for people is written first.

    Not with `sys.exit`: the interpreter's own end waits for what client libraries still hold (seen: for more than ten
    seconds), and no thread of ours runs at that time that could cut it short.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has left, or it is closed
            stream.flush()
    os._exit(code)
