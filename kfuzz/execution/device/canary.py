"""What a GPU is tried with before it judges anything: a sum, and a planted over-read.

A device that computes wrong, or on which a load past the end passes where it faults on
others, would show faults that are its own and miss those of kernels.
"""

from typing import TYPE_CHECKING, Final

from kfuzz.execution.processes.wire import Handler, Message

if TYPE_CHECKING:
    import torch

_ELEMENTS: Final = 4096


def serve() -> Handler:
    """Return the handler of a child that tries the one device that it sees."""
    return _answer


def _answer(message: Message) -> Message:
    """Try a device.

    Returns:
        {"uuid": of the device, "ailment": why it cannot be used, "" where it can,
        "unfenced": why nothing can lie beside a page that faults there, "" where it
        can, "passed": whether a load past the end passed beside one}.
    """
    import torch

    from kfuzz.execution.device.backends import backend_of

    device = torch.device(message["device"])
    backend = backend_of(device)
    told: Message = {"uuid": "", "unfenced": "", "passed": False}
    ailment = backend.ailment(device) or _miscounts(device)
    if not ailment:
        found = torch.cuda.get_device_properties(device)
        told["uuid"] = str(getattr(found, "uuid", "")) or found.name
        told["unfenced"] = backend.unfenced(device)
    if not ailment and not told["unfenced"]:
        told["passed"] = not load_past_the_end(device)  # the last: it ends the context
    return {**told, "ailment": ailment}


def _miscounts(device: "torch.device") -> str:
    """Return how integers differ from the CPU's that a device computes, or ""."""
    import torch

    try:
        x = torch.arange(_ELEMENTS, dtype=torch.int64, device=device)
        made = torch.cumsum(x * 3 + 1, 0).cpu()
    except RuntimeError as error:
        return str(error).strip().partition("\n")[0]
    wanted = torch.cumsum(torch.arange(_ELEMENTS, dtype=torch.int64) * 3 + 1, 0)
    wrong = int((made != wanted).sum())
    return f"{wrong} of {_ELEMENTS} sums of integers are wrong" if wrong else ""


def load_past_the_end(device: "torch.device") -> str:
    """Have a GPU load past the end of an argument beside a page.

    Returns:
        The fault that its device reports, "" if it works on.
    """
    import torch

    from kfuzz.core.recipe import Edge, Fill, TensorSpec
    from kfuzz.execution.device.backends import fault_of
    from kfuzz.execution.memory.placement import place
    from kfuzz.execution.memory.poison import Poison

    spec = TensorSpec((4,), ("N",), "float32", fill=Fill("zeros"))
    placement = place(
        {"x": spec}, {"x": torch.zeros(4, device=device)},
        device=device, alignment=16, poison=Poison.NAN, edge=Edge("end"),
    )  # fmt: skip
    x = placement.tensors["x"]

    class Beyond:
        """The element after the last; torch asks nothing of the driver for it."""

        def __init__(self) -> None:
            self.__cuda_array_interface__ = {
                "shape": (2,),
                "typestr": "<f4",
                "data": (x.data_ptr() + 3 * x.itemsize, False),
                "version": 3,
            }

    try:
        (torch.as_tensor(Beyond(), device=device) + 1).sum().item()
    except RuntimeError:
        return fault_of(device)
    return ""
