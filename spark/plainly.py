"""Raises errors as Spark shows them best."""

from __future__ import annotations

import logging
from types import TracebackType

from ..state.errors import TierstateError

log = logging.getLogger("tierstate.spark")


class Plainly:
    """A context manager for code that Spark calls. Spark shows an exception's whole trace, and the message after up to
    3,800 characters (seen). So a tierstate error is raised without its trace, which is logged as debug.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, TierstateError):
            log.debug("a query failed", exc_info=error)
            raise error.with_traceback(None) from None


plainly = Plainly()
