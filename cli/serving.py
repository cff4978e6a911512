"""A process that serves. It ends within ten seconds after the stop request, even if a part of it hangs.

Services get `STOP_SECONDS` to return. If a service has not returned then (a request to a store that never answers, a
listing), the process ends without closing anything. That is as harmless as `kill -9`, which every operation must
survive: an interrupted upload is never readable, and the next term sweeps it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from ..state.errors import InvalidRequest, TimedOut
from .exit_codes import DONE, exit_code

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ..runtime.service import Service
    from ..runtime.settings import Settings
    from .context import Context

CLOSING_SECONDS = 1.0
"""Seconds to close clients and files, after the `STOP_SECONDS` of the services have passed."""

DEBUG_VARIABLE = "TIERSTATE_DEBUG"
"""The environment variable that shows stack traces (`main.py`). In a service it also enables debug log lines."""

FEWEST_FILES, MOST_FILES = 512, 65_536
"""Limits of open files: the number that a tierstate service needs, and the highest limit that it sets."""

Warn = Callable[..., object]


def keep_files_private(context: Context) -> None:
    """Make new files (view, chunk cache, logs) unreadable for other users of this machine, who may lack permissions."""
    if context.own_process:
        os.umask(0o077)


def require_open_files() -> None:
    """Raise the limit of open files as far as the system allows, at most to ``MOST_FILES``.

    Raises InvalidRequest if the limit is below ``FEWEST_FILES`` then.
    """
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
    """Return the logger of a service. It also gets warnings of libraries, and masks the secrets of the settings."""
    from ..runtime.logs import FORMAT_VARIABLE, open_logs, take_library_logs
    from ..runtime.settings_keys import is_secret, path_of_dotted

    if context.own_process:
        require_open_files()
    live = context.settings.live  # secrets that the process reads again while it runs
    logger = open_logs(
        os.environ,
        as_json=context.as_json,
        colour=not context.no_color,
        debug=os.environ.get(DEBUG_VARIABLE) == "1",
        secrets=list(secrets_of(context.settings)),
        later=lambda: [secret.value for key, secret in live.items() if is_secret(path_of_dotted(key))],
    )
    take_library_logs(logger)
    if context.as_json or os.environ.get(FORMAT_VARIABLE) == "json":
        context.output.to_log = logger.info
    if context.own_process:
        faulthandler.enable()  # prints all threads' stacks when a supervisor's watchdog aborts a hanging process
    return logger


def secrets_of(settings: Settings) -> Iterator[str]:
    """Yield every value whose key or type marks it as a secret, and URLs that came by reference.

    A URL may contain a password. Other values that came by reference are not secrets, for example a user's name.
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


def serve(context: Context, services: Sequence[Service], warn: Warn) -> None:
    """Call `run_services`. A process of its own is ended if a service or the closing does not return in time.

    ``warn`` gets one line then. The exit code is 0 after a stop request, else that of the error that stopped services.
    """
    from ..runtime.service import STOP_SECONDS, run_services

    if not context.own_process:
        run_services(services, STOP_SECONDS)
        return
    gc.collect()
    gc.freeze()  # else a full collection scans all imported modules and delays an answer or a commit by 0.1 to 0.3 s
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
    """A thread that ends the process if closing takes too long. The time counts from the stop request."""

    def __init__(self, warn: Warn) -> None:
        self._warn, self.code = warn, DONE

    def begin(self) -> None:
        threading.Thread(target=self._watch, name="closing", daemon=True).start()

    def _watch(self) -> None:
        from ..runtime.service import STOP_SECONDS

        threading.Event().wait(STOP_SECONDS + CLOSING_SECONDS)
        self.leave("closing took too long and is abandoned")

    def leave(self, what: str, **facts: object) -> NoReturn:
        self._warn(what, exit_code=self.code, **{name: value for name, value in facts.items() if value is not None})
        leave(self.code)


def leave(code: int) -> NoReturn:
    """End the process now, after flushing stdout and stderr.

    `sys.exit` is not used, because the interpreter's shutdown waits for client libraries (more than ten seconds were
    observed). No thread of tierstate runs then that could end the wait.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the stream or its reader is closed
            stream.flush()
    os._exit(code)
