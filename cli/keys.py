"""``tierstate keys new``, ``list``, ``rotate``."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..runtime.units import counted
from ..state.errors import AccessDenied, CorruptData, Fenced, InvalidRequest
from .context import Context
from .flags import acts, declare
from .parameter_types import TopicArgument

if TYPE_CHECKING:
    from ..storage.segment.keyring import KeyRing
    from ..storage.segment.rotate import Outcome, Rotated

RING_NAME = "keyring.toml"
SHOWN = 20
"""Number of problems that are listed. The counts include all problems."""

_keyring = click.option(
    "--keyring", type=click.Path(path_type=Path, dir_okay=False), help="The key ring; else encryption.keyring."
)


@click.group("keys", epilog="Example: tierstate keys new key1 --dir /etc/tierstate/keys")
def command() -> None:
    """The key ring that encrypts copied segments: RSA key pairs that wrap a data key of each segment."""


@declare("keys new key2 --dir /etc/tierstate/keys", execute=True, group=command)
@click.argument("key_id", metavar="ID")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help=f"Where {RING_NAME} and PEM files lie."
)
@click.option("--bits", type=int, default=3072, show_default=True, help="Length of the RSA key.")
@click.option("--activate", is_flag=True, help="Let it wrap from now on. A ring's first key does.")
def new(context: Context, key_id: str, folder: Path | None, bits: int, activate: bool, execute: bool) -> None:
    """Make a key pair and add it to the key ring, which is begun when there is none.

    Hand the ring to every reader before you activate the key: who lacks it cannot read what is written then.
    """
    from ..storage.segment.new_key import add_key, plan_key

    key = plan_key(folder / RING_NAME if folder else _path(context, None), key_id, bits=bits, activate=activate)
    if execute:
        add_key(key)
    rows = [
        ("key ring", str(key.ring)),
        ("key id", key.key_id),
        ("bits", key.bits),
        ("public", str(key.public)),
        ("private", str(key.private)),
        ("active", key.activates),
    ]
    written = {name.replace(" ", "_"): value for name, value in rows}
    context.output.table(("what", "value"), rows, {**written, "executed": execute})
    context.output.note("keep the private key where it cannot be lost" if execute else "nothing was written: --dry-run")


@declare("keys list --segments", group=command)
@_keyring
@click.option("--segments", is_flag=True, help="Count the store's segments by key: reads every manifest.")
def show(context: Context, keyring: Path | None, segments: bool) -> None:
    """List the keys of the key ring. A key that the ring lacks and segments need is listed too."""
    ring = _ring(context, keyring)
    counts = _counts(context) if segments else Counter[str | None]()
    rows: list[tuple[object, ...]] = [
        (key_id, key_id == ring.active, pair.private is not None, pair.bits, pair.fingerprint)
        for key_id, pair in ring.keys.items()
    ]
    rows += [(key_id, False, False, None, None) for key_id in sorted(filter(None, counts)) if key_id not in ring.keys]
    columns: tuple[str, ...] = ("key_id", "active", "private", "bits", "fingerprint")
    if segments:
        columns, rows = (*columns, "segments"), [(*row, counts[str(row[0])]) for row in rows]
    keys = [dict(zip(columns, row, strict=True)) for row in rows]
    document = {"active": ring.active, "keys": keys, "not_encrypted": counts[None] if segments else None}
    context.output.table(columns, rows, document)
    if segments:
        context.output.note(f"{counted(counts[None], 'segment is', 'segments are')} not encrypted")


@declare("keys rotate --from key1 --execute", topic="[T[:P]]", group=command)
@click.option("--from", "from_id", metavar="ID", help="Only segments under this key.")
@acts(unasked=False)
@_keyring
def rotate(
    context: Context, topic: TopicArgument | None, from_id: str | None, execute: bool, keyring: Path | None
) -> None:
    """Wrap the data keys of all segments, of a topic or of a partition under the active key.

    Only manifests are rewritten; reads go on throughout. May be stopped and begun again. Exit code 4 when a manifest
    is corrupt, 5 when one had to stay because a private key is missing, or because it is under a newer key than the
    ring's active one: --from takes it back.
    """
    from ..app.operating.prefix import changing
    from ..storage.segment.rotate import Rotation, rotate_all

    ring = _ring(context, keyring)
    name, number = (topic.topic, topic.partition) if topic else (None, None)
    rotation = Rotation(name, number, from_id, execute)
    counts: Counter[tuple[Outcome, str | None]] = Counter()
    wrong: list[Rotated] = []
    with context.connected("store.url") as connection:
        label = "rotating manifests" if execute else "looking at manifests"
        with (
            changing(connection) if execute else nullcontext(connection.store) as store,
            context.output.progress(label) as advance,
        ):
            for rotated in rotate_all(store, ring, rotation):
                counts[rotated.outcome, rotated.key_id] += 1
                wrong += [rotated] if rotated.problem and len(wrong) < SHOWN else []
                advance(1)
    rows = [(_said(outcome, execute), key_id, count) for (outcome, key_id), count in sorted(counts.items(), key=str)]
    totals = [{"outcome": outcome.name.lower(), "key_id": key, "segments": n} for (outcome, key), n in counts.items()]
    problems = [{"object_key": each.manifest_key, "problem": each.problem} for each in wrong]
    document = {"active": ring.active, "executed": execute, "manifests": totals, "problems": problems}
    context.output.table(("outcome", "key", "segments"), rows, document)
    for rotated in wrong:
        context.output.note(f"{rotated.manifest_key}: {rotated.problem}")
    if not execute:
        context.output.note("nothing was written: --execute does it")
    _judge(counts)


def _said(outcome: str, execute: bool) -> str:
    return "would be rotated" if outcome == "rotated" and not execute else str(outcome)


def _judge(counts: Counter[tuple[Outcome, str | None]]) -> None:
    from ..storage.segment.rotate import Outcome

    def of(*outcomes: Outcome) -> int:
        return sum(count for (outcome, _), count in counts.items() if outcome in outcomes)

    if corrupt := of(Outcome.CORRUPT):
        raise CorruptData("manifests are corrupt and stay as they are", manifests=corrupt, others="done")
    if newer := of(Outcome.NEWER):
        ids = sorted({str(key_id) for outcome, key_id in counts if outcome is Outcome.NEWER})
        raise Fenced(
            "segments are under a newer key than the ring's active one and stay there: make it the active one, or go "
            "back by --from",
            segments=newer,
            keys=",".join(ids),
        )
    if stay := of(Outcome.LOCKED, Outcome.REFUSED):
        ids = sorted({str(key_id) for outcome, key_id in counts if outcome is Outcome.LOCKED})
        raise AccessDenied("segments stay under their old key", segments=stay, no_private_key=",".join(ids) or None)


def _counts(context: Context) -> Counter[str | None]:
    from ..storage.segment.rotate import count_by_key

    counts: Counter[str | None] = Counter()
    with context.connected("store.url") as connection, context.output.progress("reading manifests") as advance:
        for _, key_id in count_by_key(connection.store):
            counts[key_id] += 1
            advance(1)
    return counts


def _ring(context: Context, option: Path | None) -> KeyRing:
    from ..storage.segment.keyring import KeyRing

    return KeyRing.load(_path(context, option))


def _path(context: Context, option: Path | None) -> Path:
    path = option or context.settings.encryption.keyring
    if path is None:
        raise InvalidRequest("no key ring: set encryption.keyring, or name it on the command line")
    return path
