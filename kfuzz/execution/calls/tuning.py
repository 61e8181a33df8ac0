"""`@triton.autotune` without its clock: a chosen configuration, or a short measurement.

So are the autotuners of libraries that are classes made from Triton's, whatever they do
in place of its `run`. Triton is not imported here: its autotuner is given, or found
where it is loaded.
"""

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

from kfuzz.execution.calls.compiling import at_work
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device.simulated import absent

MODULE: Final = "triton.runtime.autotuner"
"""Where Triton's autotuner is, once a kernel has imported it."""

CALLS: Final = 2
"""Calls of each configuration while an autotuner measures: what the first one leaves
and nothing restores is what the second one finds."""

BENCHMARKS: Final = ("do_bench", "do_bench_cudagraph")
"""The functions of `triton.testing` that time another one."""

# What the autotuner passes over in a configuration: see its `_bench`.
_REFUSALS: Final = frozenset(
    {"OutOfResources", "CompileTimeAssertionFailure", "PTXASError", "InvalidConfig"}
)

# Classes made from the autotuner whose own `run` is known to end in Triton's.
_ending: Final[set[type]] = set()


class Measuring:
    """Calls in which autotuners measure, as after the start of a program.

    What they had cached is out of their sight until the block ends, and what they
    find out is forgotten with it. A context manager.

    Args:
        most: configurations that an autotuner measures at most: the chosen one and
            those after it.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._seen: dict[int, Any] = {}
        self._patches = Patches()
        self._ranks: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.undo()
        self._seen.clear()

    def begin(self, tuner: Any) -> None:
        """Empty an autotuner's caches, at its first launch in the block."""
        if id(tuner) not in self._seen:
            self._seen[id(tuner)] = tuner  # kept, or another could get its id
            self._patches.set(tuner, "cache", {})
            self._patches.set(tuner, "cache_results", False)

    def shortened(self, pruned: list[Any], chosen: int) -> list[Any]:
        """Return the configurations to measure, in their order.

        Args:
            pruned: what pruning leaves.
            chosen: number of the one that is to come out fastest, modulo how many.
        """
        count = len(pruned)
        first = chosen % count
        taken = sorted((first + i) % count for i in range(min(self.most, count)))
        self._ranks = [(place - first) % count for place in taken]
        return [pruned[place] for place in taken]

    def rank(self) -> float:
        """Return a time for the next configuration: the chosen one has the least."""
        return float(self._ranks.pop(0)) if self._ranks else math.inf


def install(
    tuner: Any,
    chosen: Callable[[], int],
    measuring: Callable[[], Measuring | None],
    note: Callable[[str, int], None],
    patches: Patches,
) -> None:
    """Have autotuned kernels run a chosen configuration until the patches are undone.

    Those that prune configurations and those that prepare arguments are asked as
    before. One that the compiler or the device refuses is passed over for the next.
    Unless they measure, what autotuners have cached neither counts nor changes. Classes
    made from the autotuner are dealt with like it.

    Args:
        tuner: `triton.runtime.autotuner.Autotuner`.
        chosen: returns the number of the configuration, modulo how many there are.
        measuring: returns the block in which they measure, None where they do not.
        note: called with which one ran, in words, and of how many.
        patches: takes what is replaced.
    """
    prune, bench = tuner.prune_configs, tuner._bench
    running: set[int] = set()  # those that run a configuration now

    def chosen_by(owner: Any) -> Callable[..., Any]:
        launch, is_own = owner.run, owner is not tuner

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            every, block = self.configs, measuring()
            if id(self) in running:
                _ending.add(type(self))
                return launch(self, *args, **kwargs)
            if len(every) < 2:
                note(str(every[0]), 1)
                return launch(self, *args, **kwargs)
            if block is not None and is_own:
                if type(self) in _ending:
                    return launch(self, *args, **kwargs)
                block = None  # what its own code measures it may keep for ever
            if block is not None:
                block.begin(self)
                result = launch(self, *args, **kwargs)
                note(str(self.best_config), len(every))
                return result
            running.add(id(self))
            try:
                return one_of(self, launch, is_own, args, kwargs)
            finally:
                running.discard(id(self))

        return run

    def one_of(
        self: Any,
        launch: Callable[..., Any],
        is_own: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the chosen configuration, or the next that is not refused."""
        every = self.configs
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        pruned = list(self.prune_configs(kwargs))
        first = chosen()

        def attempt(turn: int) -> Any:
            config = pruned[(first + turn) % len(pruned)]
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            # What follows the timing on a first call.
            arguments = {**self.nargs, **kwargs, **config.all_kwargs()}
            if not is_own or _takes(self.pre_hook, "reset_only"):
                self.pre_hook(arguments, reset_only=True)
            own = Patches()
            if "cache" in vars(self):
                own.set(self, "cache", {})
            self.configs = [config]
            try:
                result = launch(self, *args, **kwargs)
            finally:
                self.configs = every
                own.undo()
            note(str(config), len(pruned))
            return result

        return _first_taken(attempt, len(pruned))

    def pruned(self: Any, kwargs: Any) -> Any:
        left, block = list(prune(self, kwargs)), measuring()
        if block is None or not left or id(self) in running:
            return left
        return block.shortened(left, chosen())

    def benched(self: Any, *args: Any, **kwargs: Any) -> Any:
        block = measuring()
        if block is None or id(self) in running:
            return bench(self, *args, **kwargs)
        own = Patches()
        own.set(self, "do_bench", _called)
        try:
            times = bench(self, *args, **kwargs)
        finally:
            own.undo()
        rank = block.rank()
        return [rank] * 3 if math.isfinite(times[0]) else times

    made = {owner: chosen_by(owner) for owner in _running(tuner)}
    for owner, run in made.items():
        patches.set(owner, "run", run)
    patches.set(tuner, "prune_configs", pruned)
    patches.set(tuner, "_bench", benched)


def measure_nothing(patches: Patches) -> None:
    """Have `triton.testing` measure nothing until the patches are undone.

    It calls once what it is to time: all times are equal, on any machine. Under
    whatever name its functions were imported: their code is replaced.
    """
    testing: Any = sys.modules.get("triton.testing")
    for name in BENCHMARKS:
        function = getattr(testing, name, None)
        if not inspect.isfunction(function) or function.__closure__:
            continue
        answer, stub = _stub(name, function)
        patches.set(testing, f"_kfuzz_{name}", answer)
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            patches.set(function, part, getattr(stub, part))


@functools.cache
def _stub(name: str, function: Any) -> tuple[Callable[..., Any], Any]:
    """Return what answers for a function, and a function that asks it."""
    scope: dict[str, Any] = {}
    exec(f"def stub(*args, **named): return _kfuzz_{name}(args, named)", scope)
    answer = functools.partial(_answered, inspect.signature(function))
    return answer, scope["stub"]


def _answered(signature: inspect.Signature, args: Any, named: Any) -> Any:
    """Call once what is to be timed; return a time in the form that is asked for."""
    asked = signature.bind(*args, **named)
    asked.apply_defaults()
    given = asked.arguments
    given["fn"]()
    if given.get("quantiles"):
        times = [1.0] * len(given["quantiles"])
        return times if len(times) > 1 else times[0]
    return [1.0] if given.get("return_mode") == "all" else 1.0


def loaded(module: str = MODULE, name: str = "Autotuner") -> Any:
    """Return a class of a module, Triton's autotuner; None where it is not loaded."""
    return getattr(sys.modules.get(module), name, None)


def _running(tuner: Any) -> Iterator[Any]:
    """Yield an autotuner, and the classes made from it that run in their own way."""
    yield tuner
    for made in tuner.__subclasses__():
        yield from (each for each in _running(made) if "run" in vars(each))


def _takes(function: Callable[..., object], name: str) -> bool:
    """Whether a function has a parameter of a name."""
    parameters = inspect.signature(function).parameters
    kinds = (p.kind for p in parameters.values())
    return name in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _called(kernel: Callable[[], object], *_: object, **__: object) -> list[float]:
    """Call a kernel a few times, as a benchmark does, and time nothing."""
    try:
        for _turn in range(CALLS):
            kernel()
    except Exception as error:
        if not declined(error):
            raise
        return [math.inf] * 3
    return [0.0] * 3


def _first_taken(attempt: Callable[[int], Any], most: int) -> Any:
    """Return what the first of several turns gives that is not refused, or the last."""
    for turn in range(most - 1):
        try:
            return attempt(turn)
        except Exception as error:
            if not declined(error):
                raise
    return attempt(max(most - 1, 0))


def declined(error: BaseException | None) -> bool:
    """Whether the compiler or the device refuses one configuration.

    The autotuner passes such ones over. In Triton's interpreter it is a
    `tl.static_assert` that failed.
    """
    kind = type(error)
    if (
        kind.__module__.startswith(("triton.", "helion."))
        and kind.__name__ in _REFUSALS
    ):
        return True
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_name == "_new_static_assert":
                return True
            trace = trace.tb_next
        error = error.__cause__
    return False


# Helion, which tunes a kernel on its first call unless it has one configuration.

HELION: Final = "helion.runtime.kernel"


def install_helion(
    kernel: Any,
    chosen: Callable[[], int],
    note: Callable[[str, int], None],
    patches: Patches,
) -> None:
    """Have Helion's kernels run a chosen configuration, as `install` does.

    One without configurations runs the default one.

    Args:
        kernel: `helion.runtime.kernel.Kernel`.
        chosen: as of `install`.
        note: as of `install`.
        patches: as of `install`.
    """
    launch = kernel.__call__

    def call(self: Any, *args: Any, **named: Any) -> Any:
        if self.settings.ref_mode.value != "off":  # it runs whole dimensions at once
            return launch(self, *args, **named)
        given = self.normalize_args(*args, **named)
        with at_work(), absent():  # it traces with tensors that are of the host
            bound = self.bind(given)
        every = list(self.configs) or [bound.config_spec.default_config()]
        first = chosen()

        def attempt(turn: int) -> Any:
            config = every[(first + turn) % len(every)]
            with at_work(), absent():
                compiled = bound.compile_config(config)
            returned = compiled(*given)
            options = (f"{name}: {value}" for name, value in dict(config).items())
            note("; ".join(options).replace(", ", ",").replace("; ", ", "), len(every))
            return returned

        return _first_taken(attempt, len(every))

    patches.set(kernel, "__call__", call)


# Tuners that are none of Triton's, by what a binding names in `tuners=`.
#
# Lists of configurations hold the case's alone during a call, and what tuners cache is
# empty: the configuration follows from the case.


def held(call: Callable[..., Any], tuners: Sequence[Any]) -> Callable[..., Any]:
    """Return a kernel's call in which its tuners have the case's configuration.

    One that the compiler or the device refuses is passed over for the next.

    Args:
        call: the call.
        tuners: as `BoundKernel.tuners`.
    """
    from kfuzz.execution.interpreter.watch import current  # it imports this module

    if not tuners:
        return call

    def called(*args: Any, **named: Any) -> Any:
        kept = [each.copy() for each in tuners]
        lists = [each for each in kept if isinstance(each, list)]
        most = max(map(len, lists), default=0)

        def attempt(turn: int) -> Any:
            ran = []
            for own, every in zip(tuners, kept, strict=True):
                own.clear()
                if isinstance(own, list) and every:
                    own.append(every[(current().tuned + turn) % len(every)])
                    ran.append(str(own[0]))
            try:
                returned = call(*args, **named)
                if most > 1:
                    current().config, current().configs = ", ".join(ran), most
                return returned
            finally:
                for own, every in zip(tuners, kept, strict=True):
                    own.clear()
                    own.extend(every) if isinstance(own, list) else own.update(every)

        return _first_taken(attempt, most)

    return called
