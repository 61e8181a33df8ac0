"""The comparing helpers of Liger-Kernel's and fla's tests, with derived bounds.

Facts: github.com/linkedin/Liger-Kernel, test/utils.py; github.com/fla-org/
flash-linear-attention, fla/utils.py. A test that uses one is run under `references`:

    @pytest.fixture(autouse=True)
    def derived_bounds():
        with references():
            yield

What made the reference's result is recorded, and computed again in float64 with a
running bound of what a kernel's rounding may do. The test's own tolerances are of no
effect.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from kfuzz.core.errors import UsageError
from kfuzz.core.features import needed
from kfuzz.numerics.accumulation import same_bits
from kfuzz.numerics.shadow.shade import COMPOSITES, RULES

_Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]

_recording: "list[_Tape]" = []


@contextmanager
def references(**declaration: Any) -> Iterator[None]:
    """Record how tensors are made, for the helpers that are called within.

    Every tensor that is made meanwhile stays until the end.

    Args:
        declaration: what the kernels declare, as for `assert_conforms`:
            `intermediates="output"`, `accumulator="tf32"`.
    """
    tape = _Tape(declaration)
    _recording.append(tape)
    try:
        with tape:
            yield
    finally:
        _recording.remove(tape)


def assert_verbose_allclose(
    tensor1: Tensor, tensor2: Tensor, rtol: float = 1e-05, atol: float = 1e-08,
    max_print: int = 5, extra_info: str = "",
) -> None:  # fmt: skip
    """Check a kernel's result against its reference's, as Liger-Kernel's helper does.

    Args:
        tensor1: one of both; the reference's is the one that torch's operators made,
            of most steps if both were.
        tensor2: the other.
        rtol: of no effect, as the others.
        atol: of no effect.
        max_print: of no effect.
        extra_info: put before the message.

    Raises:
        AssertionError: if the kernel's result lies outside what rounding allows.
        UsageError: if it cannot be said how the reference's was made.
    """
    made = [(_Graph(x), other) for x, other in ((tensor2, tensor1), (tensor1, tensor2))]
    _check(extra_info, sorted(made, key=lambda pair: -pair[0].size))


def assert_close(
    prefix: str, ref: Tensor, tri: Tensor, ratio: float, warning: bool = False,
    err_atol: float = 1e-6,
) -> None:  # fmt: skip
    """Check a kernel's result against its reference's, as fla's helper does.

    Args:
        prefix: names the result in the message.
        ref: what torch's operators made.
        tri: what the kernel made.
        ratio: of no effect, as the others.
        warning: of no effect.
        err_atol: of no effect.

    Raises:
        AssertionError: if the kernel's result lies outside what rounding allows.
        UsageError: if it cannot be said how the reference's was made.
    """
    _check(prefix, [(_Graph(ref), tri)])


def _check(what: str, pairs: "list[tuple[_Graph, Tensor]]") -> None:
    with _disable_current_modes():
        found = [(graph, other) for graph, other in pairs if graph.reproduces()]
        if not found:
            raise UsageError(
                "nothing was checked: it is not known how the reference's result was "
                "made, or it is not made alike again", where=what,
                fix="run the test under references() of this module, "
                "with a reference of torch's operators",
            )  # fmt: skip
        graph, result = found[0]
        result = _as_stored(result).detach()

        def function(*given: Tensor) -> Tensor:
            made: Tensor = graph.function(*given)
            return made.to(result.dtype)

        try:
            claims = _recording[-1].declaration
            needed("assert_conforms", what)(result, function, *graph.leaves, **claims)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}" if what else str(error)) from None
        graph.note_stored(result.dtype)


def _as_stored(result: Tensor) -> Tensor:
    """Return a result as the kernel stored it, before the test made it wider."""
    for tape in _recording:
        for func, args, _, out in reversed(tape.steps):
            if out is result and str(func) == "aten._to_copy.default":
                (x,) = args
                wider = x.is_floating_point() and x.element_size() < out.element_size()
                return (
                    x if wider and bool(same_bits(x.to(out.dtype), out).all()) else out
                )
    return result


class _Tape(TorchDispatchMode):
    """Torch's operators in the order in which they ran, with what they were given."""

    def __init__(self, declaration: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.declaration = declaration
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.results: set[_Key] = set()
        # What no step made, and, if a step wrote to its memory, its elements before.
        self.leaves: dict[_Key, Tensor] = {}
        self.before: dict[_Key, Tensor] = {}
        # The narrower format in which a kernel was seen to store the same result.
        self.stored: dict[_Key, torch.dtype] = {}
        # What memory held when Triton's interpreter handed it to a kernel.
        self._handed: dict[int, Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and keep it."""
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        for x in given:
            # Of what the test takes gradients, the kernel is given the stored numbers.
            if _key(x) not in self.results or (x.is_leaf and x.requires_grad):
                self.leaves.setdefault(_key(x), x)
        is_mutable = func._schema.is_mutable
        if is_mutable:
            memory = {_memory(x) for x in given}
            for x in self.leaves.values():
                if _memory(x) in memory and _key(x) not in self.before:
                    self.before[_key(x)] = x.detach().clone()
        out = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags and not is_mutable:
            return out  # random numbers are what a reference begins with
        self.steps.append((func, args, kwargs, out))
        if _hands_over(func):
            self._handed[id(out)] = out.clone()
            return out
        self.results |= {_key(x) for x in _tensors(out)} - self.leaves.keys()
        return out

    def is_read(self, out: Any) -> bool:
        """Whether a tensor hands memory to a kernel that left it as it was."""
        handed = self._handed.get(id(out))
        return handed is not None and bool(same_bits(out, handed).all())


class _Graph:
    """The steps that made a tensor.

    Attributes:
        size: how many.
        leaves: what they begin with, floating tensors first.
    """

    def __init__(self, result: Tensor) -> None:
        made = (t for t in _recording if _key(result) in t.results)
        tape = next(made, None) or _Tape({})
        self._result, self._tape = result, tape
        self._steps: list[tuple[Any, Any, Any, Any]] = []
        leaves: dict[_Key, Tensor] = {}
        wanted, asked = {_memory(result)}, {_key(result)}
        for step in reversed(tape.steps):
            func, args, kwargs, out = step
            given = _tensors((args, kwargs))
            if func._schema.is_mutable:
                touched = map(_memory, [*given, *_tensors(out)])
                is_needed = not wanted.isdisjoint(touched)
            else:
                # A view that nothing reads, such as the interpreter's, made nothing.
                is_needed = not asked.isdisjoint(map(_key, _tensors(out)))
            if not is_needed or tape.is_read(out):
                continue
            if not func._schema.is_mutable and any(
                _key(x) in tape.leaves for x in _tensors(out)
            ):
                continue
            self._steps.insert(0, step)
            wanted |= set(map(_memory, given))
            asked |= set(map(_key, given))
            leaves |= {_key(x): x for x in given if _key(x) in tape.leaves}
        # A copy does not see what is written later.
        self._written = {_memory(result)} | {
            _memory(x)
            for func, args, kwargs, out in self._steps
            if func._schema.is_mutable
            for x in _tensors((args, kwargs, out))
        }
        before = tape.before
        order = sorted(leaves, key=lambda i: not leaves[i].is_floating_point())
        self.size, self._order = len(self._steps), order
        self.leaves = [before.get(i, leaves[i]).detach() for i in order]

    def function(self, *given: Tensor, plain: bool = False) -> Any:
        """Return the result again, of tensors in the place of the leaves.

        Args:
            given: those tensors.
            plain: whether operators of gradients are left whole, for which there may
                be no error rule.
        """
        known = {i: x.clone() for i, x in zip(self._order, given, strict=True)}

        def again(x: Tensor) -> Tensor:
            return known[_key(x)]

        for func, args, kwargs, out in self._steps:
            args, kwargs = tree_map_only(Tensor, again, (args, kwargs))
            made = (func if plain else _ruled(func))(*args, **kwargs)
            for x, y in zip(_tensors(out), _tensors(made), strict=True):
                stored = None if plain else self._tape.stored.get(_key(x))
                if stored is None or _memory(x) in self._written:
                    known[_key(x)] = y
                else:  # what follows, as gradients do, begins with the stored numbers
                    known[_key(x)] = y.to(stored).to(y.dtype)
        return known[_key(self._result)]

    def note_stored(self, dtype: torch.dtype) -> None:
        """Keep that a kernel stores the same result in a format."""
        if dtype.itemsize < self._result.dtype.itemsize:
            self._tape.stored[_key(self._result)] = dtype

    def reproduces(self) -> bool:
        """Whether the steps make the same result again, bit for bit."""
        # What is in memory that a kernel wrote to no step has made.
        handed = any(_hands_over(func) for func, *_ in self._steps)
        if handed or not self._steps or not self.leaves:
            return False
        made = self.function(*self.leaves, plain=True)
        return bool(same_bits(made, self._result.detach()).all())


def _hands_over(func: Any) -> bool:
    """Whether an operator is the one by which Triton's interpreter takes arguments."""
    return str(func).startswith("aten.set_.")


def _ruled(func: Any) -> Any:
    """Return an operator of gradients as a function of others that have error rules."""
    name = str(func.overloadpacket)
    if "backward" not in name or name in RULES or name in COMPOSITES:
        return func
    return decomposition_table.get(func, func)


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, Tensor)]


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _key(x: Tensor) -> _Key:
    """Return which elements of which memory a tensor is: autograd's views are new."""
    at = int(x.storage_offset())
    return _memory(x), at, tuple(x.shape), tuple(x.stride()), x.dtype
