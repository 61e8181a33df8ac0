"""The child's side: imports the foreign file, calls what it defines, tells of results.

From the import on, nothing that this process says can be relied on: the file's code has
the same rights as this module and can replace any part of it. It can:

* answer with any bytes, computed in any way that the machine offers;
* put back what it changed of its arguments, or say that a result is an argument;
* lie about a result's strides, type and device, about which operators and kernels ran,
  and about whether something was still running;
* remember earlier calls, tell repeated ones from new ones, and leave notes for its
  successors in the folder of what is built;
* raise anything, claim that memory ran out, or not answer.

It cannot learn what is expected, which is computed in the campaign's memory, change
what the campaign compares or how, or make wrong bytes right. What it replaces in torch
or in Python can make this module fail or lie, at its own cost; what tells of late
results is looked up before the import.
"""

import gc
import importlib.util
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from mmap import mmap
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kfuzz.execution.calls.results import raised_by
from kfuzz.execution.calls.torch_state import put_back
from kfuzz.execution.device import simulated
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.device.surroundings import surroundings_of
from kfuzz.execution.interpreter.watch import interpreting, watch
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.processes.wire import Channel, Message, WireError, descendants
from kfuzz.execution.values.fills import seeded
from kfuzz.features.judge.sandbox.contain import Facts
from kfuzz.features.judge.sandbox.meeting import THREADS, Clocks, drawn_constants, meet
from kfuzz.features.judge.sandbox.wire import (
    MOST_NAMES,
    PAGE,
    Geometry,
    Held,
    raw,
    told_results,
    unpacked,
)
from kfuzz.targets.own_code import imports_none

LATE_SECONDS: Final = 0.05
"""How long threads that a call leaves behind may go on before the results are looked at
again."""

MOST_BYTES: Final = 1 << 30
"""Kept for arguments that may come back; those of the call under way come on top."""

MOST_BLOCKS: Final = 64

# Elements of an operation that torch shares among its threads.
_PARALLEL: Final = 1 << 18

_BYTES: Final = torch.uint8
_equal: Final = torch.equal
_synchronize: Final = torch.cuda.synchronize
_sleep: Final = time.sleep
_collect: Final = gc.collect


def attend(
    channel: Channel, facts: Facts, device: str, started: Callable[[], None]
) -> NoReturn:
    """Report what holds, then answer the campaign until it closes the connection.

    Args:
        channel: to the campaign.
        facts: what contains this process.
        device: torch's name of where calls run.
        started: called once all is there that this process starts with.
    """
    try:
        os.register_at_fork(after_in_child=channel.close)
        candidate = Candidate(torch.device(device))
        ailment = candidate.prepare()
        started()
        channel.send({"number": 1, "facts": asdict(facts), "ailment": ailment})
        while True:
            message = channel.receive()
            count = message["given"]
            given = channel.receive_descriptors(count) if count else []
            answer = candidate.answer(message, given)
            for descriptor in given:
                os.close(descriptor)
            channel.send({**answer, "number": message["number"]})
    except WireError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


class Candidate:
    """What the foreign file defines, and the memory that it is called on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._target: Callable[..., Any] | None = None
        self._fixed: dict[int, Any] = {}
        self._blocks = Blocks(device)
        self._held = Held()
        self._threads = 0
        self._clocks = Clocks()

    def prepare(self) -> str:
        """Return why the device does not work here, or ""."""
        # Begun here, so that they are not taken for what a call leaves behind.
        torch.set_num_threads(THREADS)
        torch.ones(_PARALLEL).neg_()
        wrong = backend_of(self._device).ailment(self._device)
        around = surroundings_of(self._device)
        if wrong is None and around is not None:
            around.prepare()
        self._threads = _threads(self._device)
        return wrong or ""

    def answer(self, message: Message, given: Sequence[int]) -> Message:
        """Return the answer to a request."""
        try:
            work = self._open if message["do"] == "open" else self._call
            return work(message, given)
        except BaseException as error:  # `sys.exit` in the file included
            return {"raised": asdict(raised_by(error, self._device))}

    def _open(self, message: Message, given: Sequence[int]) -> Message:
        device, entry = self._device, unpacked(given[0])
        if not backend_of(device).has.on_host:
            share = entry["device_share"]
            torch.cuda.set_per_process_memory_fraction(share, device.index or 0)
        args = pytree.tree_map_only(Tensor, lambda x: x.to(device), entry["args"])
        torch.manual_seed(entry["seed"])
        path = Path(entry["path"])
        simulated.meet(interpreting() and not imports_none(path))
        with simulated.gpu() if simulated.is_met() else nullcontext():
            module = _imported(path)
            found = getattr(module, entry["build"], None)
            if found is None:
                raise AttributeError(f"{path} defines no {entry['build']!r}")
            target = found
            if isinstance(found, type):
                torch.manual_seed(entry["seed"])
                with drawn_constants(drawn=entry["constants_drawn"]):
                    target = found(*args)
        state: dict[str, Tensor] = {}
        loaded = alike = list[str]()
        if isinstance(target, torch.nn.Module):
            target = target.to(device)
            weights = entry["weights"]
            if entry["evaluation"]:
                target.eval()
            state = {**dict(target.named_parameters()), **dict(target.named_buffers())}
            loaded = _load(state, weights)
            alike = _alike(state, weights, loaded)
        self._target, self._fixed = target, entry["fixed"]
        return {"state": list(state), "loaded": loaded, "alike": alike}

    def _call(self, message: Message, given: Sequence[int]) -> Message:
        """Call the target once."""
        target = self._target
        if target is None:
            raise RuntimeError("nothing is built")
        device = self._device
        arguments, results = _mapped(given)
        rooms = [self._blocks.at(*place[:2]) for place in message["rooms"]]
        for room, (_, nbytes, offset) in zip(rooms, message["rooms"], strict=True):
            room.copy_(arguments[offset : offset + nbytes])
        tensors, own, given_as = [], [], []
        places = [place[1] for place in message["tensors"]]
        alone = message["around"]["bare"] and len(set(places)) == len(places)
        for geometry, number, base, stop in message["tensors"]:
            first = rooms[number].storage_offset()
            room = storage = rooms[number].untyped_storage()[
                first + base : first + stop
            ]
            if alone:
                # In memory as torch allocates it, which can be resized.
                as_torch = torch.empty(room.nbytes(), dtype=_BYTES, device=device)
                storage = as_torch.untyped_storage().copy_(room)
                del as_torch
                own.append((room, storage))
            made = Geometry(**geometry)
            tensors.append(made.over(storage, device))
            given_as.append(_Given(tensors[-1], made.over(room, device)))
        poison = Poison(message["poison"])
        positional: list[Any] = [*tensors]
        for position, value in sorted(self._fixed.items()):
            positional.insert(position, value)
        around = surroundings_of(device)
        if around is not None:
            around.forget_errors()
            around.poison(poison)
        allocations = GuardedAllocations(device, poison)
        launches: dict[str, None] = {}
        try:

            def call() -> Any:
                with ExitStack() as watching:
                    if interpreting():
                        watching.enter_context(watch())
                    if not message["around"]["bare"]:
                        watching.enter_context(allocations)
                        watching.enter_context(triton_launches(launches))
                    return target(*positional)

            returned, left = self._met(message["around"], call)
            _untrace()
            told, items = told_results(returned, tensors, self._held, results.numel())
            moved = [(one.lies, one.found()) for one in given_as if one.is_moved()]
            # A result outlives the arguments: what their end sets off comes first.
            del call
            given_as.clear()
            tensors.clear()
            positional.clear()
            _collect(0)
            for room, storage in own:
                if room.nbytes() == storage.nbytes():
                    room.copy_(storage)
            for lies, elements in moved:
                lies.copy_(elements)
            lingers = _threads(device) > self._threads
            looked_at = [*items, *rooms]
            firsts = None
            if backend_of(device).has.asynchronous or lingers:
                firsts = _copies(looked_at)
            if backend_of(device).has.asynchronous:
                _synchronize(device)
            if lingers:
                _sleep(LATE_SECONDS)
        except BaseException as error:
            _untrace()
            raised = asdict(raised_by(error, device))
            if raised["memory"]:
                self._blocks.clear()
                self._held.clear()
            return {"raised": raised}
        now = [raw(t) for t in looked_at]
        copies = now if firsts is None else firsts
        late = firsts is not None and not all(map(_equal, firsts, now))
        for item in told["items"]:
            if "carried" in item:
                _put(results, item["at"], copies[item["carried"]])
        for copy, (_, _, offset) in zip(
            copies[len(items) :], message["rooms"], strict=True
        ):
            _put(arguments, offset, copy)
        self._blocks.trim()
        words = {
            "operators": [*allocations.foreign],
            "kernels": [*launches],
            "left": [*left],
            "strays": [t.describe() for t in allocations.touches()],
        }
        told["words"] = {name: each[:MOST_NAMES] for name, each in words.items()}
        return {"returned": {**told, "late": late}}

    def _met(
        self, around: Message, call: Callable[[], Any]
    ) -> tuple[Any, tuple[str, ...]]:
        """Call with what surrounds a call; return what came of it, and what it left.

        What cannot be called with grad mode on, as kernels for inference need not, is
        called without.
        """
        device = self._device
        torch.set_num_threads(int(around["threads"]))
        with (
            seeded(device, 0),
            torch.set_grad_enabled(bool(around["grad"])),
            put_back() as left,
        ):
            meet(self._clocks, device, around)
            try:
                returned = call()
            except Exception:
                if not around["grad"]:
                    raise
                with torch.no_grad():
                    returned = call()
        return returned, tuple(left)


class Blocks:
    """Gives an argument that lies where one lay before the memory that it had.

    A kernel that remembers addresses meets them again as it would in the campaign.

    Attributes:
        device: where the memory is.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._blocks: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

    def at(self, address: int, nbytes: int) -> Tensor:
        """Return uint8 memory that stands for that at an address of the campaign's.

        It starts as many bytes behind a page's start as that does.

        Args:
            address: in the campaign.
            nbytes: its size.
        """
        key = address, nbytes
        block = self._blocks.pop(key, None)
        if block is None:
            room = torch.empty(nbytes + PAGE, dtype=torch.uint8, device=self.device)
            skip = (address - room.data_ptr()) % PAGE
            block = room[skip : skip + nbytes]
        self._blocks[key] = block
        return block

    def trim(self) -> None:
        """Let go of what was not used for longest, once there is too much."""
        total = sum(block.numel() for block in self._blocks.values())
        while self._blocks and (total > MOST_BYTES or len(self._blocks) > MOST_BLOCKS):
            _, block = self._blocks.popitem(last=False)
            total -= block.numel()

    def clear(self) -> None:
        """Let go of everything."""
        self._blocks.clear()


@contextmanager
def triton_launches(names: dict[str, None]) -> Iterator[None]:
    """Note the names of the kernels that Triton launches meanwhile, if it is there.

    By Triton's own hook: torch's profiler sees nothing in a forked process, and takes
    seconds to say so (measured on an H100).
    """
    triton: Any = sys.modules.get("triton")
    hooks = getattr(getattr(triton, "knobs", None), "runtime", None)
    chain: Any = getattr(hooks, "launch_enter_hook", None)
    if not hasattr(chain, "add"):
        yield
        return

    def enter(metadata: Any) -> None:
        name = getattr(metadata, "data", {}).get("name")
        if name:
            names[str(name)] = None

    chain.add(enter)
    try:
        yield
    finally:
        chain.remove(enter)


def _mapped(given: Sequence[int]) -> list[Tensor]:
    """Return shared memory as uint8 tensors."""
    return [
        torch.frombuffer(mmap(fd, os.fstat(fd).st_size), dtype=_BYTES) for fd in given
    ]


class _Given:
    """An argument, and where it lies.

    Attributes:
        lies: one view of each of its elements where they are looked at after the call.
    """

    def __init__(self, tensor: Tensor, lies: Tensor) -> None:
        self._tensor, self._geometry = tensor, Geometry.of(tensor)
        self._at, self._nbytes = tensor.data_ptr(), tensor.untyped_storage().nbytes()
        self.lies = self._once(lies)

    def is_moved(self) -> bool:
        """Whether the caller finds it in other memory, or in another form."""
        same = self._is_in_form() and self._tensor.data_ptr() == self._at
        return not same or self._tensor.untyped_storage().nbytes() != self._nbytes

    def found(self) -> Tensor:
        """Return what the caller finds in it; other numbers if it has another form."""
        if self._is_in_form():
            return self._once(self._tensor).clone()
        return self.lies == 0

    def _is_in_form(self) -> bool:
        now, was = Geometry.of(self._tensor), self._geometry
        room = self._tensor.untyped_storage().nbytes()
        return (now.shape, now.dtype) == (was.shape, was.dtype) and now.reach <= room

    def _once(self, x: Tensor) -> Tensor:
        for axis, step in enumerate(self._geometry.strides):
            if step == 0 and x.shape[axis] > 1:
                x = x.narrow(axis, 0, 1)
        return x


def _put(memory: Tensor, offset: int, data: Tensor) -> None:
    memory[offset : offset + data.numel()].copy_(data)


def _copies(tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """Copy elements on the current stream, as whoever uses the results would.

    None where there is no memory for them.
    """
    try:
        return [raw(tensor).clone() for tensor in tensors]
    except torch.OutOfMemoryError:
        return None


def _threads(device: torch.device) -> int:
    """Return how many threads and processes there are that may write results.

    On a GPU the driver's own are not told from others: Python's alone count.
    """
    if not backend_of(device).has.on_host:
        return threading.active_count()
    return len(os.listdir("/proc/self/task")) + len(descendants("self"))


def _untrace() -> None:
    """Stop what the call may have set to follow every line of this module."""
    sys.settrace(None)
    sys.setprofile(None)


def _imported(path: Path) -> ModuleType:
    """Import the file, its own folder first in the path as `python FILE` has it."""
    sys.path.insert(0, str(path.parent))
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"{path.stem}_file" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load(state: dict[str, Tensor], weights: dict[str, Tensor]) -> list[str]:
    """Copy tensors into those of the same name and shape; return their names."""
    loaded = []
    with torch.no_grad():
        for name, weight in weights.items():
            own = state.get(name)
            if own is not None and own.shape == weight.shape:
                own.copy_(weight)
                loaded.append(name)
    return loaded


def _alike(
    state: dict[str, Tensor], weights: dict[str, Tensor], loaded: Sequence[str]
) -> list[str]:
    """Return the names of the weights that another holds, in order or transposed."""
    own = [x.cpu().reshape(-1) for name, x in state.items() if name not in loaded]
    return [
        name
        for name, x in weights.items()
        if name not in loaded
        and any(
            torch.equal(y.to(x.dtype), form.reshape(-1))
            for y in own
            for form in ((x, x.mT) if x.dim() == 2 else (x,))
        )
    ]
