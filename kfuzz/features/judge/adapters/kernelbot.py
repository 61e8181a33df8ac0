"""KernelBot and reference-kernels: tasks and the pre-filter.

Facts: github.com/gpu-mode/reference-kernels, problems/*/task.yml and eval.py;
github.com/gpu-mode/kernelbot, src/libkernelbot/task.py and kernelguard.py.

    GUARD="python -m kfuzz.features.judge.adapters.kernelbot problems/softmax_py"
    KERNELGUARD_COMMAND="$GUARD"
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import KfuzzError, UsageError
from kfuzz.features.judge.adapters.rewards import program
from kfuzz.features.judge.service.judge import Judge, Ruling, Score, Task
from kfuzz.store.files import read_source

_SUBMISSION: Final = "@SUBMISSION@"
_REFERENCE: Final = "reference.py"
# A task has some kilobytes; a megabyte takes ten seconds to parse.
_MOST_YAML: Final = 1 << 16
# A task's Python files as modules, and its reference in KernelBench's form: a call's
# arguments are what `generate_input` gives, of another seed each time.
_MODULES: Final = Path(__file__).with_name("kernelbot.py.jinja")


def task_of(folder: Path, *, test: int = 0) -> Task:
    """Return the task of a folder with `task.yml`, for submissions to be judged on.

    Args:
        folder: with the task's files, and those that `task.yml` names beside it.
        test: which of its `tests` says the benchmarked sizes.

    Raises:
        UsageError: if the folder is no task in Python, or has no such test.
        DecodeError: if a file cannot be read.
    """
    told, where = _yaml(folder / "task.yml"), str(folder / "task.yml")
    tests, files = told.get("tests") or [], told.get("files")
    if told.get("lang") != "py" or not isinstance(files, list):
        raise UsageError("no task in Python", where=where)
    if told.get("multi_gpu"):
        raise UsageError("a task for several GPUs is not judged", where=where)
    if not 0 <= test < len(tests):
        raise UsageError(f"there is no test {test}: it has {len(tests)}", where=where)
    config = told.get("config")
    main = config.get("main") if isinstance(config, dict) else None
    texts = {}
    for each in files:
        if not isinstance(each, dict) or not {"name", "source"} <= set(each):
            what = f"a file is a mapping with name and source, not {each!r}"
            raise UsageError(what[:300], where=where)
        name, source = str(each["name"]), str(each["source"])
        if source != _SUBMISSION and name.endswith(".py") and name != main:
            texts[name.removesuffix(".py")] = read_source(folder / source)
    # Others first: the reference imports them.
    last = texts.pop(_REFERENCE.removesuffix(".py"), None)
    if last is None:
        raise UsageError(f"no {_REFERENCE} among its files", where=str(folder))
    every = {**texts, "reference": last}
    reference = program(_MODULES, files=every, args=dict(tests[test]))
    given = program(_MODULES, files=texts, args=None)
    return Task(reference, "custom_kernel", packed=True, given=given)


def judge_submission(judge: Judge, folder: Path, submission: str) -> Score:
    """Return the score of a submission's text: what it defines as `custom_kernel`.

    Raises:
        UsageError: if the folder is no task.
    """
    return judge.judge(submission, task=task_of(folder))


def prefiltered(score: Score) -> dict[str, Any]:
    """Return a score as KernelGuard's command answers KernelBot with `--api-mode`."""
    wrong = score.verdict in (Ruling.VIOLATES, Ruling.TIME_OUT)
    found = [dict(score.finding, pattern=score.finding["contract"])
             ] if score.finding else []  # fmt: skip
    valid = score.verdict in (Ruling.CONFORMS, Ruling.CONFORMS_ON_FINITE)
    return {
        "classification": "valid" if valid else str(score.verdict),
        "should_filter": wrong,
        "filter_reason": score.reason if wrong else "",
        "matched_patterns": found if wrong else [],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the submission on standard input; print one line of JSON."""
    parser = argparse.ArgumentParser(prog="kfuzz.features.judge.adapters.kernelbot")
    parser.add_argument("folder", type=Path, help="with task.yml")
    parser.add_argument("--max-time", type=float, default=15.0, help="seconds")
    parser.add_argument("--device", default="auto")
    for word in ("--profile", "--config"):  # KernelGuard's own, of no effect
        parser.add_argument(word, help=argparse.SUPPRESS)
    parser.add_argument("--api-mode", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        with Judge(device=options.device, max_time=options.max_time,
                   nonfinite="undefined") as judge:  # fmt: skip
            score = judge_submission(judge, options.folder, sys.stdin.read())
    except KfuzzError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(prefiltered(score)) + "\n")
    return 0


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UsageError(
            "PyYAML reads task.yml and is not installed", fix="pip install pyyaml"
        ) from None

    text = read_source(path, _MOST_YAML)
    try:
        told = yaml.safe_load(text)
    # What a tag does not fit raises whatever it pleases.
    except Exception as error:
        raise UsageError(f"no YAML: {error}", where=str(path)) from None
    if not isinstance(told, dict):
        raise UsageError("no task", where=str(path))
    return told


if __name__ == "__main__":
    sys.exit(main())
