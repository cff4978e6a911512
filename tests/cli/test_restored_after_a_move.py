"""Commands that restore read the store to which the objects were moved, also if the settings name the old one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tierstate.app.operating.cluster_backup import put_backup
from tierstate.cli.context import Context
from tierstate.cli.restore_definitions import _backup
from tierstate.follower.move import ARRIVED, MOVED, Move, write_move
from tierstate.state.offsets import Position, TimestampMs
from tierstate.storage.open import open_store

CONTENT: dict[str, Any] = {
    "cluster_id": "C",
    "topics": {},
    "acls": [],
    "quotas": [],
    "groups": {},
    "subjects": None,
    "problems": [],
}


def test_definitions_come_from_the_newest_backup_at_the_new_store(tmp_path: Path) -> None:
    from_url, to_url = ((tmp_path / name).as_uri() for name in ("old", "new"))
    old, new = open_store(from_url, make=True), open_store(to_url, make=True)
    put_backup(old, CONTENT, TimestampMs(1), None)
    put_backup(new, CONTENT, TimestampMs(2), None)
    move = Move("A" * 22, from_url, to_url, "", "", "B" * 22, Position(0), "", "", TimestampMs(0))
    write_move(old, old, MOVED, move)
    write_move(new, new, ARRIVED, move)
    with _backup(Context(store=from_url), None, None) as backup:
        assert backup.at == 2
