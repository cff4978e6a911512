"""Let the kernel end this process with its parent, whatever either of them is doing (Linux: prctl(2))."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the *thread* of process ``parent`` that started it ends; at once if that
    thread has ended already. Raises OSError if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
