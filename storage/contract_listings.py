"""Checks of `contract.py` on listings: they are current, complete and in order, by prefix and after a key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from .contract_evidence import keys_below, must_equal, must_hold
from .object_store import ObjectStore

NAMES = ("a", "a-b/c", "a.b", "a/z", "ab/c", "ab/d/e", "b")
"""Names whose byte order differs from folder order. ``.x`` is appended: a file ``a`` would exclude ``a/z``."""
MORE_THAN_A_PAGE = 1050


def a_new_object_is_listed_at_once(store: ObjectStore, prefix: str) -> None:
    for number in range(5):
        key = f"{prefix}{number}"
        store.put_if_absent(key, b"x")
        must_hold("a listing has the new object", key in keys_below(store, prefix))


def a_listing_prefix_is_text(store: ObjectStore, prefix: str) -> None:
    keys = _written(store, prefix)
    must_equal("the order of keys", keys_below(store, prefix), keys)
    for text in ("a", "ab", "ab/", "ab/d", "a-", "b.x", "c"):
        expected = [key for key in keys if key.startswith(prefix + text)]
        must_equal("the keys of a prefix", keys_below(store, prefix + text), expected)
    must_equal("sizes", [info.size for info in store.list(prefix)], [len(key) - len(prefix) for key in keys])


def a_listing_goes_on_after_a_key(store: ObjectStore, prefix: str) -> None:
    keys = _written(store, prefix)
    for position, key in enumerate(keys):
        must_equal("the keys after one", keys_below(store, prefix, key), keys[position + 1 :])
    between = f"{prefix}ab/a"
    expected = [key for key in keys if key > between]
    must_equal("the keys after one that is no object", keys_below(store, prefix, between), expected)


def a_listing_is_complete_and_in_order(store: ObjectStore, prefix: str) -> None:
    keys = [f"{prefix}{number:04d}" for number in range(MORE_THAN_A_PAGE)]
    with ThreadPoolExecutor(8) as pool:
        try:
            list(pool.map(lambda key: store.put_if_absent(key, b"x"), keys))
        except BaseException:  # also after an interrupt: do not write the remaining keys first
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    listing = keys_below(store, prefix)
    must_equal("the number of keys", len(listing), len(keys))
    must_hold("the keys are all there, once, in order", listing == keys)
    must_equal("the keys after one", keys_below(store, prefix, keys[-30]), keys[-29:])


def _written(store: ObjectStore, prefix: str) -> list[str]:
    """Write objects whose size in bytes is the length of their name. Return their keys in order."""
    names = sorted(f"{name}.x" for name in NAMES)
    for name in names:
        store.put_if_absent(prefix + name, name.encode())
    return [prefix + name for name in names]
