"""Which branches of a kernel's own file are known to have run."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kfuzz.execution.calls import branches
from kfuzz.execution.calls.branches import Branches, Reached

ROOT = Path(__file__).parents[2]
# Every statement that has branches, one of each kind run and one not.
KERNEL = """\
def decorated(f):
    def inner(x):
        return f(x)
    inner.__wrapped__ = f
    return inner

@decorated
def kernel(x):
    if x > 3:
        y = 1
    elif x == 2:
        y = (
            2
        )
    else:
        y = 3
    if x: y = y
    for i in range(x):
        y += i
    else:
        y += 1
    try:
        if x == 7:
            raise ValueError
    except ValueError:
        y = 9
    else:
        y = 8
    match x:
        case 1:
            y = 1
        case _:
            y = helper(x)
    if False:
        y = 0
    while y < 0:
        y += 1
    return y

def helper(x):
    if x == 77:
        def never():
            return 1
        return never()
    return 0

def unused(x):
    if x:
        return 1
    return 0
"""
# A branch is known by its first line; `if x: y = y` and `if False` have none.
IN_KERNEL = {10, 12, 16, 19, 21, 24, 26, 28, 31, 33, 37}
IN_HELPER = {42}

WATCHING = """
import sys
import kernel
from kfuzz.execution.calls.compiling import Holder
from kfuzz.execution.calls.branches import SHARE, watch

watcher = watch(kernel.kernel)
assert watcher is not None

def seen(x):
    for seed in range(2 * SHARE):  # some are due where not all are
        watcher.ask(seed)
        watcher.occupied(Holder.KERNEL)
        kernel.kernel(x)
        watcher.occupied(Holder.KFUZZ)
    return watcher.news()

for x in (1, 5, 2, 2):
    news = seen(x)
    print(sorted(news.entered), sorted(news.run), news.whole)
watcher.close()
kernel.kernel(7)
print(sys.gettrace())
"""


def python(text: str, folder: Path) -> list[str]:
    """Run a program in a process without tools that watch it; return its lines."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_branches_of_functions_that_ran_are_told_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    whole = sys.version_info >= (3, 12)
    first, large, two, again, trace = python(WATCHING, tmp_path)
    run = [16, 19, 21, 28, 31]
    assert first == f"{sorted(IN_KERNEL)} {run} {whole}"
    assert large == f"{sorted(IN_HELPER)} [10, 33] {whole}"
    assert two == f"[] [12] {whole}"
    assert again == f"[] [] {whole}"
    assert trace == "None"


def test_nothing_is_watched_beside_another_tool(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    lines = python(
        "import sys, kernel\n"
        "from kfuzz.execution.calls.branches import watch\n"
        "sys.setprofile(lambda *a: None)\n"
        "print(watch(kernel.kernel))\n"
        "sys.setprofile(None)\n"
        "sys.settrace(lambda *a: None)\n"
        "print(watch(kernel.kernel))\n",
        tmp_path,
    )
    assert lines == ["None", "None"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no sys.monitoring")
def test_nothing_is_watched_beside_a_tool_that_monitors(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    lines = python(
        "import sys, kernel\n"
        "from kfuzz.execution.calls.branches import watch\n"
        "sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, 'another')\n"
        "print(watch(kernel.kernel))\n",
        tmp_path,
    )
    assert lines == ["None"]


def test_the_code_is_found_behind_decorators_and_in_classes() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: object) -> object:
            return x

    class Callable:
        def __call__(self, x: object) -> object:
            return x

    found = (Module(), Callable(), functools.partial(python, "x"), Callable().__call__)
    assert [branches.source_of(f) for f in found] == [__file__] * 4
    # A library's branches are nobody's concern.
    assert branches.source_of(torch.nn.ReLU()) == ""
    assert branches.source_of(torch.nn.functional.silu) == ""


def test_what_never_ran_is_known_only_if_all_was_watched() -> None:
    reached = Reached()
    reached.take(Branches((4, 9, 12), (9,), whole=True))
    reached.take(Branches((), (12,), whole=True))
    assert reached.missing() == (4,)
    reached.take(Branches((), (), whole=False))
    assert reached.missing() == ()


def test_a_process_that_died_may_have_run_any_branch() -> None:
    reached = Reached()
    reached.take(Branches((4,), (), whole=True))
    reached.take(None)
    assert reached.missing() == ()
    assert reached.entered == {4}
