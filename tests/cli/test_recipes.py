"""The recipes of kfuzz/cli/CI.md: their syntax, and that the commands in them exist."""

import os
import re
import subprocess
from pathlib import Path

from kfuzz.cli.streams import ExitCode

PAGE = (Path(__file__).parents[2] / "kfuzz" / "cli" / "CI.md").read_text()
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(m[1], m[2]) for m in FENCE.finditer(PAGE)]


def blocks(language: str, part: str = "") -> list[str]:
    found = [text for name, text in BLOCKS if name == language and part in text]
    assert found, f"CI.md has no {language} with {part!r}"
    return found


def test_a_batch_job_shares_a_corpus_and_ends_as_its_search(tmp_path: Path) -> None:
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f'PATH="{tools}:$PATH"\n')
    for name, text in {"srun": '"$@"', "kfuzz": 'echo "$*" >> calls; exit 1'}.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    [script] = blocks("bash", "#SBATCH")
    environment = {**os.environ, "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    done = subprocess.run(["bash", "-c", script], env=environment, cwd="/")
    assert done.returncode == ExitCode.VIOLATION
    [call] = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith("run ")
    assert f"--corpus file://{tmp_path}/findings --report html=nightly/7.html" in call
    assert (tmp_path / "nightly").is_dir()
