"""Memory that still holds poison."""

from torch import Tensor

from kfuzz.execution.memory.poison import Poison, bits_of, poison_word


def is_poison(tensor: Tensor, poison: Poison) -> Tensor:
    """Return where a tensor still holds poison, compared bit by bit.

    Args:
        tensor: any shape, strides and device.
        poison: which poison its memory was filled with.

    Returns:
        A bool tensor of the same shape. For a bool tensor it also marks honest
        elements that equal the poison, since bool has no spare pattern.
    """
    _, value = poison_word(tensor.dtype, poison)
    found = bits_of(tensor.detach().resolve_conj()) == value
    return found.squeeze(-1) if found.shape[-1] == 1 else found.all(-1)
