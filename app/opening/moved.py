"""The places of objects that the settings give: `[store]`, `[next_store]` and ``store.topics``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ...runtime.clock import SystemClock
from ...runtime.settings import NextStore, Settings
from ...state.errors import InvalidSettings
from ...state.object_keys import ObjectKeys
from ...storage.options import StoreOptions
from .store_place import StorePlace, TopicStore

if TYPE_CHECKING:
    from ...storage.object_store import ObjectStore


def place_of(settings: Settings) -> StorePlace:
    """Return the place that the settings give. Raises InvalidSettings for half a key pair."""
    options = store_options(settings)
    return StorePlace(
        settings.store.url,
        options,
        settings.next_store.url,
        next_store_options(settings, options),
        topic_stores(settings, options),
        ObjectKeys(settings.format.key_prefix, salt_bits=settings.format.salt_bits),
    )


def open_followed(settings: Settings) -> ObjectStore:
    """Return the store that has the objects: that of the settings, or the one to which they have moved."""
    return cast("ObjectStore", place_of(settings).open(SystemClock()))


def store_options(settings: Settings) -> StoreOptions:
    """Return section ``[store]`` without its URL. Raises InvalidRequest, or InvalidSettings for half a key pair."""
    section = settings.store
    if bool(section.access_key_id) != (section.secret_access_key is not None):
        raise InvalidSettings(["store.access_key_id, store.secret_access_key: both or neither"])
    secret = section.secret_access_key
    return StoreOptions(
        endpoint=section.endpoint or None,
        region=section.region or None,
        path_style=section.path_style,
        proxy=section.proxy or None,
        sse=section.sse,
        sse_kms_key_id=section.sse_kms_key_id or None,
        storage_class=section.storage_class or None,
        connect_timeout=section.connect_timeout,
        read_timeout=section.read_timeout,
        max_attempts=section.max_attempts,
        request_timeout=section.request_timeout,
        throttle_timeout=section.throttle_timeout,
        part_bytes=section.part_bytes,
        concurrency=section.upload_concurrency,
        credentials=(
            None
            if secret is None
            else (
                settings.live.get("store.access_key_id", section.access_key_id),
                settings.live.get("store.secret_access_key", secret.get_secret_value()),
            )
        ),
    )


def topic_stores(settings: Settings, own: StoreOptions) -> tuple[TopicStore, ...]:
    """Return the rules of ``store.topics``. Raises InvalidSettings for a URL that is inside of another one."""
    default, rules = settings.store.url.rstrip("/"), list[TopicStore]()
    for pattern, named in settings.store.topics.items():
        key, url = f"store.topics.{pattern}", named.url.rstrip("/")
        if not url:
            raise InvalidSettings([f"{key}.url: needed here and not set"])
        options = own.for_url(default, url)
        if named.model_fields_set != {"url"}:
            options = next_store_options(settings, options, key, named)
        for other in (TopicStore("", default, own), *rules):
            inside = f"{url}/".startswith(f"{other.url}/") or f"{other.url}/".startswith(f"{url}/")
            if inside and url != other.url and options.endpoint == other.options.endpoint:
                raise InvalidSettings([f"{key}: give it a bucket or prefix that is neither in nor around {other.url}"])
        if url == default and options != own:
            raise InvalidSettings([f"{key}: other options need another URL than store.url"])
        rules.append(TopicStore(pattern, url, options))
    return tuple(rules)


def next_store_options(
    settings: Settings, own: StoreOptions, key: str = "next_store", named: NextStore | None = None
) -> StoreOptions:
    """Return the options of ``[next_store]``, with the limits of ``[store]``, and its credentials if there are none.

    ``named``: another section of this kind, at ``key``. Raises InvalidSettings for half a key pair.
    """
    named = named or settings.next_store
    if bool(named.access_key_id) != (named.secret_access_key is not None):
        raise InvalidSettings([f"{key}.access_key_id, {key}.secret_access_key: both or neither"])
    keys = own.credentials
    if named.secret_access_key is not None:
        keys = (
            settings.live.get(f"{key}.access_key_id", named.access_key_id),
            settings.live.get(f"{key}.secret_access_key", named.secret_access_key.get_secret_value()),
        )
    return replace(
        own,
        endpoint=named.endpoint or None,
        region=named.region or None,
        sse=named.sse,
        sse_kms_key_id=named.sse_kms_key_id or None,
        storage_class=named.storage_class or None,
        credentials=keys,
    )
