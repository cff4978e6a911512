"""``make demo``: a year of events, three days on the broker, the rest in the object store, read as one log."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from rich.markup import escape

from tierstate.sandbox.detached import down
from tierstate.state.errors import TierstateError

from .house import DemoFailed, House
from .report import Report, show, write_report
from .screen import Screen
from .story import Story

OUT = Path(__file__).resolve().parents[1] / "build" / "demo"


def main() -> int:
    """0 all equal, 1 a difference or a failure, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running, and print the addresses")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the report")
    parser.add_argument("--records", type=int, help="only the first so many flights (a smaller demo)")
    parser.add_argument("--stop", type=Path, metavar="FOLDER", help="stop what --keep left running there")
    arguments = parser.parse_args()
    if arguments.stop is not None:
        return stop(arguments.stop)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell that starts us by & has SIGINT ignored
        signal.signal(number, _interrupted)
    screen, report = Screen(), Report()
    house = House(Path(tempfile.mkdtemp(prefix="tierstate-demo-")), arguments.keep)
    kept = False
    try:
        Story(house, screen, report, arguments.out, arguments.records).tell()
        report.seconds = screen.seconds
        page = write_report(report, arguments.out)
        screen.say()
        show(report, screen.console)
        _farewell(screen, house, page, arguments.keep)
        kept = arguments.keep
        return 0
    except (DemoFailed, TierstateError) as failure:
        screen.say(f"[red]✘[/red] {escape(str(failure))}")
        return 1
    except KeyboardInterrupt:
        screen.say("interrupted; stopping everything that was started")
        return 130
    finally:
        if not kept:
            house.close()


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _farewell(screen: Screen, house: House, page: Path, keep: bool) -> None:
    screen.say(f"Report      {page}")
    screen.say(f"Figures     {page.with_name('report.json')}")
    if not keep:
        screen.say("Go on with  make demo KEEP=1        leaves the broker, agent, gateway and proxy running")
        screen.say("            .venv/bin/tierstate --help")
        return
    settings = house.settings
    screen.say(f"Broker      {house.bootstrap}")
    screen.say(f"Gateway     {house.gateway}")
    screen.say(f"Proxy       bootstrap.servers={house.proxy}   for any Kafka client: both tiers")
    screen.say(f"Settings    {settings}")
    screen.say(f"Go on with  .venv/bin/tierstate describe flights --config {settings}")
    screen.say(f"            .venv/bin/tierstate consume flights:0 -n 3 --config {settings}")
    screen.say(f"            curl '{house.gateway}/v1/topics/flights/partitions/0/records?offset=0&max_records=2'")
    screen.say(f"Stop with   .venv/bin/python -m demo --stop {house.folder}")
    (house.folder / "demo.json").write_text(json.dumps({"pids": house.pids(), "kafka": str(house.folder / "kafka")}))


def stop(folder: Path) -> int:
    """Return 0 when everything is stopped and the folder removed."""
    if not (folder / "demo.json").is_file():
        print("this is no folder that `make demo KEEP=1` printed", file=sys.stderr)
        return 2
    running = json.loads((folder / "demo.json").read_text())
    for pid in running["pids"]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    time.sleep(1)
    down(Path(running["kafka"]))
    shutil.rmtree(folder, ignore_errors=True)
    print(f"stopped, and removed {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
