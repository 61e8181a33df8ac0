"""What one process compiles ahead, another one finds in the cache; nothing is run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.compiled_apart import SHAPES

ROOT = Path(__file__).parents[2]


def apart(mode: str, cache: Path) -> Any:
    """Return what a process printed that compiles for a GPU that is not there."""
    env = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.compiled_apart", mode],
        cwd=ROOT, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_judging_process_compiles_nothing_any_more(tmp_path: Path) -> None:
    ahead = apart("ahead", tmp_path)
    assert ahead == {"compiled": len(SHAPES), "launched": 0}
    judged = apart("judged", tmp_path)
    assert judged["compiled"] == 0
    assert judged["launched"] >= len(SHAPES)
