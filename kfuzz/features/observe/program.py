"""Running a program of a user's as Python would, with its launches followed."""

import atexit
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from kfuzz.core.features import with_home
from kfuzz.store.files import replace_file

FOLDER: Final = "KFUZZ_FOLLOWED_IN"
"""Environment variable: where its processes leave what they saw."""

_BY: Final = "KFUZZ_FOLLOWED_BY"
_GRACE_S: Final = 10.0
"""For a program that is asked to end to leave what it saw."""


def run_program(
    words: list[str],
    folder: Path,
    modules: list[str],
    *,
    interpreted: bool,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a program; a signal is its own to obey.

    Args:
        words: behind `python` on its command line.
        folder: an empty one, for what its processes saw.
        modules: whose `begin` each of its processes calls once it has torch.
        interpreted: whether its Triton kernels are, and no GPU is to be seen.
        seconds: after which it is ended; None for never.
        environment: variables besides its own.

    Returns:
        What it ended with; None where its time was over.
    """
    site = folder / "site"
    site.mkdir()
    shutil.copy(Path(__file__).with_name("site.py"), site / "sitecustomize.py")
    variables = with_home(os.environ) | dict(environment or {})
    variables["PYTHONPATH"] = os.pathsep.join([str(site), variables["PYTHONPATH"]])
    variables |= {FOLDER: str(folder), _BY: ",".join(modules)}
    if interpreted:
        variables |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        program = subprocess.Popen(
            [sys.executable, *words], env=variables,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        try:
            return program.wait(seconds)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGINT)
        try:
            program.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        return None
    finally:
        signal.signal(signal.SIGINT, before)


def ending(code: int) -> str:
    """Return how a program ended, in words."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"ended with {how}"


# What of a program's arguments one process tells another.


@dataclass(frozen=True)
class Shape:
    """A tensor as a call got it.

    Attributes:
        sizes: of its dimensions.
        strides: in elements.
        dtype: "float32", ….
        device: "cpu", "cuda:0", ….
        values: the elements on the CPU; None where there were too many of them.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    values: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return it as a signature has it."""
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]"


class Unknown(str):
    """A value that no file of bindings can hold: what it is, for people."""


# In a process of the program.


def test_of_now() -> str:
    """Return pytest's id of the test that runs, "" outside one."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def at_end(act: Callable[[], object]) -> None:
    """Act when this process, or a fork of it, ends other than by a signal."""
    atexit.register(act)
    ended = os._exit

    def acting(status: int) -> NoReturn:
        act()
        ended(status)

    os._exit = acting


def leave(folder: Path, kind: str, seen: Any) -> None:
    """Leave what this process saw, whole or not at all."""
    with suppress(OSError):  # the command has ended before it
        file = folder / f"{os.getpid()}.{kind}"
        replace_file(file, pickle.dumps(seen), prefix=".new-", sync=False)


def left(folder: Path, kind: str) -> Iterator[Any]:
    """Yield what the processes left, into a folder of kfuzz's own."""
    for file in sorted(folder.glob(f"*.{kind}")):
        yield pickle.loads(file.read_bytes())
