"""Triton's IR of a launch, as its frontend makes it: no pass has run, no GPU is asked.

No pass, because what is proved has to hold for what the kernel says: passes drop loads
that nothing uses and merge those that are alike.
"""

from typing import Any, Final

from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

from kfuzz.execution.launches.building import NotCompiledError, said, source_of
from kfuzz.execution.launches.launch import Launch

# What the frontend asks of a GPU is asked of this one; an H100.
TARGET: Final = GPUTarget("cuda", 90, 32)
WIDE: Final = "i64"
NARROW: Final = "i32"


def ttir(function: Any, launch: Launch, *, integers: str = "") -> str:
    """Return the text of a launch's module, with locations.

    Arguments are neither specialised to 1 nor by divisibility: what holds of the
    general kernel holds of each special one, the same program partially evaluated.

    Args:
        function: `triton.runtime.jit.JITFunction`.
        launch: how it is launched.
        integers: type of the integers that have none declared: "i32", "i64"; by
            default as each is launched.

    Raises:
        NotCompiledError: if the frontend refuses it.
    """
    from triton._C.libtriton import ir

    source = source_of(function, launch, integers=integers)
    backend = make_backend(TARGET)
    options = backend.parse_options(dict(launch.options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = source.make_ir(
            TARGET,
            options,
            backend.get_codegen_implementation(options),
            backend.get_module_map(),
            context,
        )
    except Exception as error:
        raise NotCompiledError(said(error)) from error
    return str(module)
