"""The adapters behind the packages themselves, each where it is installed.

None is a requirement of kfuzz; the page of the adapters says which versions it was run
with, and how they are put in the path.
"""

import importlib
import inspect
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import torch

import kfuzz
from kfuzz.judge.adapters import (
    backendbench,
    flashinfer,
    helpers,
    hub,
    kernelbench,
    kernelbot,
)
from kfuzz.judge.adapters.shared import judge_with
from tests.judge.judging import ROOT, SERVED

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages


@pytest.fixture(scope="module")
def judge() -> kfuzz.Judge:
    """The judge of this process with these options: one for all adapters here."""
    return judge_with(**SERVED)


# FlashInfer-Bench and SOL-ExecBench -------------------------------------------------

REFERENCE = """
import torch

def run(x, weight, eps):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return {result}
"""
MAIN = """
from {helper} import norm

def run(x, weight, eps{into}):
    made = norm(x, eps) * weight{factor}
    {end}
"""
NORMS = """
def norm(x, eps):
    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt()
"""


def definition_of(result: str, **axes: Any) -> dict[str, Any]:
    return {
        "name": "rmsnorm_h24", "op_type": "rmsnorm", "description": "RMSNorm.",
        "axes": {
            "batch": {"type": "var"}, "hidden": {"type": "const", "value": 24}, **axes,
        },
        "inputs": {
            "x": {"shape": ["batch", "hidden"], "dtype": "float32"},
            "weight": {"shape": ["hidden"], "dtype": "float32"},
            "eps": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["batch", "hidden"], "dtype": "float32"}},
        "reference": REFERENCE.format(result=result),
    }  # fmt: skip


def sources_of(helper: str, factor: str, into: bool) -> list[dict[str, str]]:
    end = "y.copy_(made)" if into else "return made"
    main = MAIN.format(
        helper=helper, into=", y" if into else "", factor=factor, end=end
    )
    return [
        {"path": "main.py", "content": main},
        {"path": "lib/norms.py", "content": NORMS},
    ]


WORKLOAD = {
    "uuid": "a1", "axes": {"batch": 6},
    "inputs": {
        "x": {"type": "random"}, "weight": {"type": "random"},
        "eps": {"type": "scalar", "value": 1e-6},
    },
}  # fmt: skip


def test_flashinfer_bench_loads_what_is_judged_and_runs_what_is_found(
    judge: kfuzz.Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pytest.importorskip("flashinfer_bench.data")
    running = pytest.importorskip("flashinfer_bench.bench.utils")
    compiled = pytest.importorskip("flashinfer_bench.compile")
    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    # A tuple of one result is that result, and files are a package's.
    told = definition_of("(x * scale * weight,)")
    definition = data.Definition(**told)

    def solution(factor: str, *, into: bool) -> Any:
        return data.Solution(
            name=f"mine{factor}", definition="rmsnorm_h24", author="me",
            spec=data.BuildSpec(
                language="python", target_hardware=["cpu"], entry_point="main.py::run",
                destination_passing_style=into,
            ),
            sources=sources_of(".lib.norms", factor, into),
        )  # fmt: skip

    right, wrong = solution("", into=True), solution(" + 1e-3", into=False)
    trace = data.Trace(definition="rmsnorm_h24", workload=WORKLOAD)
    root = tmp_path / "dataset"
    held = data.TraceSet.from_path(str(root))
    held.definitions["rmsnorm_h24"] = definition
    held.add_workload_traces([trace])
    files = {"definitions": definition, "solutions/right": right}
    for name, one in {**files, "solutions/wrong": wrong}.items():
        path = root / name / "one.json"
        path.parent.mkdir(parents=True)
        path.write_text(one.model_dump_json())

    with kfuzz.Judge(**SERVED, corpus=tmp_path / "corpus") as finding:
        read = data.TraceSet.from_path(str(root))
        given = read.definitions["rmsnorm_h24"].model_dump(mode="json")
        posed = read.workloads["rmsnorm_h24"][0].model_dump(mode="json")
        scores = {
            s.name: flashinfer.judge_solution(
                finding, given, posed, s.model_dump(mode="json"), root=root
            )
            for s in read.solutions["rmsnorm_h24"]
        }
    assert scores["mine"].verdict == "conforms", scores["mine"]
    score = scores["mine + 1e-3"]
    assert score.verdict == "violates"
    assert score.finding is not None

    shown = data.Trace(
        **flashinfer.workload_of(
            given, Path(score.finding["path"]), root, workload=posed
        )
    )
    held.add_workload_traces([shown])
    again = data.TraceSet.from_path(str(root)).workloads["rmsnorm_h24"][-1].workload
    stored = running.load_safetensors(definition, again, root)
    inputs = running.gen_inputs(definition, again, "cpu", stored)
    build = compiled.BuilderRegistry.get_instance()
    results = {
        s.name: build.build(definition, s).call_value_returning(*inputs)
        for s in (right, wrong)
    }
    expected = build.build_reference(definition)(*inputs)
    torch.testing.assert_close(results["mine"], expected)
    assert not torch.allclose(results["mine + 1e-3"], expected, rtol=1e-5)


def test_sol_execbench_loads_what_is_judged_and_draws_what_is_found(
    tmp_path: Path,
) -> None:
    data = pytest.importorskip("sol_execbench.core")
    running = pytest.importorskip("sol_execbench.core.bench.io")
    half = {"type": "expr", "expression": "hidden // 2"}
    told = definition_of("x * scale * weight", half=half)
    told["inputs"]["x"]["shape"] = ["batch", "1", "hidden"]
    told["outputs"]["y"]["shape"] = ["batch", "1", "hidden"]
    definition, workload = data.Definition(**told), data.Workload(**WORKLOAD)
    given, posed = (one.model_dump(mode="json") for one in (definition, workload))
    made = {}
    with kfuzz.Judge(**SERVED, corpus=tmp_path / "corpus") as judge:
        for factor, language in (("", "pytorch"), (" + 1e-3", "triton")):
            solution = data.Solution(
                name="mine", definition="rmsnorm_h24", author="me",
                spec={
                    "languages": [language], "target_hardware": ["LOCAL"],
                    "entry_point": "main.py::run",
                },
                sources=sources_of("lib.norms", factor, True),
            )  # fmt: skip
            made[factor] = flashinfer.judge_solution(
                judge, given, posed, solution.model_dump(mode="json")
            )
    assert made[""].verdict == "conforms", made[""]
    found = made[" + 1e-3"].finding
    assert found is not None
    trace = flashinfer.workload_of(given, Path(found["path"]), tmp_path, workload=posed)
    assert data.Trace(**trace).is_workload_trace()
    shown = data.Workload(**trace["workload"])
    stored = running.load_safetensors(definition, shown, [tmp_path])
    x, weight, eps = running.gen_inputs(definition, shown, "cpu", stored)
    assert x.shape == (shown.axes["batch"], 1, 24)
    assert (weight.shape, eps) == ((24,), 1e-6)


def test_the_examples_of_sol_execbench_are_tasks() -> None:
    package = pytest.importorskip("sol_execbench")
    examples = Path(package.__file__).parents[2] / "examples"
    found = sorted(examples.glob("*/*/definition.json"))
    if not found:
        pytest.skip("sol_execbench is not in a checkout of its repository")
    for file in found:
        definition = json.loads(file.read_text())
        for line in (file.parent / "workload.jsonl").read_text().splitlines():
            flashinfer.task_of(definition, json.loads(line), root=file.parent)
        for path in file.parent.glob("solution*.json"):
            solution = json.loads(path.read_text())
            if solution["spec"]["entry_point"].split("::")[0].endswith(".py"):
                assert flashinfer.candidate_of(definition, solution)


# verl -------------------------------------------------------------------------------

ANSWER = "```python\nimport torch\ndef f(x):\n    return torch.relu(x){}\n```"
TRUTH = json.dumps({"operator": "relu", "inputs": {"x": "float32[6, 9]"}})


class Letters:
    """A tokenizer whose tokens are letters."""

    @staticmethod
    def decode(tokens: torch.Tensor, **kwargs: Any) -> str:
        return "".join(map(chr, tokens.tolist()))


@pytest.mark.parametrize("serving", [{}, {"reward_router_address": "127.0.0.1:1"}])
def test_a_reward_manager_of_verl_loads_and_calls_it(
    serving: dict[str, str], judge: kfuzz.Judge
) -> None:
    verl = pytest.importorskip("verl")
    hydra = pytest.importorskip("hydra")
    rewards = pytest.importorskip("verl.trainer.ppo.reward")
    place = "reward.custom_reward_function"
    told = [f"+{place}.reward_kwargs.{n}={v}" for n, v in SERVED.items()]
    folder = str(Path(verl.__file__).parent / "trainer" / "config")
    with hydra.initialize_config_dir(folder, version_base=None):
        config = hydra.compose(
            "ppo_trainer",
            [f"{place}.path=pkg://kfuzz.judge.adapters.rewards", *told],
        )
    manager = rewards.load_reward_manager(config, Letters(), **serving)

    def scored(answer: str) -> dict[str, Any]:
        tokens = torch.tensor([[ord(letter) for letter in answer]])
        data = verl.DataProto.from_dict(
            {"responses": tokens, "attention_mask": torch.ones_like(tokens)},
            non_tensors={
                "data_source": ["kernels"], "reward_model": [{"ground_truth": TRUTH}],
                "extra_info": [{"entry": "f", "declaration": None}],
            },
        )  # fmt: skip
        made = manager.loop.run_until_complete(manager.run_single(data))
        assert isinstance(made, dict)
        return made

    right = scored(ANSWER.format(""))
    assert right["reward_score"] == 1.0
    assert right["reward_extra_info"]["verdict"] == "conforms"
    if not serving:
        wrong = scored(ANSWER.format(" + 1"))
        assert wrong["reward_score"] == 0.0
        assert wrong["reward_extra_info"].keys() == right["reward_extra_info"].keys()


# KernelBench ------------------------------------------------------------------------


def test_kernelbench_takes_the_result_of_its_own_example(judge: kfuzz.Judge) -> None:
    theirs = pytest.importorskip("kernelbench.eval")
    called = inspect.signature(theirs.eval_kernel_against_ref).parameters
    own = inspect.signature(kernelbench.eval_kernel_against_ref).parameters
    assert list(own)[: len(called)] == list(called)
    prompts = Path(theirs.__file__).parent / "prompts"
    problem = (prompts / "model_ex_add.py").read_text().replace(".cuda()", "")
    for change, right in (("a + b", True), ("a + b + 1e-3", False)):
        candidate = problem.replace("class Model(", "class ModelNew(")
        made = kernelbench.eval_kernel_against_ref(
            original_model_src=problem,
            custom_model_src=candidate.replace("a + b", change),
            num_correct_trials=5, device="cpu", options=SERVED,
        )  # fmt: skip
        result = theirs.KernelExecResult(**made.model_dump())
        assert (result.compiled, result.correctness) == (True, right), result
        assert json.loads(result.model_dump_json()) == made.model_dump()


# KernelBot --------------------------------------------------------------------------

TASK_YML = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
description: "Add two tensors."
config:
  main: "eval.py"
tests:
  - {"size": 12, "seed": 4242}
"""
TASK = """
import torch
from task import input_t

def ref_kernel(data: input_t):
    a, b = data
    return a + b

def generate_input(size: int, seed: int):
    gen = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(size, size, generator=gen) for _ in range(2))
"""


def test_kernelbot_filters_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = pytest.importorskip("libkernelbot.kernelguard")
    tasks = pytest.importorskip("libkernelbot.task")
    (tmp_path / "task.yml").write_text(TASK_YML)
    (tmp_path / "task.py").write_text("input_t = tuple\n")
    (tmp_path / "reference.py").write_text(TASK)
    told = tasks.make_task_definition(tmp_path).task
    assert kernelbot.task_of(tmp_path).entry == "custom_kernel"
    assert told.tests == [{"size": 12, "seed": 4242}]

    command = [sys.executable, "-m", "kfuzz.judge.adapters.kernelbot", str(tmp_path)]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KERNELGUARD_ENABLED", "1")
    monkeypatch.setenv("KERNELGUARD_PROFILE", "strict")
    monkeypatch.setenv(
        "KERNELGUARD_COMMAND",
        shlex.join([*command, "--device", "cpu", "--max-time", "10"]),
    )
    right = "def custom_kernel(data):\n    a, b = data\n    return b + a\n"
    result = guard.enforce_submission_precheck(right, "submission.py")
    assert result["should_filter"] is False
    with pytest.raises(guard.KernelGuardRejected, match="K-VAL-01"):
        guard.enforce_submission_precheck(
            right.replace("b + a", "b + a + 1e-3"), "submission.py"
        )


def test_the_examples_of_kernelbot_are_tasks() -> None:
    package = pytest.importorskip("libkernelbot.task")
    examples = Path(package.__file__).parents[2] / "examples"
    found = sorted(examples.glob("*_py/task.yml"))
    if not found:
        pytest.skip("libkernelbot is not in a checkout of its repository")
    for file in found:
        tests = package.make_task_definition(file).task.tests
        for i in range(len(tests)):
            assert kernelbot.task_of(file.parent, test=i).packed


# BackendBench -----------------------------------------------------------------------


def test_backendbench_evaluates_its_backend_on_drawn_tests(tmp_path: Path) -> None:
    evaluating = pytest.importorskip("BackendBench.eval")
    directory = pytest.importorskip("BackendBench.backends.directory")
    bodies = {
        "relu": ("x", "x.clamp(min=0)"),
        "add__Tensor": ("x, y, *, alpha=1", "x + alpha * y"),
        "sigmoid": ("x", "x.sigmoid() + 1"),
    }
    folder = tmp_path / "generated_kernels"
    for name, (given, body) in bodies.items():
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}_implementation_v1.py").write_text(
            f"def {name}_kernel_impl({given}):\n    return {body}\n"
        )
    backend = directory.DirectoryBackend(str(folder))
    scores = {}
    for each in backendbench.TestSuite(["relu", "add.Tensor", "sigmoid"], cases=10):
        correct, _, results, _ = evaluating.eval_one_op(
            each.op, backend[each.op], each.correctness_tests, each.performance_tests
        )
        assert len(results) == 10
        scores[each.op.__name__] = correct
    assert scores["relu.default"] == scores["add.Tensor"] == 1.0
    assert scores["sigmoid.default"] < 1.0
    assert backendbench.write_targets(folder, tmp_path / "targets.py") == []
    space: dict[str, Any] = {}
    exec((tmp_path / "targets.py").read_text(), space)
    assert {"relu", "add_Tensor", "sigmoid"} <= space.keys()


# Hugging Face kernels ---------------------------------------------------------------

LAYER = """
import torch

def relu(x, out=None):
    if out is None:
        out = torch.empty_like(x)
    return out.copy_(x.clamp(min=0))

def relu_into(out, x):
    out.copy_(x.clamp(min=0) + {})
"""
METADATA = {
    "name": "activation", "id": "_activation_cpu_1", "version": 1,
    "license": "Apache-2.0", "python-depends": [], "backend": {"type": "cpu"},
}  # fmt: skip


def test_a_kernel_that_the_package_loads_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:  # by its distribution: any file may have that name
        version("kernels")
    except PackageNotFoundError:
        pytest.skip("kernels is not installed")
    kernels = importlib.import_module("kernels")
    variant = tmp_path / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(LAYER.format("1e-3"))
    (variant / "metadata.json").write_text(json.dumps(METADATA))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("LOCAL_KERNELS", f"kernels-community/activation={tmp_path}")
    repo = "kernels-community/activation"
    hub.check(hub.hub_kernel(repo, "relu", "relu", version=1), max_time=5, device="cpu")
    loaded = kernels.get_kernel(repo, version=1)
    with pytest.raises(AssertionError, match="K-VAL-01"):
        hub.check(
            lambda x, y: loaded.relu_into(y, x), "relu", out=("y",), name="relu_into",
            max_time=10, device="cpu",
        )  # fmt: skip


# The suites of Liger-Kernel and fla -------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name"),
    [("fla.utils", "assert_close"), ("test.utils", "assert_verbose_allclose")],
)
def test_the_helpers_have_the_parameters_of_the_suites(module: str, name: str) -> None:
    try:
        theirs = getattr(importlib.import_module(module), name)
    except ImportError as error:  # Python has a `test` of its own
        pytest.skip(f"no checkout with {module} in the path: {error}")
    own = inspect.signature(getattr(helpers, name)).parameters.values()
    called = inspect.signature(theirs).parameters.values()
    assert [(p.name, p.default) for p in own] == [(p.name, p.default) for p in called]
