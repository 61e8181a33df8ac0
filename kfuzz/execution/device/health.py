"""Whether a device does what it is told."""

from typing import Final

import torch

_WORDS: Final = 1024
_VALUE: Final = 0x5A17


def ailment(device: torch.device) -> str | None:
    """Return why a device can do no work in this process, None if it can.

    It fills a little memory, reads it back and asks how much is free; the CPU always
    can.
    """
    if device.type != "cuda":
        return None
    try:
        with torch.cuda.device(device):
            memory = torch.full((_WORDS,), _VALUE, dtype=torch.int32, device=device)
            read = memory.cpu()
            torch.cuda.synchronize(device)
            torch.cuda.mem_get_info(device)
    except Exception as error:  # whatever torch, or the driver below it, raises
        lines = str(error).strip().splitlines()
        return lines[0] if lines else type(error).__name__
    wrong = int((read != _VALUE).sum())
    if wrong:
        return f"{wrong} of {_WORDS} words that were written read back otherwise"
    return None
