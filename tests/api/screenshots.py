"""The README's pictures of the console, taken of an invented shop: `python -m tests.api.screenshots [FOLDER]`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.api.browser import browser
from tests.api.shop import Shop, shop
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address

TABLES = [
    {"table": table, "topic": topic, "rows": rows, "files": files, "lag": lag, "lag_seconds": seconds, "state": state}
    | {"last_commit": commit, "reason": reason}
    for table, topic, rows, files, lag, seconds, state, commit, reason in (
        ("kafka.orders", "orders", 71_204, 3, 0, 0.0, "current", "2026-01-01T12:00:07Z", None),
        ("kafka.orders_newest", "orders", 8_117, 16, 0, 0.0, "current", "2026-01-01T12:00:09Z", None),
        ("kafka.payments", "payments", 39_996, 2, 1_204, 41.5, "behind", "2026-01-01T11:59:26Z", None),
        ("kafka.clicks", "clicks", 512, 1, None, None, "stopped", "2025-12-30T08:14:51Z", "the topic was made anew"),
    )
]
IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 1040
PAGES = {
    "overview": ("", "gap (1 partition)", 430),
    "topic": ("#/orders", "this group stands in the remote tier", 860),
    "records": ("#/orders/0/69995?count=12", "this group stands in the remote tier", 740),
    "tables": ("#/:tables", "4 tables", 400),
}
"""The address of each page, a text that is on it once it is drawn, and how much of it is shown."""


@contextmanager
def console(reader: Shop) -> Iterator[str]:
    """Serve the console of a shop; yield its URL."""
    settings = Gateway(listen=Address("127.0.0.1", 0))
    service = FetchService(reader, settings, SystemClock(), groups=reader)
    service.tables = lambda: TABLES
    with closing(GatewayServer(service, settings)) as server:
        process = server.process()
        process.start()
        try:
            yield server.url
        finally:
            process.stop()
            process.join(20)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as profile,
        shop() as reader,
        console(reader) as url,
        browser(Path(profile)) as page,
    ):
        for name, (address, until, height) in PAGES.items():
            page.size(WIDTH, height)
            page.open(f"{url}/{address}", until)
            (folder / f"{name}.png").write_bytes(page.picture())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
