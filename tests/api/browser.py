"""A real Chromium, driven over its DevTools pipe (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_S = 60.0


class Browser:
    """One page of the browser."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = os.fdopen(write, "wb", buffering=0), os.fdopen(read, "rb")
        self._ids, self._session = 0, ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, url: str, until: str) -> str:
        """Open a page, and return its visible text once ``until`` is in it."""
        self._ask("Page.navigate", url="about:blank")  # else another fragment would be no new page
        self._ask("Page.navigate", url=url)
        return self.text(until)

    def text(self, until: str) -> str:
        """Wait until the visible text contains ``until``. Return it with single blanks; fail after a time-out."""
        over = time.monotonic() + PATIENCE_S
        while True:
            text = " ".join(str(self.run("document.body?.innerText ?? ''")).split())
            if until in text:
                return text
            assert time.monotonic() < over, f"{until!r} is not in: {text}"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; of a promise, the value to which it resolves."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press Tab, Enter or an arrow, as from a keyboard."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}[key]
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self._ask("Input.insertText", text=text)

    def downloads_to(self, folder: Path) -> None:
        """Save all downloads in this folder."""
        self._ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def width(self, pixels: int) -> None:
        """Set the width of the window in pixels."""
        self.size(pixels, 800)

    def size(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **metrics)

    def scheme(self, name: str) -> None:
        """Emulate the colour scheme ``light`` or ``dark``."""
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self) -> bytes:
        """Return a PNG of the window's content, without scroll bars."""
        self._ask("Emulation.setScrollbarsHidden", hidden=True)
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        self._write.close()
        self._read.close()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._ids += 1
        message = {"id": self._ids, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            data = b""
            while not data.endswith(b"\0"):
                piece = self._read.read(1)
                assert piece, "the browser has ended"
                data += piece
            answer = json.loads(data[:-1])
            if answer.get("id") == self._ids:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Run a browser until the block ends. ``folder``: for its profile."""
    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    shell = ["bash", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}', CHROMIUM, *flags]
    with subprocess.Popen(shell, pass_fds=(to_read, from_write), stderr=subprocess.DEVNULL) as process:
        os.close(to_read)
        os.close(from_write)
        try:
            page = Browser(to_write, from_read)
            try:
                yield page
            finally:
                page.close()
        finally:
            process.terminate()
            process.wait(60)
