"""Errors for the user of a query: our sentence, without the stack trace of our code."""

from __future__ import annotations

import logging
from types import TracebackType

from ..state.errors import TierstateError

log = logging.getLogger("tierstate.spark")


class Plainly:
    """A block in which Spark called us. Spark shows the whole trace of an exception that leaves it, causes first and
    our sentence last, behind up to 3,800 characters (seen). Our errors are clear alone; the trace is logged, as debug.
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
