"""What `kfuzz doctor` tries out in a child: torch, devices and guard zones.

`python -m kfuzz.cli.self_check` runs a kernel in Triton's interpreter.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kfuzz.execution.processes.wire import Handler, Message

if TYPE_CHECKING:
    import torch

    from kfuzz.execution.memory.placement import Placement

# Two programs, the second one partly masked.
_ELEMENTS: Final = 7
_BLOCK: Final = 4


def serve() -> Handler:
    """Return the handler of a child: it tries what a request names."""
    return _answer


def _answer(message: Message) -> Message:
    return _TRIED[message["do"]]()


def _torch_sum() -> Message:
    import torch

    return {"sum": float(torch.ones(_ELEMENTS).sum())}


def _devices() -> Message:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"devices": [torch.cuda.get_device_name(i) for i in range(count)]}


def _placed(count: int, device: "torch.device", **options: Any) -> "Placement":
    """Lay out zeros in memory as those of a case, guarded."""
    import torch

    from kfuzz.core.recipe import Fill, TensorSpec
    from kfuzz.execution.memory.placement import place
    from kfuzz.execution.memory.poison import Poison

    spec = TensorSpec((count,), ("N",), "float32", fill=Fill("zeros"))
    values = {"x": torch.zeros(count, device=device)}
    return place(
        {"x": spec}, values,
        device=device, alignment=16, poison=Poison.NAN, **options,
    )  # fmt: skip


def _planted_write_is_seen() -> Message:
    """Write one element past the end of a tensor, within its guard zone."""
    import torch

    from kfuzz.execution.memory.slots import Arena

    arena = Arena("cpu")
    placement = _placed(_ELEMENTS, torch.device("cpu"), arena=arena)
    if placement.touches():
        return {"seen": False}  # sees writes that never were
    x = placement.tensors["x"]
    past_the_end = x.data_ptr() + x.nbytes - arena.live.data_ptr()
    arena.live[past_the_end] = 0
    return {"seen": [touch.where for touch in placement.touches()] == ["after"]}


def _survives_a_load_past_the_end() -> Message:
    """Load past the end of an argument beside a page, which should end the process.

    Returns:
        Whether there was such a page; if there was, it did not fault.
    """
    import ctypes
    import faulthandler

    import torch

    from kfuzz.core.recipe import Edge
    from kfuzz.execution.memory import fences as pages

    if not pages.available():
        return {"fenced": False}
    faulthandler.disable()  # a stack would look like a fault of kfuzz's
    x = _placed(4, torch.device("cpu"), edge=Edge("end")).tensors["x"]
    ctypes.string_at(x.data_ptr() + x.nbytes, 1)
    return {"fenced": True}


def _unfenced() -> Message:
    """Return why no fences can be made on the first GPU, "" where they can."""
    import torch

    from kfuzz.execution.device.backends import GPU

    return {"unfenced": GPU.unfenced(torch.device("cuda", 0))}


def _load_past_the_end_on_a_device() -> Message:
    """Have the first GPU load past the end of an argument beside a page.

    Returns:
        The fault that its device reports, "" if it works on, and whether it is the
        one of an illegal address.
    """
    import torch

    from kfuzz.core.verdict import ILLEGAL_ADDRESS
    from kfuzz.execution.device.backends import load_past_the_end

    fault = load_past_the_end(torch.device("cuda", 0))
    return {"fault": fault, "struck": fault == ILLEGAL_ADDRESS}


_TRIED: Final[dict[str, Callable[[], Message]]] = {
    "torch": _torch_sum,
    "devices": _devices,
    "guards": _planted_write_is_seen,
    "fault": _survives_a_load_past_the_end,
    "fence": _unfenced,
    "fault on a device": _load_past_the_end_on_a_device,
}


def _interpret() -> None:
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
    if not torch.equal(y, x + 1):
        sys.exit(f"a kernel that adds 1 gave {y.tolist()}")


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    _interpret()
