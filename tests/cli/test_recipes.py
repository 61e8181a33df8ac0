"""The recipes of kfuzz/cli/CI.md: their syntax, and that the commands in them exist."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from kfuzz.app import app
from kfuzz.cli.streams import ExitCode

PAGE = (Path(__file__).parents[2] / "kfuzz" / "cli" / "CI.md").read_text()
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(m[1], m[2]) for m in FENCE.finditer(PAGE)]
COMMAND = re.compile(r"(?:^|[ /])(kfuzz (?:[a-z]).*?)(?: &&|;|$)", re.MULTILINE)


def blocks(language: str, part: str = "") -> list[str]:
    found = [text for name, text in BLOCKS if name == language and part in text]
    assert found, f"CI.md has no {language} with {part!r}"
    return found


def commands() -> list[list[str]]:
    """Return every kfuzz command of the recipes, as words."""
    sources = [
        *(run for job in jobs() for step in job["steps"] if (run := step.get("run"))),
        *blocks("crontab"),
        *blocks("bash", "#SBATCH"),
        *blocks("sh", "kfuzz corpus"),
    ]
    lines = [line for text in sources for line in text.splitlines()]
    told = [line for line in lines if not line.lstrip().startswith("#")]
    found = [m[1] for line in told for m in COMMAND.finditer(line)]
    return [shlex.split(text, comments=True)[1:] for text in found]


def jobs() -> Iterator[dict[str, Any]]:
    for text in blocks("yaml"):
        yield from yaml.safe_load(text)["jobs"].values()


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


def test_every_option_in_the_recipes_exists() -> None:
    found = commands()
    assert {words[0] for words in found} == {"run", "corpus"}
    for words in found:
        command: Any = get_command(app)
        while hasattr(command, "commands"):
            assert words[0] in command.commands, words
            command, words = command.commands[words[0]], words[1:]
        valid = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        given = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert given <= valid, words
