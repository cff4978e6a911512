"""A process that the kernel ends with its parent, whatever either of them is doing (Linux: prctl(2))."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """From now on this process is killed when the *thread* of process ``parent`` ends that started it; at once, where
    it has ended already. OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
