"""Large buffers go back to the system when they are freed, whatever was freed before."""

from __future__ import annotations

import subprocess
import sys

from tierstate.runtime.allocator import return_large_buffers

BUFFERS = """
import ctypes, threading
from tierstate.runtime.allocator import return_large_buffers
if told:
    print(return_large_buffers())

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

bytearray(16 << 20)  # freed at once: from here on, what is smaller comes from heaps
before = resident()

def work():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    large = libc.malloc(8 << 20)
    ctypes.memset(large, 1, 8 << 20)
    pins.append(libc.malloc(4096))  # what is small, and stays, above it
    libc.free(large)

pins = []
for _ in range(4):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(resident() - before)
"""


def kept_kib(told: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", f"told = {told}\n{BUFFERS}"], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout.split()[-1])


def test_a_process_with_the_setting_keeps_no_large_buffer_that_it_freed() -> None:
    if return_large_buffers():
        assert kept_kib(told=True) < 2048 < 8192 <= kept_kib(told=False) + 64


READS = """
import ctypes, resource
from tierstate.runtime.allocator import keep_buffers_of_reads
if told:
    print(keep_buffers_of_reads())
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def read():
    buffers = [libc.malloc(1 << 20) for _ in range(5)]
    for each in buffers:
        ctypes.memset(each, 1, 1 << 20)
    for each in buffers:
        libc.free(each)

read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    read()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(told: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", f"told = {told}\n{READS}"], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout.split()[-1])


def test_a_process_that_serves_reads_asks_for_their_pages_once() -> None:
    if keep_buffers_of_reads_here():
        assert new_pages(told=True) < 500 < 5_000 < new_pages(told=False)


def keep_buffers_of_reads_here() -> bool:
    done = subprocess.run(
        [sys.executable, "-c", "from tierstate.runtime.allocator import *; print(keep_buffers_of_reads())"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip() == "True"
