"""Serve functions for test_processes.py, imported by name in zygote and children."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

IMPORTED_IN = os.getpid()


def serve() -> Any:
    """Return a handler that does to itself what the request says."""
    return handle


def serve_nothing() -> Any:
    """Fail as a user's file with a fault at its top does."""
    raise ImportError("no module named 'warp_core'")


def handle(message: dict[str, Any]) -> dict[str, Any]:
    """Obey `message["do"]`."""
    return globals()[f"do_{message['do']}"](message)


def do_echo(message):
    return message


def do_hang(message):
    time.sleep(3600)


def do_pause(message):
    time.sleep(message["seconds"])
    return {"pid": os.getpid()}


def do_spin_holding_signals(message):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def do_segfault(message):
    sys.stdout.write("about to read address 0\n")
    ctypes.string_at(0)


def do_abort(message):
    os.abort()


def do_exit(message):
    os._exit(message["code"])


def do_sys_exit(message):
    sys.exit("a kernel that ends the program")


def do_exhaust(message):
    raise MemoryError("out of registers")


def do_raise(message):
    raise ValueError("block size must be a power of two")


def do_raise_unprintable(message):
    class Bad(Exception):
        def __str__(self):
            raise RuntimeError

    raise Bad


def do_reply_object(message):
    return {"it": object()}


def do_reply_nothing(message):
    return None


def do_print(message):
    line = b"x" * 1023 + b"\n"
    for _ in range(message["mib"]):
        sys.stdout.buffer.write(line * 1024)
    sys.stdout.write("the last line\n")
    return {}


def do_print_from_c(message):
    ctypes.CDLL(None).puts(b"printed by C")
    if message["crash"]:
        os.abort()
    return {}


def do_die_later(message):
    if os.fork() == 0:
        os._exit(0)
    signal.setitimer(signal.ITIMER_REAL, message["seconds"])
    return {}


def do_write_on_the_wire(message):
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(fd, b"\xff" * 64)
    return {}


def do_close_everything(message):
    os.closerange(3, 256)
    time.sleep(3600)


def do_leave_helpers(message):
    """Start one helper in this group and one that fled it, then perhaps crash."""
    nap = [sys.executable, "-c", "import time; time.sleep(3600)"]
    stays = subprocess.Popen(nap)
    flees = subprocess.Popen(nap, start_new_session=True)
    pids = {"pids": [stays.pid, flees.pid]}
    if message.get("note"):
        with open(message["note"], "w") as note:
            note.write(f"{stays.pid} {flees.pid}")
    if message.get("crash"):
        os.abort()
    return pids


def do_kill_parent(message):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def do_look(message):
    """Tell about this process."""
    threads = os.listdir("/proc/self/task")
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "imported_in": IMPORTED_IN,
        "environment": dict(os.environ),
        "modules": sorted(sys.modules),
        "path": sys.path,
        "threads": len(threads),
        "fds": len(os.listdir("/proc/self/fd")),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    }


def prepare(message: dict[str, Any]) -> dict[str, Any]:
    """Do what a template is asked to do before children are forked from it."""
    match message:
        case {"raises": text}:
            raise ValueError(text)
        case {"starts": "a thread"}:
            threading.Thread(target=time.sleep, args=(600,), name="spinner").start()
        case {"exits": code}:
            os._exit(code)
    PREPARED.update(message)
    return {"pid": os.getpid()}


PREPARED: dict[str, Any] = {}


def do_prepared(message):
    return {**PREPARED, "parent": os.getppid()}
