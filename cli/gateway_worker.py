"""A worker of ``tierstate gateway --workers N``: ``python -m tierstate.cli.gateway_worker CONTROL LISTENING COUNTS``.

The arguments are descriptors inherited from the follower process (`app/gateway_workers.py`), which alone starts it.
"""

from __future__ import annotations

import pickle
import socket
import sys
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from ..runtime.parent_watch import end_with_parent
from ..runtime.shared_socket import SharedSocket
from ..runtime.socket_pair import hand_over, send_message, taken_over
from ..state.errors import TierstateError
from .context import Context
from .exit_codes import DONE, INTERRUPTED, exit_code
from .serving import keep_files_private, leave, serve, service_logs

if TYPE_CHECKING:
    from ..app.gateway_workers import WorkerStart
    from ..app.services import WorkerParts


def main() -> None:
    """Run the worker and end the process; it never returns."""
    control, listening, counts = (int(each) for each in sys.argv[1:])
    leave(_run(socket.socket(fileno=control), SharedSocket(fileno=listening), counts))


def _run(control: socket.socket, listening: SharedSocket, counts: int) -> int:
    """Serve until the parent or a signal ends it. Return the exit code."""
    message, _ = taken_over(control)
    if not message:
        return DONE  # the parent has ended
    start: WorkerStart = pickle.loads(message)
    end_with_parent(start.parent)
    try:
        _serve(control, listening, counts, start)
    except KeyboardInterrupt:
        return INTERRUPTED
    except TierstateError as error:
        with suppress(OSError):
            control.send(pickle.dumps(error))
        return exit_code(error)
    return DONE


def _serve(control: socket.socket, listening: SharedSocket, counts: int, given: WorkerStart) -> None:
    from ..app.services import open_worker_parts
    from ..follower.asked_view import AskedView
    from ..runtime.allocator import keep_buffers_of_reads
    from ..runtime.service import Service
    from .gateway import opened_gateway

    keep_buffers_of_reads()
    context = Context(as_json=given.as_json, no_color=given.no_color, own_process=True)
    context.settings = given.settings
    keep_files_private(context)
    logger = service_logs(context).bind(worker=given.number)
    view = AskedView(lambda: hand_over(control, "view"), given.tier_partitions)
    with (
        open_worker_parts(given.settings, logger, view) as parts,
        closing(opened_gateway(parts, given.settings, listening)) as server,
    ):
        listening.share(counts, given.number - 1, lambda: server.open.count)

        def answer(stopping: threading.Event) -> None:
            control.send(b"ready")
            while (end := taken_over(control)[1]) is not None:
                _answer_by(end, parts)

        control_service = Service("control", answer, on_stop=lambda: control.shutdown(socket.SHUT_RD))
        serve(context, [control_service, server.process()], logger.warning)
        with suppress(OSError):
            _answer_by(hand_over(control, "over"), parts)


def _answer_by(end: socket.socket, parts: WorkerParts) -> None:
    from ..app.gateway_workers import WorkerAnswer
    from ..app.watching import why_hanging

    with end, suppress(OSError):  # the asking process has given up
        send_message(end, WorkerAnswer(parts.metrics.families(), why_hanging(parts.watchdog)))


if __name__ == "__main__":
    main()
