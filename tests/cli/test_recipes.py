"""The recipes of kfuzz/cli/CI.md: their syntax, and that the commands in them exist."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from kfuzz import pytest_plugin
from kfuzz.app import app, main
from kfuzz.cli.exit_codes import ExitCode
from tests.helpers.command_line import Engine

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


def test_workflows_are_what_github_reads() -> None:
    triggers = set()
    for text in blocks("yaml"):
        made = yaml.safe_load(text)
        on = made[True]  # YAML 1.1 reads `on` as a truth value; GitHub does not
        triggers |= {on} if isinstance(on, str) else set(on)
        assert made["permissions"] == {"contents": "read"}
    assert triggers == {"pull_request", "schedule", "workflow_dispatch"}
    for job in jobs():
        assert job["runs-on"]
        assert job["timeout-minutes"] >= 30
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert set(step) <= {"uses", "run", "with", "if"}
        for step in job["steps"]:  # what needs a file that may not be there yet
            needs = re.match(
                r"pytest --kfuzz-corpus|cat (?P<file>\S+) >>", step.get("run", "")
            )
            if needs:
                file = needs["file"] or "corpus/*/*/finding.json"
                assert f"hashFiles('{file}') != ''" in step["if"]
    assert any("upload-artifact" in str(job) for job in jobs())
    assert any("GITHUB_STEP_SUMMARY" in str(job) for job in jobs())


def test_the_crontab_is_one() -> None:
    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    [text] = blocks("crontab")
    lines = [s for s in text.splitlines() if s and not s.startswith("#")]
    assert lines
    for line in lines:
        *times, command = line.split(maxsplit=5)
        for time, (low, high) in zip(times, limits, strict=True):
            assert time == "*" or low <= int(time) <= high, line
        assert "%" not in command  # cron makes a newline of it


def test_the_batch_script_is_bash_with_its_options_on_top(tmp_path: Path) -> None:
    [text] = blocks("bash", "#SBATCH")
    script = tmp_path / "kfuzz.sbatch"
    script.write_text(text)
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = text.splitlines()
    assert first == "#!/bin/bash"
    options = [line for line in lines if line.startswith("#SBATCH ")]
    assert lines[: len(options)] == options  # sbatch stops at the first command
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in options)


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


@pytest.mark.parametrize("words", [w for w in commands() if w[0] == "run"])
def test_a_search_in_the_recipes_can_be_obeyed(
    words: list[str], project: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFUZZ_CACHE", str(project / "cache"))
    for folder in ("report", "nightly"):
        (project / folder).mkdir()
    (project / "pyproject.toml").write_text('[tool.kfuzz]\ntargets = ["a.py"]\n')
    assert main([w.replace("$PWD", str(project)) for w in words]) == ExitCode.OK
    [config] = engine.runs
    assert config.budget.max_time is not None


def test_the_options_of_pytest_are_the_plugins(pytestconfig: pytest.Config) -> None:
    parser = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    valid = {
        name for group in parser._groups for o in group.options for name in o.names()
    }
    runs = [s["run"] for job in jobs() for s in job["steps"] if "run" in s]
    [words] = [shlex.split(run) for run in runs if run.startswith("pytest")]
    assert {w for w in words if w.startswith("--")} <= valid
    assert set(re.findall(r"--kfuzz-[a-z-]+", PAGE)) <= valid
