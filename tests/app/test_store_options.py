"""Settings become what they say."""

from __future__ import annotations

import pytest

from tierstate.app.opening.moved import store_options
from tierstate.runtime.settings import Settings
from tierstate.state.errors import InvalidSettings
from tierstate.storage.options import StoreOptions

MIB = 1024 * 1024


def test_every_setting_of_the_store_reaches_it() -> None:
    store = {
        "url": "s3://bucket/prefix", "access_key_id": "id", "secret_access_key": "secret", "path_style": True,
        "proxy": "http://proxy:3128", "sse": "aws:kms", "sse_kms_key_id": "key", "connect_timeout": "1s",
        "read_timeout": "2s", "request_timeout": "3s", "throttle_timeout": "4s", "max_attempts": 6,
        "part_bytes": "7MiB", "upload_concurrency": 8, "storage_class": "STANDARD_IA",
    }  # fmt: skip
    assert store_options(Settings.model_validate({"store": store})) == StoreOptions(
        path_style=True,
        proxy="http://proxy:3128",
        sse="aws:kms",
        sse_kms_key_id="key",
        storage_class="STANDARD_IA",
        connect_timeout=1,
        read_timeout=2,
        request_timeout=3,
        throttle_timeout=4,
        max_attempts=6,
        part_bytes=7 * MIB,
        concurrency=8,
        credentials=("id", "secret"),
    )


def test_defaults_of_the_settings_are_those_of_the_store() -> None:
    assert store_options(Settings.model_validate({})) == StoreOptions()


def test_half_a_key_pair_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="both or neither"):
        store_options(Settings.model_validate({"store": {"access_key_id": "id"}}))
