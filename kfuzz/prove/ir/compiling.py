"""Triton's IR of a launch, as its frontend makes it: no pass has run, no GPU is asked.

No pass, because what is proved has to hold for what the kernel says: passes drop loads
that nothing uses and merge those that are alike.
"""

from typing import Any, Final

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from kfuzz.prove.launches import ConstArgument, IntArgument, Launch, TensorArgument

# What the frontend asks of a GPU is asked of this one; an H100.
TARGET: Final = GPUTarget("cuda", 90, 32)
WIDE: Final = "i64"
NARROW: Final = "i32"


class NotCompiledError(Exception):
    """Triton's frontend refuses a kernel; the message is its last line."""


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

    signature, constants, attributes = {}, {}, {}
    for place, (name, argument) in enumerate(launch.arguments.items()):
        match argument:
            case ConstArgument():
                signature[name], constants[(place,)] = "constexpr", argument.value
            case TensorArgument() if argument.block is not None:
                raise NotCompiledError("a tensor descriptor made on the host")
            case TensorArgument():
                signature[name] = argument.type
                if argument.aligned:
                    attributes[(place,)] = [["tt.divisibility", 16]]
            case IntArgument() if not argument.declared and integers:
                signature[name] = integers
            case _:
                signature[name] = argument.type
    source = ASTSource(function, signature, constants, attributes)
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
        raise NotCompiledError(_told(error)) from error
    return str(module)


def _told(error: BaseException) -> str:
    """Return what the frontend says last: its message ends in the reason."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
