"""A project's own tests under `kfuzz sanitize`, a share in each of several processes.

python -m tests.benchmarks.suites FOLDER [--jobs N] [--seconds S] [PYTEST'S ARGUMENTS]
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

SHARE: Final = "KFUZZ_SUITES_SHARE"
"""Which of how many, the seconds of a test, the end of all, and a file of outcomes."""

ROOT: Final = Path(__file__).parents[2]
_outcomes: dict[str, str] = {}


class Over(BaseException):
    """A test has had its time."""


def _over(*_: object) -> None:
    raise Over


def _share() -> tuple[int, int, int, float, Path]:
    number, jobs, each, end, file = json.loads(os.environ[SHARE])
    return number, jobs, each, end, Path(file)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take a share of the tests, in an order unrelated to their names."""
    number, jobs, *_ = _share()
    items.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
    _outcomes["collected"] = str(len(items))
    items[:] = items[number::jobs]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """End a test after its seconds."""
    *_, each, end, _ = _share()
    signal.signal(signal.SIGALRM, _over)
    signal.alarm(max(1, min(each, int(end - time.time()) + 1)))
    try:
        yield
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what became of a test."""
    if report.when == "call" or report.outcome != "passed":
        over = report.failed and "suites.Over" in str(report.longrepr)
        _outcomes[report.nodeid] = "over" if over else report.outcome
        _share()[-1].write_text(json.dumps(_outcomes))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Start no test after the end."""
    if time.time() > _share()[3]:
        item.session.shouldstop = "its time is over"


def _started(number: int, options: Any, folder: Path) -> subprocess.Popen[bytes]:
    end = time.time() + options.seconds
    file = folder / f"{number}.outcomes"
    share = [number, options.jobs, options.each, end, str(file)]
    plugins = ["-p", __spec__.name if __spec__ else "", "-p", "no:cacheprovider"]
    for name in ("xdist", "randomly", "benchmark"):
        plugins += ["-p", f"no:{name}"]
    said = ["sanitize", "--gpu", options.gpu, "--format", "json", "-m", "pytest", "--"]
    more = ["--continue-on-collection-errors", *plugins, *options.tests]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", "kfuzz", *said, "-q", *more],
        cwd=options.folder,
        env={**os.environ, SHARE: json.dumps(share), "PYTHONPATH": path},
        stdout=(folder / f"{number}.json").open("wb"),
        stderr=subprocess.STDOUT,
    )


def _report(text: str) -> dict[str, Any]:
    """Return what the command printed last, after what the tests did."""
    begin = text.rfind('{\n  "format"')
    if begin < 0:
        return {"launches": 0, "faults": [], "not_interpreted": []}
    report: dict[str, Any] = json.JSONDecoder().raw_decode(text[begin:])[0]
    return report


def main() -> None:
    """Print what became of the tests and of their launches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--each", type=int, default=90, help="seconds of one test")
    parser.add_argument("--gpu", default="h100")
    options, options.tests = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(prefix="kfuzz-suites-"))
    try:
        for job in [_started(n, options, folder) for n in range(options.jobs)]:
            job.wait()
        outcomes, launches, collected = Counter[str](), 0, 0
        left, faults = Counter[str](), Counter[str]()
        for number in range(options.jobs):
            file = folder / f"{number}.outcomes"
            found = json.loads(file.read_text()) if file.exists() else {}
            collected = max(collected, int(found.pop("collected", 0)))
            outcomes.update(found.values())
            made = _report((folder / f"{number}.json").read_text(errors="replace"))
            launches += made["launches"]
            for one in made["not_interpreted"]:
                name = Path(one["kernel"]).name
                left[f"{name}: {one['why'][:160]}"] += one["launches"]
            for fault in made["faults"]:
                faults[f"{Path(fault['kernel']).name}: {fault['message']}"] += 1
    finally:
        shutil.rmtree(folder)
    print(f"{collected} tests: {dict(outcomes)}")
    print(f"{launches} launches, {sum(left.values())} not interpreted")
    for title, counts in (("not interpreted", left), ("fault", faults)):
        for said, count in counts.most_common():
            print(f"{title}, {count} times: {said}")


if __name__ == "__main__":
    main()
