"""The process that watches a command: what it passes on, and what it says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORK = """
import os, signal, sys, time
from kfuzz.cli.guard import watched
def work():
    {body}
sys.exit(watched(work))
"""


def begun(body: str, **how: object) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", WORK.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        **how,  # type: ignore[call-overload]
    )
    assert isinstance(process, subprocess.Popen)
    return process


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_exit_code_is_the_work_s_also_where_ends_are_ignored() -> None:
    def ignoring() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    process = begun("print('done'); return 5", preexec_fn=ignoring)
    assert process.communicate(timeout=60) == ("done\n", "")
    assert process.returncode == 5


def test_what_ends_it_is_said() -> None:
    process = begun("os.kill(os.getpid(), signal.SIGSEGV)")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "kfuzz: error: its own process was ended by SIGSEGV" in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_comes_once(number: signal.Signals) -> None:
    body = (
        "got = []; "
        f"signal.signal({int(number)}, lambda *_: got.append(print('came'))); "
        "print(os.getpid(), flush=True); "
        "[time.sleep(0.01) for _ in iter(lambda: bool(got), True)]; "
        "time.sleep(0.3); sys.stdout.flush(); return 7"
    )
    process = begun(body)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("came\n", 7)


def test_both_stop_and_go_on_together() -> None:
    process = begun("print(os.getpid(), flush=True); time.sleep(3); return 7")
    assert process.stdout is not None
    work = int(process.stdout.readline())
    process.send_signal(signal.SIGTSTP)
    end = time.monotonic() + 30
    while {state_of(process.pid), state_of(work)} != {"T"}:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == 7


def test_the_work_ends_with_it() -> None:
    process = begun("print(os.getpid(), flush=True); time.sleep(3600)")
    assert process.stdout is not None
    work = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{work}") and time.monotonic() < end:
        if state_of(work) == "Z":
            break
        time.sleep(0.01)
    else:
        assert not os.path.exists(f"/proc/{work}")
