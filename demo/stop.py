"""Stop what ``make demo KEEP=1`` left running: ``python -m demo.stop FOLDER``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tierstate.sandbox.detached import down


def main() -> int:
    """Return 0 when everything is stopped and the folder removed."""
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else Path()
    if not (folder / "demo.json").is_file():
        print("usage: python -m demo.stop FOLDER   (the folder that `make demo KEEP=1` printed)", file=sys.stderr)
        return 2
    running = json.loads((folder / "demo.json").read_text())
    for pid in running["pids"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    time.sleep(1)
    down(Path(running["kafka"]))
    shutil.rmtree(folder, ignore_errors=True)
    print(f"stopped, and removed {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
