"""kfuzz searches for inputs on which GPU kernels are wrong.

Bind a kernel to the operator that it implements. Then search it: with `kfuzz run FILE`
on the command line, or with `falsify` here.

    import kfuzz
    from kfuzz.contracts import operators as ops

    @kfuzz.kernel(ops.softmax)
    def my_softmax(x, dim=-1): ...

    findings = kfuzz.falsify(my_softmax, max_cases=200)

* Binding: `kernel`; `launch` for a bare Triton kernel, `cuda_source` for CUDA C++,
  `module` for torch.nn.Module, `compiled` for torch.compile, `arrays` for functions of
  NumPy's, JAX's or Warp's arrays; `reference` makes an operator of any function in
  plain torch, an `Operator`.
* Searching: `falsify`, `replay`, and `mark.falsify` for tests of pytest.
* Candidates that a machine wrote: `Judge`.
* Live calls: `monitor`; one call in a test: `assert_conforms`.
* Error models: `numerics`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kfuzz import mark as mark
    from kfuzz import numerics as numerics
    from kfuzz.api import falsify as falsify
    from kfuzz.api import replay as replay
    from kfuzz.contracts import Operator as Operator
    from kfuzz.contracts import kernel as kernel
    from kfuzz.contracts.oracle import reference as reference
    from kfuzz.features.judge.service.judge import Judge as Judge
    from kfuzz.features.monitor import monitor as monitor
    from kfuzz.features.monitor.asserting import assert_conforms as assert_conforms
    from kfuzz.targets.cuda_source import cuda_source as cuda_source
    from kfuzz.targets.forms import arrays as arrays
    from kfuzz.targets.forms import compiled as compiled
    from kfuzz.targets.forms import launch as launch
    from kfuzz.targets.forms import module as module

# Resolved on first use: `kfuzz --help` and the corpus verbs start without torch.
_LAZY = {
    "Judge": "kfuzz.features.judge.service.judge",
    "Operator": "kfuzz.contracts",
    "assert_conforms": "kfuzz.features.monitor.asserting",
    "kernel": "kfuzz.contracts",
    "reference": "kfuzz.contracts.oracle",
    "falsify": "kfuzz.api",
    "replay": "kfuzz.api",
    "arrays": "kfuzz.targets.forms",
    "compiled": "kfuzz.targets.forms",
    "cuda_source": "kfuzz.targets.cuda_source",
    "launch": "kfuzz.targets.forms",
    "module": "kfuzz.targets.forms",
}

_MODULES = {
    "mark": "kfuzz.mark",
    "monitor": "kfuzz.features.monitor",
    "numerics": "kfuzz.numerics",
}
__all__ = ["__version__", *_LAZY, *_MODULES]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'kfuzz' has no attribute {name!r}")
