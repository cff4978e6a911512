"""``tierstate certify``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from ..runtime.clock import SystemClock
from ..runtime.id_source import RandomIds
from ..state.errors import Difference, InvalidRequest, TierstateError
from ..state.offsets import moment
from .context import Context
from .flags import declare

if TYPE_CHECKING:
    from ..storage.contract_evidence import Promise
    from ..storage.contract_trial import Trial

PREFIX = "tierstate-certify-"


@declare("certify s3://bucket/prefix", execute=True)
@click.argument("url", required=False)
@click.option("--promise", "names", multiple=True, metavar="NAME", help="Check only this promise; may be repeated.")
@click.option("--all", "go_on", is_flag=True, help="Continue after a broken promise.")
def command(context: Context, url: str | None, names: tuple[str, ...], go_on: bool, execute: bool) -> None:
    """Certify that an object store keeps every promise that tierstate relies on.

    The URL has the form of [store] url, which is the default; endpoint and credentials are those of [store]. The
    command writes only below a new folder, tierstate-certify-…/, and removes its objects at the end.
    Exit code 1 when a promise is broken, 3 when the store does not answer, 5 when it denies access.
    """
    from ..app.opening.connection import open_store_of
    from ..storage.contract_trial import Trial

    promises = _chosen(names)
    if url is not None:
        context.store = url
    settings = context.settings_with("store.url")
    if not execute:
        _estimate(context, settings.store.url, promises)
        return
    store = open_store_of(settings, listener=context.note_event, make=True)
    with closing(store):
        trial = Trial(store, f"{PREFIX}{RandomIds().uuid().hex()}/")  # lower case: one promise tests case sensitivity
        _judge(context, _Certificate(context, store.description, promises), trial, go_on)


def _chosen(names: Sequence[str]) -> list[Promise]:
    from difflib import get_close_matches

    from ..storage.contract import STORE_PROMISES

    promises_by_name = {promise.name: promise for promise in STORE_PROMISES}
    for name in names:
        if name not in promises_by_name:
            near = get_close_matches(name, promises_by_name, n=1)
            raise InvalidRequest("no such promise", promise=repr(name), did_you_mean=repr(near[0]) if near else None)
    return [promise for promise in STORE_PROMISES if not names or promise.name in names]


def _judge(context: Context, certificate: _Certificate, trial: Trial, go_on: bool) -> None:
    clock = SystemClock()
    try:
        trial.reach()
        with context.output.progress("certifying", len(certificate.promises)) as advance:
            started = clock.monotonic()
            for promise, broken in trial.verdicts(certificate.promises):
                certificate.add(promise, broken, clock.monotonic() - started)
                advance(1)
                if broken is not None and not go_on:
                    break
                started = clock.monotonic()
    finally:
        context.deadline.cancel()  # it limits the trial, not the removal of its objects
        leftovers = trial.clear()
        for name in leftovers:
            context.output.note(f"object may still exist: {name}")
    certificate.finish(leftovers, clock.now_ms())
    if certificate.broken:
        raise Difference("the store breaks a promise", promise=repr(certificate.broken[0]), store=certificate.store)


class _Certificate:
    """Prints each promise's verdict as soon as it is known, then the result. With ``--json`` it prints one document."""

    def __init__(self, context: Context, store: str, promises: list[Promise]) -> None:
        self._context = context
        self.store = store
        self.promises = promises
        self.broken: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._print(f"store   {store}")

    def add(self, promise: Promise, broken: TierstateError | None, seconds: float) -> None:
        width = max(len(each.name) for each in self.promises)
        row: dict[str, Any] = {"promise": promise.name, "kept": broken is None, "seconds": round(seconds, 3)}
        self._print(f"{'BROKEN' if broken else 'kept  '}  {promise.name.ljust(width)}  {seconds:7.2f} s")
        if broken is not None:
            self.broken.append(promise.name)
            row |= {"seen": str(broken), "why": promise.why, "cost": promise.cost, "remedy": promise.remedy}
            self._print(f"        seen: {broken}")
            self._print(f"        needed because: {promise.why}")
            self._print(f"        what it costs: {promise.cost}")
            self._print(f"        what to do: {promise.remedy}")
        self._rows.append(row)

    def finish(self, leftovers: list[str], now_ms: int) -> None:
        from importlib.metadata import version

        from ..storage.contract import STORE_PROMISES

        kept, total = len(self._rows) - len(self.broken), len(STORE_PROMISES)
        checked = {row["promise"] for row in self._rows}
        document = {
            "store": self.store,
            "at": moment(now_ms),
            "tierstate": version("tierstate"),
            "certified": kept == total,
            "promises": self._rows,
            "not_checked": [each.name for each in STORE_PROMISES if each.name not in checked],
            "left_behind": leftovers,
        }
        if self._context.as_json:
            self._context.output.document(document)
            return
        verdict = "CERTIFIED" if kept == total else "NOT CERTIFIED"
        self._print(
            f"{verdict}: {kept} of {total} promises kept, {len(self.broken)} broken, "
            f"{total - len(self._rows)} not checked, at {document['at']} by tierstate {document['tierstate']}"
        )

    def _print(self, text: str) -> None:
        if not self._context.as_json:
            self._context.output.line(text)


def _estimate(context: Context, url: str, promises: list[Promise]) -> None:
    """Show how many objects, bytes and requests each promise needs, counted on a store in memory that keeps them."""
    from ..storage.contract_trial import Trial
    from ..storage.memory import MemoryStore

    rows: list[tuple[str, int, int, int]] = []
    for promise in promises:
        trial = Trial(MemoryStore(), f"{PREFIX}dry-run/")
        for _, broken in trial.verdicts([promise]):
            assert broken is None, broken
        recorded = trial.recorded
        rows.append((promise.name, recorded.objects, recorded.bytes_sent, recorded.requests))
    total = ("in all", sum(row[1] for row in rows), sum(row[2] for row in rows), sum(row[3] for row in rows))
    columns = ("promise", "objects", "bytes", "requests")
    document = {
        "store": url,
        "promises": [dict(zip(columns, row, strict=True)) for row in rows],
        **dict(zip(columns[1:], total[1:], strict=True)),
    }
    context.output.table(columns, [*rows, total], document)
    context.output.note(
        f"nothing was written: objects would be written below {url.rstrip('/')}/{PREFIX}…/, and removed"
    )
