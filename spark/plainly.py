"""What the user of a query is told: our sentence, without how the code came to it."""

from __future__ import annotations

import logging
from types import TracebackType

from ..state.errors import TierstateError

log = logging.getLogger("tierstate.spark")


class Plainly:
    """A block in which Spark called us. Spark shows the whole trace of what leaves it, causes first and our sentence
    last, behind up to 3,800 characters (seen); ours say what and where by themselves. The trace is logged, as debug.
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
