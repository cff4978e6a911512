"""ASGI middleware that reads a request's body completely before the app runs, in a limited time, up to `MOST_BYTES`.

It counts the body as memory. It runs after `auth.py`, so no body is read before the caller has shown credentials. With
any ASGI server, a body that never ends does not hold its connection, and a body that is too large is not read fully.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..state.errors import TierstateError
from .answer_memory import AnswerMemory
from .media import header
from .problems import BodyTooLarge, BodyTooSlow, problem_response

MOST_BYTES = 64 * 1024


def bounded(app: ASGIApp, memory: AnswerMemory, seconds: float) -> ASGIApp:
    """Return ``app`` behind this middleware. ``seconds``: the time limit for a body."""

    async def entered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await app(scope, receive, send)
            return
        held = memory.hold()
        try:
            try:
                held.resize(_announced(scope))
                body = await _whole(receive, seconds)
            except TierstateError as error:
                response = problem_response(error)
                response.headers["connection"] = "close"  # the rest of the body would follow on it
                await response(scope, receive, send)
                return
            body_sent = False

            async def received() -> Message:
                nonlocal body_sent
                if body_sent:
                    return await receive()
                body_sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            await app(scope, received, send)
        finally:
            held.release()

    return entered


def _has_body(scope: Scope) -> bool:
    return bool(header(scope, b"transfer-encoding")) or header(scope, b"content-length") not in ("", "0")


def _announced(scope: Scope) -> int:
    """Return the announced bytes of the body, or `MOST_BYTES` if none are announced. Raises BodyTooLarge."""
    length = header(scope, b"content-length")
    if not length:
        return MOST_BYTES
    if int(length) > MOST_BYTES:
        raise BodyTooLarge(f"a request's body has at most {MOST_BYTES} bytes", given=int(length))
    return int(length)


async def _whole(receive: Receive, seconds: float) -> bytes:
    """Return the whole body. Raises BodyTooLarge, BodyTooSlow."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BYTES:
                    raise BodyTooLarge(f"a request's body has at most {MOST_BYTES} bytes")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise BodyTooSlow(f"the request's body did not come within {seconds:.0f} s") from None
