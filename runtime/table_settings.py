"""The settings of tables that follow topics."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from .section import Section
from .setting_types import Duration, Size


class Tables(Section):
    """Iceberg tables that follow topics."""

    folder: Path = Field(
        default=Path("/var/lib/tierstate-tables"),
        description="Where the embedded catalog (a SQLite file) and its tables are, unless `[catalog]` names others.",
    )
    commit_interval: Duration = Field(
        default=60.0, ge=0, description="How long what is new waits for more of it, before it is committed."
    )
    commit_bytes: Size = Field(
        default=2**30, ge=2**20, description="Log bytes of one commit, about; so much does not wait for more."
    )
    file_bytes: Size = Field(default=128 * 2**20, ge=2**16, description="Log bytes of one file, at most about.")
    snapshot_age: Duration = Field(
        default=21_600.0,
        ge=0,
        description="How long a table's older snapshots stay; the newest ten do. Each commit writes all of them again.",
    )
