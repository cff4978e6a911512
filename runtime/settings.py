"""Every setting: one frozen class for each section, as in the TOML file. Parsed once by `settings_load.py`.

Sizes are bytes, durations seconds. Empty text, an empty list or None means "not set": `require` reports it to the user.
The table in docs/settings.md is made of the texts below the settings (`tests/docs/settings_page.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from ..state.errors import InvalidSettings
from .agent_settings import Agent, Archive, Backup, Checkpoint, Copy, Custodian, Expire, Lease, Prefix, Sweep, Trim
from .gateway_settings import Gateway, Registry
from .live_secret import LiveSecret
from .proxy_settings import Proxy
from .setting_types import (
    Address,
    Duration,
    HttpUrl,
    Listen,
    Names,
    Pattern,
    Patterns,
    Reachable,
    Section,
    Size,
    StoreUrl,
)

Process = Literal["agent", "gateway", "proxy", "table"]
LISTENS: Mapping[Process, Address] = {
    "agent": Address("127.0.0.1", 9404),
    "gateway": Address("127.0.0.1", 9405),
    "proxy": Address("127.0.0.1", 9406),
    "table": Address("127.0.0.1", 9407),
}
"""The management port of each kind of process, unless ``management.listen`` is set."""
HIGHEST_PORT = 65_535


DRILL_TOPICS = "tierstate-drill-"
"""Topics that `tierstate drill` makes and deletes begin with this. They are never tiered."""


class NextStore(Section):
    """The target of a move that `[store]` does not reach."""

    url: StoreUrl = ""
    """The target's URL."""
    endpoint: HttpUrl = ""
    """As `store.endpoint`."""
    region: str = ""
    """As `store.region`."""
    access_key_id: str = ""
    """As `store.access_key_id`; empty: that."""
    secret_access_key: SecretStr | None = None
    """Its secret."""
    sse: Literal["none", "AES256", "aws:kms"] = "none"
    """As `store.sse`."""
    sse_kms_key_id: str = ""
    """As `store.sse_kms_key_id`."""
    storage_class: str = ""
    """As `store.storage_class`."""


def _topic_stores(stores: object) -> object:
    """Return the table of a JSON text (an option of Spark), and a table of tables for one of URLs."""
    if isinstance(stores, str):
        stores = json.loads(stores)
    if not isinstance(stores, dict):
        return stores
    return {pattern: {"url": store} if isinstance(store, str) else store for pattern, store in stores.items()}


TopicStores = Annotated[dict[Pattern, NextStore], BeforeValidator(_topic_stores)]


class Store(Section):
    """The object store that holds the remote tier."""

    url: StoreUrl = ""
    """Where the remote tier lives: file:///…, s3://, gs://, az://."""
    endpoint: HttpUrl = ""
    """Address of an S3-compatible server, URL of the Azure account; empty: the cloud's own."""
    region: str = ""
    """Region of the bucket; empty: as the environment says."""
    access_key_id: str = ""
    """Access key, or the Azure account's name; empty: the cloud library's own search."""
    secret_access_key: SecretStr | None = None
    """Secret of the access key, or the Azure account's key."""
    connect_timeout: Duration = Field(default=5.0, gt=0)
    """How long a connection may take."""
    read_timeout: Duration = Field(default=30.0, gt=0)
    """How long the store may stay silent within an answer."""
    request_timeout: Duration = Field(default=120.0, gt=0)
    """How long a request may take with its repeats, or a MiB of a large answer."""
    max_attempts: int = Field(default=5, ge=1, le=100)
    """How often a request that fails is sent at most."""
    throttle_timeout: Duration = Field(default=600.0, ge=0)
    """How long a write waits for a store that asks to slow down; a read never longer than `request_timeout`."""
    part_bytes: Size = Field(default=8 * 1024 * 1024, ge=5 * 1024 * 1024, le=5 * 1024**3)
    """Part size of multipart uploads."""
    upload_concurrency: int = Field(default=4, ge=1, le=64)
    """Parts of one upload in flight; memory is this plus two, times `part_bytes`."""
    path_style: bool | None = None
    """S3: bucket in the path, not in the host name; unset: with an `endpoint`, yes."""
    proxy: HttpUrl = ""
    """HTTP proxy; empty: HTTPS_PROXY and NO_PROXY of the environment."""
    sse: Literal["none", "AES256", "aws:kms"] = "none"
    """S3: server-side encryption asked of every object; none: as the bucket is set."""
    sse_kms_key_id: str = ""
    """S3: KMS key for aws:kms; empty: the account's own."""
    storage_class: str = ""
    """Class of log objects, as STANDARD_IA, GLACIER_IR, COLDLINE, Cool; empty: the bucket's."""
    topics: TopicStores = Field(default={})
    """`"PATTERN" = "URL"`: [stores of topics](stores.md#a-store-for-some-topics)."""


class TierState(Section):
    """The tier-state topic."""

    topic: str = Field(default="_tier-state", pattern=r"^[a-zA-Z0-9._-]{1,249}$")
    """Name of the tier-state topic."""
    partitions: int = Field(default=50, ge=1, le=10_000)
    """Partitions it is created with; fixed for its life."""
    replication_factor: int = Field(default=3, ge=1, le=100)
    """Replication factor it is created with."""


class View(Section):
    """The source from which readers take the view."""

    source: Literal["topic", "bucket", "kip405"] = "topic"
    """`bucket`: from checkpoints and archive; no broker is asked, and only what is remote is read. `kip405`: what Kafka
    tiered itself with Aiven's plugin."""
    as_of: str = ""
    """Of the bucket: the view of a time (`@2026-11-21T10:00:00Z`, `@-3d`), or of one tier-state partition below a
    position (`0/1234`); empty: the newest."""
    topic_id: str = ""
    """Of the bucket: which tier-state topic; needed where it keeps more than one."""
    history: int | None = Field(default=None, ge=0)
    """Of the bucket: which history; unset: the newest."""


class Kip405(Section):
    """Topics that Kafka tiered itself."""

    key_prefixes: Names = Field(default=("",), min_length=1)
    """Values that the plugin's `key.prefix` has had, for segments whose metadata does not name it."""


class TopicOverrides(Section):
    """One topic's overrides. They may be shorter than the topic's own retention, never longer."""

    retention: Duration | None = None
    """Instead of Kafka's retention.ms."""
    retention_bytes: Size | None = None
    """Instead of Kafka's retention.bytes."""
    local_retention: Duration | None = None
    """Instead of Kafka's local.retention.ms."""
    local_retention_bytes: Size | None = None
    """Instead of Kafka's local.retention.bytes."""


class Tiering(Section):
    """The topics that are tiered, by patterns."""

    include: Patterns = ()
    """Topics to tier: regular expressions that match the whole name."""
    exclude: Patterns = ()
    """Topics never to tier; wins over include."""
    topics: dict[str, TopicOverrides] = Field(default={})
    """Overrides by topic name; else Kafka's settings rule."""

    def covers(self, topic: str) -> bool:
        """Return whether the patterns choose this topic. (The agent may still refuse it.)"""

        def matches(patterns: tuple[str, ...]) -> bool:
            return any(re.fullmatch(pattern, topic) for pattern in patterns)

        return matches(self.include) and not matches(self.exclude) and not topic.startswith(DRILL_TOPICS)


class Format(Section):
    """The form in which copied segments are written."""

    compression: Literal["auto", "zstd", "none"] = "auto"
    """auto: none over compressed batches."""
    zstd_level: int = Field(default=3, ge=1, le=22)
    """Level of zstd."""
    chunk_bytes: Size = Field(default=2**20, ge=1024, le=2**30)
    """Log bytes in one chunk."""
    key_prefix: str = ""
    """What new object keys begin with; `{salt}` spreads partitions. Objects keep their keys."""
    salt_bits: int = Field(default=5, ge=1, le=128)
    """Bits of `{salt}`, each a 0 or 1 in the key."""


class Encryption(Section):
    """Encryption of copied segments."""

    keyring: Path | None = None
    """Key ring, a TOML file: agents encrypt with it (public keys are enough), readers open with it."""


class Cache(Section):
    """Chunks of the remote tier kept by readers."""

    memory: Size = 256 * 2**20
    """Bytes of memory, or one chunk when that is larger."""
    disk: Size = 0
    """Bytes of disk under state_dir, kept over restarts; 0: none."""
    prefetch: Size = 32 * 2**20
    """Log bytes loaded ahead of a sequential reader, at most half of memory; 0: none."""


class Management(Section):
    """Health, metrics and status of an agent, a gateway, a proxy or a follower of tables."""

    listen: Listen | None = None
    """Where it answers; port 0 takes a free one. Unset: 127.0.0.1:9404 of an agent, 127.0.0.1:9405 of a gateway,
    127.0.0.1:9406 of a proxy, 127.0.0.1:9407 of `table follow`."""
    advertised: Reachable | None = None
    """Where commands and other agents ask this agent: it stands in its facts. Unset: where it listens, which is then
    one address."""

    hosts: Names = ()
    """Further names by which it may be called (the Host header), next to addresses, localhost and the host of
    `advertised`. Empty: no others where it listens on loopback, any where it listens for others."""

    def of(self, process: Process) -> Address:
        """Return the address of this kind of process."""
        return self.listen or LISTENS[process]

    def announced(self, bound: Address) -> Address:
        """Return the address that an agent announces. Raises InvalidSettings if none can connect to it."""
        if self.advertised is None and bound.everywhere:
            raise InvalidSettings(
                [f"management.listen: {bound} is every address; say by management.advertised which one others ask"]
            )
        return self.advertised or bound


class Tables(Section):
    """Iceberg tables that follow topics."""

    folder: Path = Path("/var/lib/tierstate-tables")
    """Where the embedded catalog (a SQLite file) and its tables are, unless `[catalog]` names others."""
    commit_interval: Duration = Field(default=60.0, ge=0)
    """How long what is new waits for more of it, before it is committed."""
    commit_bytes: Size = Field(default=2**30, ge=2**20)
    """Log bytes of one commit, about; so much does not wait for more."""
    file_bytes: Size = Field(default=128 * 2**20, ge=2**16)
    """Log bytes of one file, at most about."""
    snapshots: int = Field(default=200, ge=1)
    """How many of a table's newest snapshots stay; as many older ones do."""
    snapshot_age: Duration = Field(default=86_400.0, ge=0)
    """The age over which those older ones are spread."""


class Settings(Section):
    """All settings. `settings_load.load_settings` makes them, with the origin of each value."""

    state_dir: Path = Path("/var/lib/tierstate")
    """View, position, chunk cache; may be deleted at any time."""
    kafka: dict[str, str] = Field(default={}, repr=False)
    """librdkafka properties, as they are."""
    store: Store = Store()
    next_store: NextStore = NextStore()
    tier_state: TierState = TierState()
    view: View = View()
    kip405: Kip405 = Kip405()
    tiering: Tiering = Tiering()
    format: Format = Format()
    agent: Agent = Agent()
    copy_: Copy = Field(default=Copy(), alias="copy")
    trim: Trim = Trim()
    expire: Expire = Expire()
    sweep: Sweep = Sweep()
    lease: Lease = Lease()
    encryption: Encryption = Encryption()
    cache: Cache = Cache()
    archive: Archive = Archive()
    backup: Backup = Backup()
    checkpoint: Checkpoint = Checkpoint()
    prefix: Prefix = Prefix()
    custodian: Custodian = Custodian()
    management: Management = Management()
    gateway: Gateway = Gateway()
    registry: Registry = Registry()
    proxy: Proxy = Proxy()
    table: Tables = Tables()
    catalog: dict[str, str] = Field(default={}, repr=False)
    """pyiceberg's properties, as they are."""

    @model_validator(mode="after")
    def _archive(self) -> Settings:
        """Refuse a retention of the remote tier while trimming is on: Kafka's own retention would no longer hold."""
        if self.trim.enabled and self.expire.is_set:
            raise ValueError("expire.retention and expire.topics need trim.enabled = false")
        return self

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _masked: frozenset[str] = PrivateAttr(default_factory=frozenset)
    _live: dict[str, LiveSecret] = PrivateAttr(default_factory=dict)

    def with_origins(
        self, origins: Mapping[str, str], masked: Set[str], live: Mapping[str, LiveSecret] | None = None
    ) -> Settings:
        """Return a copy with the origin of each dotted key, the keys whose values are hidden, and the live secrets."""
        settings = self.model_copy()
        settings._origins = dict(origins)
        settings._masked = frozenset(masked)
        settings._live = dict(live or {})
        return settings

    def origin(self, key: str) -> str:
        """Return the origin of this dotted key: ``default``, a file, an environment variable, a flag."""
        return self._origins.get(key, "default")

    def is_masked(self, key: str) -> bool:
        return key in self._masked

    @property
    def live(self) -> Mapping[str, LiveSecret]:
        """The values that come from a file or a command and are read again, by dotted key."""
        return self._live


WAYS = {"store.url": "--store URL", "kafka.bootstrap.servers": "--bootstrap-server HOST:PORT"}
FREE = ("kafka", "catalog")
"""Sections whose keys are properties of a library, as they are: everything after the section is one name."""


def needed_by_agent(settings: Settings) -> tuple[str, ...]:
    """Return the dotted keys that an agent needs."""
    folders = () if settings.agent.source == "fetch" else ("agent.log_dirs",)
    return ("kafka.bootstrap.servers", "store.url", *folders)


def require(settings: Settings, *keys: str) -> None:
    """Raise InvalidSettings naming each of ``keys`` (``store.url``, ``kafka.bootstrap.servers``) that is not set."""
    missing = [key for key in keys if _value(settings, key) in (None, "", (), {})]
    if missing:
        raise InvalidSettings(
            [f"{key}: needed here and not set" + (f" ({WAYS[key]})" if key in WAYS else "") for key in missing]
        )


def _value(settings: Settings, key: str) -> object:
    section, _, rest = key.partition(".")
    if section in FREE:
        return (settings.kafka if section == "kafka" else settings.catalog).get(rest)
    value: object = settings.model_dump(by_alias=True)
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else None
    return value
