"""State of torch that outlives a call: what a kernel changes of it is put back.

It decides how later calls compute: other kernels', and the program's that calls this
one. A kernel that needs another setting has to put back the one that it found.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final

import torch
import torch.utils._device as torch_device

_backends: Any = torch.backends


def _default_device() -> Any:
    """Return that of the innermost setting; None where there is none."""
    return torch_device.CURRENT_DEVICE


def _set_grad(value: bool) -> None:
    torch._C._set_grad_enabled(value)


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _flushes() -> bool:
    """Whether subnormal numbers count as 0 on the CPU; torch sets it and does not say.

    Without a dispatch: modes that watch a call see nothing of it.
    """
    least = 5e-324
    return least * 1.0 == 0.0


def _of_attribute(
    owner: Any, name: str
) -> tuple[Callable[[], Any], Callable[..., Any]]:
    return (lambda: getattr(owner, name)), (lambda value: setattr(owner, name, value))


def _attributes() -> dict[str, tuple[Callable[[], Any], Callable[..., Any]]]:
    """Return the settings that are attributes of `torch.backends` here.

    Where the precision of float32 is set by kind, as from torch 2.9 on, the older
    settings of the whole raise once a kind differs.
    """
    names = [
        "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic",
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_bf16_reduced_precision_reduction", "mkldnn.enabled",
    ]  # fmt: skip
    by_kind = hasattr(_backends.cuda.matmul, "fp32_precision")
    names += _BY_KIND if by_kind else ["cudnn.allow_tf32", "cuda.matmul.allow_tf32"]
    made = {}
    for name in names:
        path, _, last = name.rpartition(".")
        try:
            owner = attrgetter(path)(_backends) if path else _backends
            getattr(owner, last)
        except (AttributeError, RuntimeError):
            continue
        made[f"torch.backends.{name}"] = _of_attribute(owner, last)
    return made


_BY_KIND: Final = [
    f"{name}fp32_precision"
    for name in (
        "", "cuda.matmul.", "cudnn.conv.", "cudnn.rnn.", "mkldnn.matmul.",
        "mkldnn.conv.", "mkldnn.rnn.",
    )
]  # fmt: skip

_SETTINGS: Final[dict[str, tuple[Callable[[], Any], Callable[..., Any]]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (_default_device, torch.set_default_device),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "grad mode": (torch.is_grad_enabled, _set_grad),
    "the use of deterministic algorithms": (_deterministic, _set_deterministic),
    "whether subnormals are flushed": (_flushes, torch.set_flush_denormal),
    **_attributes(),
    **{
        f"autocast for {kind}": (
            partial(torch.is_autocast_enabled, kind),
            partial(torch.set_autocast_enabled, kind),
        )
        for kind in ("cpu", "cuda")
    },
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "filling of uninitialized memory": _of_attribute(
        torch.utils.deterministic, "fill_uninitialized_memory"
    ),
}


@dataclass(frozen=True)
class TorchState:
    """What torch is set to, by the name of each setting."""

    settings: dict[str, Any]

    @classmethod
    def now(cls) -> "TorchState":
        """Return what torch is set to."""
        return cls({name: ask() for name, (ask, _) in _SETTINGS.items()})

    def restore(self) -> tuple[str, ...]:
        """Put back what differs now; return it in words, with both values."""
        told = []
        for name, before in self.settings.items():
            ask, put = _SETTINGS[name]
            after = ask()
            if after == before:
                continue
            put(before)
            told.append(f"{name} ({before} before the call, {after} after it)")
        return tuple(told)


@contextmanager
def put_back() -> Iterator[list[str]]:
    """Put back what is changed meanwhile; give a list that then holds it in words."""
    before, left = TorchState.now(), list[str]()
    try:
        yield left
    finally:
        left += before.restore()
