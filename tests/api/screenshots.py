"""The README's pictures of the console, taken of a shop that is made up: `python -m tests.api.screenshots [FOLDER]`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.api.browser import Browser, browser
from tests.api.shop import shop
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.setting_types import Address

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 1280
PAGES = {
    "overview": ("", "6 topics", 480),
    "topic": ("#/orders", "What happened", 1100),
    "records": ("#/orders/0/69995?count=12", "12 records", 900),
}
"""Where it is, what is on it once it is drawn, and how much of it is shown."""


@contextmanager
def console() -> Iterator[str]:
    """Where the shop's console is."""
    with shop() as reader:
        settings = Gateway(listen=Address("127.0.0.1", 0))
        service = FetchService(reader, settings, SystemClock(), groups=reader)
        with closing(GatewayServer(service, settings)) as server:
            process = server.process()
            process.start()
            try:
                yield server.url
            finally:
                process.stop()
                process.join(20)


def take(page: Browser, url: str, folder: Path, suffix: str = "") -> None:
    for name, (address, until, height) in PAGES.items():
        page.size(WIDTH, height)
        page.open(f"{url}/{address}", until)
        (folder / f"{name}{suffix}.png").write_bytes(page.picture())


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, console() as url, browser(Path(profile)) as page:
        take(page, url, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
