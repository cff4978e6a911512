"""The status and error code of every error class, in one table. A subclass without a row has its parent's.

Bodies are ``{"error_code": 40401, "message": …, "error": "UnknownTopic", …}``. A code is the REST Proxy's if it has a
code with the same meaning. tierstate's own codes are the status and 50 or more, so they mean nothing else there.
Bodies have only facts that a caller may see: no file of this machine, no address, no stack trace. Logs have the rest.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..state import errors
from ..state.errors import TierstateError
from ..storage.object_store import RangeNotSatisfiable

log = logging.getLogger(__name__)
PLANS = "/v1/plans"
"""The only path that allows POST. The paths below it allow DELETE."""


class NotAcceptable(errors.InvalidRequest):
    """The gateway can serve no media type of the Accept header."""


class NotJson(errors.InvalidRequest):
    """A key or value is not JSON, but JSON was asked for."""


class NotAuthenticated(errors.AccessDenied):
    """The call has no proof of identity, or an unknown one."""


class WrongHost(errors.InvalidRequest):
    """The Host header of a call is not a name of the gateway."""


class TwoLengths(errors.InvalidRequest):
    """A request states the length of its body in two ways."""


class BodyTooLarge(errors.InvalidRequest):
    """A request has a larger body than any call takes."""


class BodyTooSlow(errors.InvalidRequest):
    """A request's body did not come in time."""


class ProblemKind(NamedTuple):
    """The answer to an error class. ``retry_after``: seconds; None if the answer suggests no retry."""

    status: int
    error_code: int
    retry_after: int | None = None


OF_ERROR: dict[type[BaseException], ProblemKind] = {
    Exception: ProblemKind(500, 50050),  # a bug
    TierstateError: ProblemKind(500, 50051),
    errors.InvalidRequest: ProblemKind(400, 40050),
    errors.InvalidSettings: ProblemKind(500, 50052),  # the gateway's, not the caller's
    errors.MissingExtra: ProblemKind(501, 50150),
    errors.UnknownTopic: ProblemKind(404, 40401),  # 40402 when it names a partition
    errors.NotTiered: ProblemKind(422, 42250),
    NotAcceptable: ProblemKind(406, 40650),
    NotJson: ProblemKind(406, 40651),
    errors.OffsetOutOfRange: ProblemKind(416, 41650),
    RangeNotSatisfiable: ProblemKind(416, 41651),
    errors.Unavailable: ProblemKind(503, 50350, 2),
    errors.ViewBehind: ProblemKind(503, 50351, 1),
    errors.BrokerUnavailable: ProblemKind(503, 50352, 2),
    errors.StorageUnavailable: ProblemKind(503, 50353, 5),
    errors.StorageFull: ProblemKind(503, 50354, 60),
    errors.DiskFull: ProblemKind(503, 50361, 60),
    errors.Throttled: ProblemKind(429, 42950, 1),
    errors.TimedOut: ProblemKind(503, 50355, 2),
    errors.PositionLost: ProblemKind(503, 50356, 5),
    errors.LineageUnconfirmed: ProblemKind(503, 50359, 5),
    errors.UnknownOutcome: ProblemKind(503, 50357, 5),
    errors.Fenced: ProblemKind(503, 50358, 1),  # leadership moved during the read: a retry finds the new leader
    errors.AccessDenied: ProblemKind(403, 40301),
    NotAuthenticated: ProblemKind(401, 40101),
    WrongHost: ProblemKind(421, 42150),
    TwoLengths: ProblemKind(400, 40052),
    BodyTooLarge: ProblemKind(413, 41350),
    BodyTooSlow: ProblemKind(408, 40850),
    errors.ObjectNotFound: ProblemKind(500, 50053),  # a reader judges a missing object before it gets here
    errors.ObjectExists: ProblemKind(500, 50054),
    errors.SegmentExpired: ProblemKind(410, 41050),
    errors.PlannedRangeLost: ProblemKind(410, 41051),
    errors.BatchTooLarge: ProblemKind(422, 42251),
    errors.CorruptData: ProblemKind(500, 50055),
    errors.LogGap: ProblemKind(500, 50056),
    errors.IllegalTransition: ProblemKind(500, 50057),
    errors.TierStateLost: ProblemKind(503, 50360),  # nothing to wait for: a person must recover it
    errors.UpgradeNeeded: ProblemKind(503, 50362),  # nothing to wait for: a person must upgrade this process
    errors.Difference: ProblemKind(500, 50058),
    errors.HistoryBroken: ProblemKind(500, 50059),
    errors.PrefixContested: ProblemKind(500, 50061),
    errors.Undecodable: ProblemKind(500, 50062),  # an agent's, not the caller's
    errors.OtherBytes: ProblemKind(500, 50063),
    errors.LineageTooLong: ProblemKind(500, 50060),  # an agent's, not the caller's
}
UNKNOWN_PARTITION = 40402
INVALID_PARAMETER = 40051
SHOWN = frozenset(
    "topic topic_id partition partitions offset start end valid_start valid_end segment_id timestamp given allowed "
    "retry_after parameter name stored_bytes".split()
)
"""Facts that a caller may see; each is a field of the body."""
SHOWN_OF_DAMAGE = frozenset("file chunk position batch expected found reason next".split())
"""More facts of a CorruptData about an object. Readers of the topic may see them: a plan names the same objects."""


def problem_of(error: BaseException) -> ProblemKind:
    problem = next(OF_ERROR[kind] for kind in (*type(error).__mro__, Exception) if kind in OF_ERROR)
    if isinstance(error, errors.UnknownTopic) and "partition" in error.facts:
        return problem._replace(error_code=UNKNOWN_PARTITION)
    return problem


def problem_response(error: BaseException) -> Response:
    problem = problem_of(error)
    if not isinstance(error, TierstateError):
        return _response(problem, "this is a bug in tierstate; its log says more", "InternalError", {})
    shown = SHOWN | SHOWN_OF_DAMAGE if _is_of_an_object(error) else SHOWN
    facts: dict[str, object] = {
        name: value if isinstance(value, int | str | None) else str(value)
        for name, value in errors.apart(error.facts).items()
        if name in shown
    }
    message = f"{error.message}. {errors.shown(facts)}" if facts else error.message
    retry_after = error.facts.get("retry_after")
    if isinstance(retry_after, int):
        problem = problem._replace(retry_after=retry_after)
    name = next(kind.__name__ for kind in type(error).__mro__ if kind in OF_ERROR)
    return _response(problem, message, name, facts)


def _is_of_an_object(error: TierstateError) -> bool:
    """Return whether the error is damage of an object in the store, and not of a file on this machine."""
    return isinstance(error, errors.CorruptData) and not str(error.facts.get("file", "/")).startswith("/")


def _response(problem: ProblemKind, message: str, name: str, facts: dict[str, object]) -> Response:
    body = orjson.dumps({**facts, "error_code": problem.error_code, "message": message, "error": name}, default=str)
    headers = {"cache-control": "no-store"}
    if problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    return Response(body, problem.status, headers, "application/json")


def answer_to(request: Request, error: Exception) -> Response:
    """Return the `problem_response`, and log an error that is not the caller's fault."""
    if problem_of(error).status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return problem_response(error)


def methods_of(path: str) -> str:
    """Return the methods for the header Allow. `auth.py` itself implements HEAD and OPTIONS."""
    if path == PLANS:
        return "POST, OPTIONS"
    return "DELETE, OPTIONS" if path.startswith(f"{PLANS}/") else "GET, HEAD, OPTIONS"


def add_problem_handlers(app: FastAPI) -> None:
    """Turn every error of the app into a problem body, also errors of routing and of parameters."""

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        details = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
        return _response(ProblemKind(400, INVALID_PARAMETER), "; ".join(details)[:1000], "InvalidRequest", {})

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        answer = _response(ProblemKind(error.status_code, error.status_code * 100 + 50), error.detail, "HttpError", {})
        if error.status_code == 405:
            answer.headers["allow"] = methods_of(request.url.path)
        return answer

    app.add_exception_handler(TierstateError, answer_to)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, answer_to)
