"""Functions that raise a Difference for a broken promise, with the value found and the value promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..state.errors import Difference, TierstateError
from .object_store import ObjectStore

Check = Callable[[ObjectStore, str], None]


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of every store. ``check(store, prefix)`` writes only below ``prefix`` and raises if it is broken.

    ``why`` names tierstate's use of it, ``cost`` the damage to users if it is broken, ``remedy`` the way to repair it.
    """

    name: str
    why: str
    cost: str
    remedy: str
    check: Check


def must_raise(expected: type[TierstateError], call: Callable[[], object]) -> None:
    try:
        answer = call()
    except expected:
        return
    except TierstateError as error:
        raise Difference("another error than promised", expected=expected.__name__, raised=repr(error)) from error
    raise Difference("no error was raised", expected=expected.__name__, answer=_short(answer))


def must_equal(what: str, value: object, expected: object) -> None:
    if value != expected:
        raise Difference(f"{what}: not as promised", found=_short(value), expected=_short(expected))


def must_hold(what: str, holds: bool) -> None:
    if not holds:
        raise Difference(f"not so: {what}")


def keys_below(store: ObjectStore, prefix: str, start_after: str | None = None) -> list[str]:
    return [info.key for info in store.list(prefix, start_after)]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
