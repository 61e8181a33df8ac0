"""A user's project in a folder of its own, and kfuzz run on it as users run it."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Importing torch on a busy machine takes a while; no test measures time by this.
PATIENCE = 180.0

HEADER = """\
import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops

"""
RIGHT = """
@kernel(ops.relu)
def right(x):
    return torch.relu(x)
"""
# Its last element is 0 unless the size is a power of two or 0.
WRONG = """
@kernel(ops.relu)
def wrong(x):
    y = torch.relu(x).contiguous()
    n = y.numel()
    last = y.view(-1)[-1:]
    if n & (n - 1):
        last[last.isfinite()] = 0
    return y
"""
MENDED = """
@kernel(ops.relu)
def wrong(x):
    return torch.relu(x)
"""


@dataclass
class Project:
    """A folder with a pyproject.toml.

    Attributes:
        folder: its path.
        environment: added to that of every process.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "pyproject.toml").touch()
        # Inherited by every process below: how orphans are told from others.
        self.mark = f"KFUZZ_TEST_MARK={uuid.uuid4()}"

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(
        self, words: Sequence[str], *, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a Python process in the project."""
        env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        key, _, value = self.mark.partition("=")
        env |= {"PYTHONPATH": str(ROOT), "COLUMNS": "200", key: value}
        # What one project's runs build is no other's, and not the user's.
        env["KFUZZ_CACHE"] = str(self.folder.with_name(f"{self.folder.name}-cache"))
        env["KFUZZ_LOCATE"] = "no"  # takes up to 20 s a finding; asked for where tested
        env |= self.environment | (environment or {})
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def python(
        self, *words: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(words, environment=environment)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def kfuzz(
        self, *words: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end."""
        return self.python("-m", "kfuzz", *words, environment=environment)

    def run(
        self, *words: str, cases: int = 60, environment: dict[str, str] | None = None
    ) -> "Run":
        """Run a search with a fixed seed on the CPU; return its document too."""
        given = ["--max-cases", str(cases), "--seed", "1", "--format", "json"]
        if "--device" not in words:
            given += ["--device", "cpu"]
        done = self.kfuzz("run", *words, *given, environment=environment)
        return Run(done.returncode, strict(done.stdout), done.stderr)

    def processes(self) -> list[int]:
        """Return the processes that this project's commands left running."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue  # it has just ended, or is another user's
        return found

    def wait_until_alone(self) -> list[int]:
        """Return what still runs once processes have had time to end."""
        end = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def findings(self) -> list[dict[str, Any]]:
        """Return every finding.json of the corpus, as it is."""
        paths = sorted(self.corpus.glob("*/*/finding.json"))
        return [json.loads(path.read_text()) for path in paths]


@dataclass(frozen=True)
class Run:
    """What a search with `--format json` left.

    Attributes:
        code: exit code.
        document: of standard output; empty if there was none.
        err: standard error.
    """

    code: int
    document: dict[str, Any]
    err: str

    def kernel(self, name: str) -> dict[str, Any]:
        """Return the part of the document about one kernel."""
        kernels: list[dict[str, Any]] = self.document["kernels"]
        end = (f"::{name}", f":{name}")
        return next(k for k in kernels if k["kernel"].endswith(end))

    def findings(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.kernel(name)["findings"]
        return found


def strict(text: str) -> dict[str, Any]:
    """Parse exactly one JSON document without NaN and infinities."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    document: dict[str, Any] = json.loads(text, parse_constant=refuse) if text else {}
    return document


def error(done: subprocess.CompletedProcess[str] | Run) -> str:
    """Return the one paragraph of standard error that is no progress line."""
    text = done.err if isinstance(done, Run) else done.stderr
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if line.startswith("kfuzz: error: ")]
    assert len(lines) == 1, text
    return lines[0]
