"""What a child's first case would import or compute, had before it is forked.

Measured on an H100 with Triton 3.6: 0.46 s of a fresh child's first case went into the
hash of Triton's own files, 0.18 s into a part of Triton that its launcher imports late,
0.1 s into the bindings of CUDA. Nothing here touches a device or runs an
operation of torch.
"""

import contextlib
from importlib import import_module
from typing import Final

# Imported by the first launch.
_LAUNCHED: Final = ("triton.compiler.code_generator", "triton.experimental.gluon")
_INTERPRETED: Final = (
    "ml_dtypes",
    "triton.runtime.interpreter",
    "kfuzz.execution.interpreter.low_precision_rounding",
    "kfuzz.execution.interpreter.tree_reductions",
)
_COMPILED: Final = ("cuda.bindings.nvrtc",)


def for_interpret() -> None:
    """Import what Triton's interpreter needs, as far as it is there."""
    _import((*_LAUNCHED, *_INTERPRETED))


def for_cuda() -> None:
    """Import what launches on a GPU need, and have Triton hash its own files."""
    _import((*_LAUNCHED, *_COMPILED))
    for name in ("triton.runtime.cache", "triton.compiler.compiler"):
        with contextlib.suppress(ImportError, AttributeError):
            import_module(name).triton_key()  # which it keeps
            return


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)
