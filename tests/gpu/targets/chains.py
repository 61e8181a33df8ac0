"""Chains under torch.compile: as it compiles them, and with a fusion that is wrong."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import kfuzz


def gated(x: Tensor, gate: Tensor, *, scale: float = 0.5) -> Tensor:
    """Return silu(gate) x scale."""
    return torch.nn.functional.silu(gate) * x * scale


def wrong_fusion(module: Any, inputs: list[Any]) -> Callable[..., Any]:
    """Compile by inductor, silu fused to its sigmoid alone."""
    from torch._inductor.compile_fx import compile_fx

    for node in list(module.graph.nodes):
        if "silu" in str(node.target):
            with module.graph.inserting_after(node):
                made = module.graph.call_function(torch.sigmoid, (node.args[0],))
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)
    module.recompile()
    return compile_fx(module, inputs)


GATED = kfuzz.reference(gated, eager=True)
inductor = kfuzz.kernel(GATED, name="inductor")(kfuzz.compiled(gated))
fused_wrong = kfuzz.kernel(GATED, name="fused_wrong")(
    kfuzz.compiled(gated, backend=wrong_fusion)
)
