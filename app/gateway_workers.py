"""The processes of a gateway that answer: started, watched, restarted, and ended with the one that follows.

    one process   follows into the view, holds the listening socket and the management port
         │        <- "view" and a socket for questions to the view (`follower/asked_view.py`); "ready"; an error
         │        -> "look" and a socket for the answer: its metrics, its hanging threads
         │        <- "over" and a socket on which it sends its last metrics
    workers       accept at the socket that they inherited, read, answer (`cli/gateway_worker.py`)

Each is a new program, never a fork of a process that has threads. The kernel ends it with the thread that started it
(`runtime/parent_watch.py`): no worker outlives the process that follows, also where that process is killed.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import Metric
from structlog.typing import FilteringBoundLogger

from ..follower.asked_view import ViewAnswers
from ..runtime.added_metrics import added, lasting
from ..runtime.clock import Clock
from ..runtime.service import STOP_SECONDS, Service
from ..runtime.settings import Settings
from ..runtime.socket_pair import control_pair, hand_over, receive_message, taken_over
from ..runtime.watchdog import alive, loop
from ..state.errors import InvalidSettings, TierstateError, Unavailable

LOOK_S = 10.0
"""How often each worker is looked at."""
HURRIED_S = 0.1
"""The same, while a worker is to be started or killed."""
ANSWER_S = 2.0
SILENT_S = 60.0
"""A worker that answers no look for so long is ended, and started again."""
STEADY_S = 60.0
"""A worker that ends sooner is started again after a longer and longer wait."""
FIRST_AGAIN_S, LAST_AGAIN_S = 0.5, 30.0
STOPS_S = STOP_SECONDS - 1.0
"""How long answers in progress may take when all workers end."""
ALONE_STOPS_S = STOP_SECONDS + 4.0
"""How long a worker may take that ends by itself, as a process of its own, while the others go on."""
LEAST_MEMORY = 16 * 2**20


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """The first message to a worker. ``number`` counts from 1; ``settings`` are its own (`divided`)."""

    number: int
    parent: int
    settings: Settings
    tier_partitions: int
    as_json: bool
    no_color: bool


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The answer of a worker to a look. ``hanging``: why it must be started again."""

    families: Sequence[Metric]
    hanging: Sequence[str]


def divided(settings: Settings, number: int) -> Settings:
    """Return the settings of one worker: its share of what all of them may use together, its own folder for chunks.

    Raises InvalidSettings where the share is less than one process needs.
    """
    gateway, cache = settings.gateway, settings.cache
    count = gateway.workers
    if gateway.memory // count < LEAST_MEMORY:
        raise InvalidSettings([f"gateway.memory: each of {count} workers needs 16 MiB of it, and has less"])

    def part(whole: int) -> int:
        return -(-whole // count)

    return settings.model_copy(
        update={
            "state_dir": settings.state_dir / "workers" / str(number),
            "gateway": gateway.model_copy(
                update={
                    "memory": gateway.memory // count,
                    "connections": part(gateway.connections),
                    "connections_per_address": part(gateway.connections_per_address),
                    "local_reads": part(gateway.local_reads),
                    "remote_reads": part(gateway.remote_reads),
                    "quota": part(gateway.quota),
                }
            ),
            "cache": cache.model_copy(update={"memory": cache.memory // count, "disk": cache.disk // count}),
        }
    )


class GatewayWorker:
    """One process, while it lives. ``given``: its `WorkerStart`."""

    def __init__(self, command: Sequence[str], inherited: Sequence[int], given: WorkerStart) -> None:
        """Start the process. ``inherited``: descriptors, the listening socket first. Raises OSError."""
        self.control, theirs = control_pair()
        self.ready, self.failure = False, None
        self.families: Sequence[Metric] = ()
        """As it last sent them."""
        with theirs:
            descriptors = theirs.fileno(), *inherited
            self.process = subprocess.Popen(
                [*command, *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                process_group=0,  # only the parent handles Ctrl-C: it lets answers in progress end first
            )
        with suppress(OSError):  # it has ended already: its control socket shows that
            self.control.send(pickle.dumps(given, pickle.HIGHEST_PROTOCOL))
        self.control.setblocking(False)

    failure: TierstateError | None
    """The error that it sent because it cannot go on."""

    def look(self) -> WorkerAnswer | None:
        """Return its answer to a look; None: it does not answer."""
        try:
            with hand_over(self.control, "look") as end:
                end.settimeout(ANSWER_S)
                answer = receive_message(end)
        except (OSError, EOFError):
            return None
        assert isinstance(answer, WorkerAnswer)
        self.families = answer.families
        return answer

    def hear_last(self, end: socket.socket) -> None:
        """Receive the metrics that it sends when it ends."""
        with end, suppress(OSError, EOFError):
            end.settimeout(ANSWER_S)
            answer = receive_message(end)
            assert isinstance(answer, WorkerAnswer)
            self.families = answer.families

    def over(self) -> int:
        """Return its exit code, once its control socket is closed: the process has ended or is about to end."""
        self.control.close()
        try:
            return self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@dataclass(slots=True)
class _Place:
    """One of the N workers. ``again``: when to start it (monotonic); ``kill``: when to stop waiting and kill it."""

    number: int
    start: Callable[[], GatewayWorker]
    worker: GatewayWorker | None = None
    began: float = 0.0
    heard: float = 0.0
    again: float = 0.0
    kill: float = float("inf")
    failures: int = 0
    why: str = "it was not started yet"


class GatewayWorkers:
    """``starts``: each starts one worker. ``on_ready`` is called once, when all of them answer, in our thread."""

    def __init__(
        self,
        starts: Sequence[Callable[[], GatewayWorker]],
        answers: ViewAnswers,
        clock: Clock,
        logger: FilteringBoundLogger,
        on_ready: Callable[[], None],
        look_s: float = LOOK_S,
    ) -> None:
        self._answers, self._clock, self._logger, self._look_s = answers, clock, logger, look_s
        self._places = [_Place(number, start) for number, start in enumerate(starts, 1)]
        self._on_ready, self._began, self._ending = on_ready, False, False
        self._past: list[Metric] = []
        self._renewing: list[tuple[_Place, GatewayWorker]] = []
        self._renew = False
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()

    def service(self) -> Service:
        """Return a service to start last and stop first. It fails with the error of a worker that does not start."""
        return Service("workers", self._run, on_stop=self._wake)

    def renew(self) -> None:
        """End each worker and start it again, one after the other, while the others answer. Callable in any thread."""
        self._renew = True
        self._wake()

    def families(self) -> list[Sequence[Metric]]:
        """Return the metrics of each worker, and those of ended workers added up."""
        for place in self._places:
            if (worker := place.worker) is not None and worker.ready:
                worker.look()
        with self._lock:
            living = [place.worker.families for place in self._places if place.worker is not None]
            return [self._past, *living]

    def not_ready(self) -> list[str]:
        """Return why the gateway is not ready: the reasons of every worker that is not."""
        return [f"worker {place.number}: {why}" for place in self._places for why in _why(place)]

    # --- the thread --------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(OSError):  # it is full of wake-ups already
            os.eventfd_write(self._wakes, 1)

    def _run(self, stopping: threading.Event) -> None:
        until = float("inf")
        with loop("workers"), self._selector:
            self._selector.register(self._wakes, selectors.EVENT_READ, lambda: os.eventfd_read(self._wakes))
            try:
                while self._clock.monotonic() < until and (self._living() or not self._ending):
                    alive()
                    if not self._ending and stopping.is_set():
                        self._ending, until = True, self._clock.monotonic() + STOPS_S
                        self._signal_all(signal.SIGTERM)
                    elif not self._ending:
                        self._look_after()
                    for key, _ in self._selector.select(HURRIED_S if self._hurried() else self._look_s):
                        key.data()
            finally:  # also where this thread fails
                self._ending = True
                self._signal_all(signal.SIGKILL)
                for place in self._living():
                    self._gone(place)

    def _living(self) -> list[_Place]:
        return [place for place in self._places if place.worker is not None]

    def _hurried(self) -> bool:
        """Return whether something is due before the next look."""
        return self._ending or any(place.worker is None or place.kill < float("inf") for place in self._places)

    def _signal_all(self, number: int) -> None:
        for place in self._living():
            assert place.worker is not None
            place.worker.process.send_signal(number)

    def _look_after(self) -> None:
        now = self._clock.monotonic()
        for place in self._places:
            if place.worker is None and now >= place.again:
                self._begin(place, now)
            elif place.worker is not None and now >= place.kill:
                place.worker.process.kill()
        if now - self._looked_at >= self._look_s:
            self._looked_at = now
            for place in self._living():
                self._look_at(place, now)
        self._renew_next(now)

    def _begin(self, place: _Place, now: float) -> None:
        try:
            worker = place.start()
        except OSError as error:  # no memory, or too many processes
            if not self._began:
                raise Unavailable("a worker of the gateway cannot be started", reason=error) from error
            place.failures += 1
            self._wait(place, now, f"it cannot be started: {error}")
            self._logger.warning("worker cannot be started", worker=place.number, reason=str(error))
            return
        place.began = place.heard = now
        place.kill, place.why = float("inf"), "it is being started"
        with self._lock:
            place.worker = worker
        self._selector.register(worker.control, selectors.EVENT_READ, lambda: self._hear(place, worker))
        self._logger.info("worker started", worker=place.number, pid=worker.process.pid)

    def _look_at(self, place: _Place, now: float) -> None:
        worker = place.worker
        assert worker is not None
        answer = worker.look() if worker.ready else WorkerAnswer(worker.families, ())
        if answer is not None:
            place.heard = now
        hanging = [f"no answer for {now - place.heard:.0f} s"] if answer is None else answer.hanging
        if answer is None and now - place.heard < SILENT_S:
            return
        if hanging and place.kill == float("inf"):
            self._logger.warning("worker hangs and is ended", worker=place.number, reason="; ".join(hanging))
            worker.process.send_signal(signal.SIGABRT)  # it writes where each of its threads was
            place.kill = now + ANSWER_S

    def _renew_next(self, now: float) -> None:
        if self._renew:
            self._renew = False
            self._renewing = [(place, place.worker) for place in self._living() if place.worker is not None]
        while self._renewing:
            place, old = self._renewing[0]
            if place.worker is old:
                if place.kill == float("inf"):
                    old.process.terminate()
                    place.kill = now + ALONE_STOPS_S
                return
            if place.worker is None or not place.worker.ready:
                return
            self._renewing.pop(0)

    # --- messages of workers -----------------------------------------------------------------------------------

    def _hear(self, place: _Place, worker: GatewayWorker) -> None:
        message, end = taken_over(worker.control)
        if end is not None and message == b"view":
            threading.Thread(target=self._answers.answer, args=(end,), name="view answers", daemon=True).start()
        elif end is not None:
            worker.hear_last(end)
        elif message == b"ready":
            worker.ready = True
            if not self._began and all(each.worker is not None and each.worker.ready for each in self._places):
                self._began = True
                self._on_ready()
        elif message:
            failure = pickle.loads(message)
            assert isinstance(failure, TierstateError)
            worker.failure = failure
        else:
            self._gone(place)

    def _gone(self, place: _Place) -> None:
        worker = place.worker
        assert worker is not None
        self._selector.unregister(worker.control)
        code, now = worker.over(), self._clock.monotonic()
        with self._lock:
            place.worker = None
            self._past = added([self._past, lasting(worker.families)])
        expected = self._ending or place.kill < float("inf") or code == 0
        place.failures = 0 if expected or now - place.began >= STEADY_S else place.failures + 1
        how = str(worker.failure) if worker.failure is not None else f"exit code {code}"
        wait = self._wait(place, now, f"it ended: {how}")
        tell = self._logger.info if expected else self._logger.warning
        tell("worker ended", worker=place.number, pid=worker.process.pid, reason=how, again_s=wait)
        if not self._began and not expected:
            raise worker.failure or Unavailable("a worker of the gateway ended before it was ready", exit_code=code)

    @staticmethod
    def _wait(place: _Place, now: float, why: str) -> float:
        """Return the seconds until it is started again: the more often it failed in a row, the longer."""
        wait = min(FIRST_AGAIN_S * 2.0 ** (place.failures - 1), LAST_AGAIN_S) if place.failures else 0.0
        place.again, place.why = now + wait, why
        return wait


def _why(place: _Place) -> list[str]:
    worker = place.worker
    if worker is None or not worker.ready:
        return [place.why]
    answer = worker.look()
    return ["it does not answer"] if answer is None else list(answer.hanging)
