"""Other ways to look for an input on which a kernel is wrong, behind one interface.

Each peer is used as its documentation shows it and told apart by its inputs and its
comparison alone: kernels, references and budgets are the same for all.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from tests.benchmarks.peers.subject import Budget, Found, Subject

Search = Callable[[Subject, Budget, int], Found]

# A name for tables, and "module:function" of the search behind it.
PEERS: Final[Mapping[str, str]] = {
    "Hypothesis, any floats": "tests.benchmarks.peers.numpy_arrays:any_floats",
    "Hypothesis, within 100": "tests.benchmarks.peers.numpy_arrays:within_100",
    "hypothesis-torch, any floats": "tests.benchmarks.peers.torch_tensors:any_floats",
    "hypothesis-torch, within 100": "tests.benchmarks.peers.torch_tensors:within_100",
    "gpucheck": "tests.benchmarks.peers.gpucheck_inputs:search",
    "five random inputs": "tests.benchmarks.peers.five_random:search",
}


def load(name: str) -> Search:
    """Return the search of a peer.

    Args:
        name: of the table, or "module:function" of one that stands in none.

    Raises:
        ImportError: if what it needs is not installed, or does not import.
    """
    module, _, function = PEERS.get(name, name).partition(":")
    found: Search = getattr(import_module(module), function)
    return found
