"""Reward functions: verl's `compute_score`, and asynchronous ones of verifiers.

Facts: verl 0.9.1, `verl.trainer.ppo.reward` and `reward_manager`; verifiers 0.4.0,
`verifiers.v1.reward`, and `Rubric(funcs=[…])` of the versions before.
"""

import atexit
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kfuzz.features.judge.service.judge import Judge, Task
from kfuzz.report.text import rendered

# One judge for a process, for interfaces that have no place to keep one.

_judges: Final[dict[str, Judge]] = {}
_lock: Final = threading.Lock()


def judge_with(**options: Any) -> Judge:
    """Return the judge of this process with these options, begun if it is not there.

    It ends with the process.

    Args:
        options: as `kfuzz.Judge` takes them.

    Raises:
        KfuzzError: as `kfuzz.Judge`.
    """
    key = repr(sorted(options.items()))
    with _lock:
        if key not in _judges:
            _judges[key] = Judge(**options)
            atexit.register(_judges[key].close)
        return _judges[key]


def program(template: Path, **content: Any) -> str:
    """Return a program that a benchmark's texts make of a template."""
    return rendered(template, content, html=False, filters={"repr": repr})


# What a block of Python is called.
_PYTHON: Final = ("", "py", "python", "python3")
# What verl passes besides where a reward model serves.
_OF_VERL: Final = ("reward_router_address", "reward_model_tokenizer")


def code_of(text: str) -> str:
    """Return the program in a model's answer: the last fenced block of Python, or all.

    A block that was not closed, as of an answer that was cut, is no block.
    """
    blocks: list[str] = []
    kind, lines = None, list[str]()
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if kind is None and mark.startswith("```"):
            kind, lines = mark.removeprefix("```").strip().lower(), []
        elif kind is not None and mark == "```":
            blocks += ["".join(lines)] if kind in _PYTHON else []
            kind = None
        else:
            lines.append(line)
    return blocks[-1] if blocks else text


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the score of an answer, as verl's reward managers call for it.

    Args:
        data_source: of no effect.
        solution_str: the model's answer.
        ground_truth: the reference's text.
        extra_info: "entry" and "declaration" of the task, if it has any.
        options: as `kfuzz.Judge` takes them, from `reward_kwargs` of verl's
            configuration. What verl adds for a reward model is of no effect.

    Returns:
        "score", a number: 0.0 where the sample says nothing; "drop", whether it does;
        "verdict" and "seconds".

    Raises:
        UsageError: if the ground truth is no task.
    """
    given = {n: v for n, v in options.items() if n not in _OF_VERL}
    judge, extra = judge_with(**given), extra_info or {}
    task = _task(judge, ground_truth, extra)
    made = judge.judge(code_of(solution_str), task=task)
    return {
        "score": made.reward or 0.0,
        "drop": made.reward is None,
        "verdict": str(made.verdict),
        "seconds": made.seconds,
    }


def reward_function(judge: Judge) -> Callable[..., Awaitable[float]]:
    """Return an asynchronous reward function for verifiers.

        rubric = verifiers.Rubric(funcs=[reward_function(judge)])   # before 0.4

        class KernelTask(verifiers.v1.Task):
            @verifiers.v1.reward
            async def conforms(self, task, trace):  # it finds methods, nothing else
                return await scored(task=task, trace=trace)

    where `scored` is what this returns. A rubric gives `completion`, a text or
    messages, `answer`, as `ground_truth` of `compute_score`, `info` and `state`. Since
    0.4 it is `task`, with an `answer` of the same kind and perhaps `info`, and `trace`.
    A sample that says nothing counts 0.0; what was judged is added to a rubric's state
    as "kfuzz".

    Args:
        judge: judges; the caller's to close.
    """

    async def conforms(
        completion: Any = "",
        answer: str = "",
        info: Mapping[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        task: Any = None,
        trace: Any = None,
    ) -> float:
        text = _text(completion) if trace is None else str(trace.last_reply)
        truth = answer or getattr(task, "answer", "")
        extra = info or getattr(task, "info", None) or {}
        posed = _task(judge, truth, extra) if truth else None
        made = await judge.judge_async(code_of(text), task=posed)
        if state is not None:
            state["kfuzz"] = made.document
        return made.reward or 0.0

    return conforms


def _task(judge: Judge, truth: str, extra: Mapping[str, Any]) -> Task:
    claims = extra.get("declaration") or {}
    # With an end of line it is a text, never a file's name.
    return judge.task(truth + "\n", entry=extra.get("entry") or "", **claims)


def _text(completion: Any) -> str:
    """Return what a model has said last, of a text or of messages."""
    if isinstance(completion, str):
        return completion
    last = completion[-1]
    content = last["content"] if isinstance(last, Mapping) else last.content
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
