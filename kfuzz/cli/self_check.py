"""What `kfuzz doctor` tries in a child: torch, devices, pages that fault, Triton.

An answer is what the report prints.
"""

import os
from collections.abc import Callable
from typing import Any, Final

from kfuzz.execution.processes.wire import Handler, Message

# Two programs, the second one partly masked.
_ELEMENTS: Final = 7
_BLOCK: Final = 4


def serve() -> Handler:
    """Return the handler of a child: it tries what a request names."""
    return lambda message: _TRIED[message["do"]]()


def _answer(health: str, text: str) -> Message:
    return {"health": health, "text": text}


def _torch() -> Message:
    import torch

    torch.ones(_ELEMENTS).sum()
    return _answer("ok", "forked, runs torch and answers")


def _devices() -> Message:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        return _answer("ok", ", ".join(map(torch.cuda.get_device_name, range(count))))
    return _answer("missing", "no device: Triton kernels run in the interpreter")


def _load_past_the_end() -> Message:
    """Load past the end of an argument beside a page, which should end the process."""
    import ctypes
    import faulthandler

    import torch

    from kfuzz.core.recipe import Edge, Fill, TensorSpec
    from kfuzz.execution.memory import fences as pages
    from kfuzz.execution.memory.placement import place
    from kfuzz.execution.memory.poison import Poison

    if not pages.available():
        return _answer("missing", "this system makes no pages that fault")
    faulthandler.disable()  # a stack would look like a fault of kfuzz's
    spec = TensorSpec((_BLOCK,), ("N",), "float32", fill=Fill("zeros"))
    placed = place(
        {"x": spec}, {"x": torch.zeros(_BLOCK)}, device=torch.device("cpu"),
        alignment=16, poison=Poison.NAN, edge=Edge("end"),
    )  # fmt: skip
    x = placed.tensors["x"]
    ctypes.string_at(x.data_ptr() + x.nbytes, 1)
    return _answer("broken", "a load past the end did not fault")


def _load_past_the_end_on_a_gpu() -> Message:
    """Have the first GPU load past the end of an argument beside a page."""
    import torch

    from kfuzz.core.verdict import ILLEGAL_ADDRESS
    from kfuzz.execution.device.backends import GPU, load_past_the_end

    device = torch.device("cuda", 0)
    if unfenced := GPU.unfenced(device):
        return _answer("missing", unfenced)
    fault = load_past_the_end(device)
    if fault == ILLEGAL_ADDRESS:
        return _answer("ok", "a load past the end faults")
    seen = f"gave {fault}" if fault else "did not fault"
    return _answer("broken", f"a load past the end {seen}")


def _interpreted() -> Message:
    """Run a kernel in Triton's interpreter."""
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is made
    import torch
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def add_one(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = index < n
        tl.store(y + index, tl.load(x + index, mask=mask) + 1.0, mask=mask)

    x = torch.arange(_ELEMENTS, dtype=torch.float32)
    y = torch.zeros(_ELEMENTS)
    programs = -(-_ELEMENTS // _BLOCK)
    kernel: Any = add_one
    kernel[(programs,)](x, y, _ELEMENTS, BLOCK=_BLOCK)
    if torch.equal(y, x + 1):
        return _answer("ok", "runs a kernel")
    return _answer("broken", f"a kernel that adds 1 gave {y.tolist()}")


_TRIED: Final[dict[str, Callable[[], Message]]] = {
    "child process": _torch,
    "guard pages": _load_past_the_end,
    "cuda": _devices,
    "guard pages on cuda": _load_past_the_end_on_a_gpu,
    "triton interpreter": _interpreted,
}
