"""Tuners that are none of Triton's: a chosen configuration in place of their timing.

Two kinds are known. One asks `triton.testing` how long each configuration takes: it is
told, without a call, so that the chosen one comes out fastest. The other goes through a
list of configurations in a loop, launches each and reads a clock: the list is made
short before the first launch, and the call begun again. What they keep of it, by key or
once for all, they forget after the call: the configuration follows from the case alone.

Triton is not imported here: it is found where it is loaded.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from kfuzz.execution.calls.autotuning import declined
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.calls.tuner_frames import (
    Loop,
    Memory,
    frames_below,
    loop_of,
    memory_of,
    reads_a_clock,
    words,
    words_of,
)

BENCHMARKS: Final = ("do_bench", "do_bench_cudagraph")
"""The functions of `triton.testing` that time another one."""

ROUNDS: Final = 64
"""How often a call is begun again at most."""

Stack = tuple[tuple[object, int], ...]


@dataclass
class _Ranking:
    """The times that one loop has been told in one call.

    Attributes:
        count: how many.
        winner: number of the fastest.
        words: what it is.
    """

    count: int = 0
    winner: int = 0
    words: str = ""


class _Found(BaseException):
    """A tuner's own loop is about to launch a configuration.

    Not an Exception: a tuner that passes over what raises is not to catch it.
    """


@dataclass
class Known:
    """What this process knows of the tuners that a kernel has come to.

    Attributes:
        loops: the lists of configurations that they go through.
        memories: what they may keep of it, by what told of it.
        rejected: lists that turned out to be no tuner's.
    """

    loops: list[Loop] = field(default_factory=list)
    memories: dict[object, Memory] = field(default_factory=dict)
    rejected: list[Any] = field(default_factory=list)


_known: Final["WeakKeyDictionary[object, Known]"] = WeakKeyDictionary()


class Choice:
    """What tuners are told in the calls of one session.

    Args:
        chosen: returns the number of the configuration, modulo how many there are.
        note: told which one ran, in words, and of how many.
        patches: those of the session.

    Attributes:
        used: whether tuners take part in the call.
        launches: how often the call has launched a kernel of a loop's.
    """

    def __init__(
        self,
        chosen: Callable[[], int],
        note: Callable[[str, int], None],
        patches: Patches,
    ) -> None:
        self.used = False
        self.launches = 0
        self._chosen = chosen
        self._note = note
        self._patches = patches
        self._counts = False
        self._known = Known()
        self._twice = True
        self._rankings: dict[Stack, _Ranking] = {}
        self._refused: dict[tuple[Stack, int], BaseException] = {}
        self._found: Loop | None = None
        # Passed over, in the loops; and whether it is tried if they launch anything.
        self._turn = 0
        self._trying = False
        self._rounds = 0

    def begin(self, known: Known, twice: bool) -> None:
        """Begin a call, or begin it again.

        Args:
            known: of the tuners of its kernel.
            twice: whether a call that returns may be made again.
        """
        self._known, self._twice = known, twice
        self.used, self.launches = bool(known.loops or known.memories), 0
        self._rankings.clear()
        if known.loops:
            self._count_launches()
        for loop in known.loops:
            if not self._trying:
                loop.hold(self._of(loop))

    def end(self, error: BaseException | None) -> bool:
        """End a call that tuners took part in; return whether to begin it again."""
        for loop in self._known.loops:
            loop.hold(*loop.configs)
        for memory in self._known.memories.values():
            memory.forget()
        self._rounds += 1
        again = self._rounds < ROUNDS and self._is_to_go_on(error)
        if not again:
            if error is None:
                self._tell()
            self._refused.clear()
            self._turn, self._trying, self._rounds = 0, False, 0
        return again

    def _is_to_go_on(self, error: BaseException | None) -> bool:
        found, self._found = self._found, None
        if self._trying:
            self._trying = False
            return found is not None and self._pass_over()
        if found is not None:  # whatever became of the exception
            self._known.loops.append(found)
        if found is not None or isinstance(error, _Found):
            return True
        refused = error is not None and declined(error)
        if refused and self._rankings:
            stack, ranking = list(self._rankings.items())[-1]
            left = ranking.count - sum(s == stack for s, _ in self._refused)
            if left > 1 and error is not None:
                self._refused[stack, ranking.winner] = error
                return True
        if not self._known.loops:
            return False
        if not self.launches and (self._twice or error is not None):
            # The tuner does not take the chosen one, or nothing is to be done.
            self._trying = True
            return True
        if self.launches == 1 and error is None:
            # Nobody measures and launches nothing then: it is the first that fits, or
            # one pass of several.
            self._give_up()
            return True
        return refused and self._pass_over()

    def _pass_over(self) -> bool:
        """Take the next configuration; give the loops up if there is none left."""
        self._turn += 1
        if self._turn >= max(len(loop.configs) for loop in self._known.loops):
            self._give_up()
        return True

    def _give_up(self) -> None:
        """Take it that the loops are no tuner's."""
        loops = self._known.loops
        self._known.rejected += [each for loop in loops for each in loop.lists]
        self._known.rejected += [v[n] for loop in loops for v, n in loop.places]
        for loop in loops:
            self._known.memories.pop(id(loop), None)
        loops.clear()

    def _of(self, loop: Loop) -> Any:
        return loop.configs[(self._chosen() + self._turn) % len(loop.configs)]

    def _count_launches(self) -> None:
        """Count them, where kernels are compiled."""
        compiled = _jit_function()
        if not self._counts and compiled is not None:
            _precede(compiled, "run", self._launches, self._patches)
        self._counts = True

    def _launches(self, names: frozenset[str]) -> None:
        if any(loop.names == names for loop in self._known.loops):
            self.launches += 1
            if self._trying:
                self._found = self._known.loops[0]
                raise _Found

    def _tell(self) -> None:
        told = [(r.words, r.count) for r in self._rankings.values()]
        for loop in self._known.loops:
            told.append((words(self._of(loop)), len(loop.configs)))
        several = [each for each in told if each[1] > 1]
        if several:
            ran = ", ".join(each for each, _ in several)
            self._note(ran, max(count for _, count in several))

    def time(self, function: Callable[[], object]) -> float:
        """Return a time for what would be called to measure a configuration."""
        frames = list(frames_below(_CALLED))
        if not frames:  # it is in no call by `choosing`
            return 1.0
        self.used = True
        stack = tuple((frame.f_code, frame.f_lasti) for frame in frames)
        if stack not in self._known.memories:
            self._known.memories[stack] = memory_of(frames)
        ranking = self._rankings.setdefault(stack, _Ranking())
        number, ranking.count = ranking.count, ranking.count + 1
        if (error := self._refused.get((stack, number))) is not None:
            raise error
        refused = [n for s, n in self._refused if s == stack]
        place = number - sum(n < number for n in refused)
        # Their number is not known before the last one. So the k-th is the fastest of
        # the first k for every k-th choice: in the end each is for as many choices.
        if place and self._chosen() % (place + 1) != place:
            return 2.0 + number
        ranking.winner = number
        ranking.words = words_of(function) or f"configuration {number + 1}"
        return 1.0 / (1 + number)

    def launch(self, names: frozenset[str]) -> None:
        """Take it that a kernel with parameters of these names is to be launched.

        Raises:
            _Found: if a tuner launches it to measure.
        """
        self._launches(names)
        self.compile(names)

    def compile(self, names: frozenset[str]) -> None:
        """Take it that it is to be compiled, for a launch; as `launch`."""
        if self._found is not None:
            raise _Found
        if not self._twice:  # it might have to be made again
            return
        frames = list(frames_below(_CALLED))
        if not reads_a_clock(frames):
            return
        loop = loop_of(frames, names, self._known.rejected)
        if loop is not None:
            self._found, self.used = loop, True
            self._known.memories[id(loop)] = memory_of(frames)
            raise _Found


_current: Choice | None = None


def choosing(
    call: Callable[..., Any], kernel: object, *, twice: bool = True
) -> Callable[..., Any]:
    """Return a kernel's call in which tuners come to the configuration of the case.

    Args:
        call: the call.
        kernel: whose tuners they are.
        twice: whether it may be made again though it has returned: not where it
            overwrites what it is given.
    """
    known = _known.setdefault(kernel, Known())

    def called(*args: Any, **named: Any) -> Any:
        choice = _current
        if choice is None:
            return call(*args, **named)
        choice.begin(known, twice)
        while True:
            try:
                returned = call(*args, **named)
            except BaseException as error:
                if not choice.used or not choice.end(error):
                    raise
            else:
                if not choice.used or not choice.end(None):
                    return returned
            choice.begin(known, twice)

    return called


_CALLED: Final = choosing(print, print).__code__


def install(
    chosen: Callable[[], int], note: Callable[[str, int], None], patches: Patches
) -> None:
    """Have tuners come to a chosen configuration until the patches are undone.

    That holds in calls by `choosing`.

    Args:
        chosen: returns the number of the configuration, modulo how many there are.
        note: told which one ran, in words, and of how many.
        patches: takes what is replaced.
    """
    choice = Choice(chosen, note, patches)
    patches.set(sys.modules[__name__], "_current", choice)
    testing: Any = sys.modules.get("triton.testing")
    for name in BENCHMARKS:
        function = getattr(testing, name, None)
        if inspect.isfunction(function) and not function.__closure__:
            _answer(function, f"_kfuzz_{name}", choice, patches)
    compiled = _jit_function()
    if hasattr(compiled, "_do_compile"):
        # A launch that compiles nothing is the second of its configuration.
        _precede(compiled, "_do_compile", choice.compile, patches)
    module: Any = sys.modules.get("triton.runtime.interpreter")
    if module is not None:
        _precede(module.InterpretedFunction, "run", choice.launch, patches)


def _jit_function() -> Any:
    return getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)


def _precede(
    owner: Any, name: str, told: Callable[[frozenset[str]], None], patches: Patches
) -> None:
    """Have a method of kernels tell the names of the parameters first."""
    method = getattr(owner, name)

    def first(self: Any, *args: Any, **named: Any) -> Any:
        told(frozenset(self.arg_names))
        return method(self, *args, **named)

    patches.set(owner, name, first)


def _answer(function: Any, name: str, choice: Choice, patches: Patches) -> None:
    """Have a function that times another one ask a choice instead.

    Under whatever name it was imported: its code is replaced, not what names it.
    """
    signature = _signature(function)

    def answer(args: Any, named: Any) -> Any:
        asked = signature.bind(*args, **named)
        asked.apply_defaults()
        given = asked.arguments
        time = choice.time(given["fn"])
        if given.get("quantiles"):
            times = [time] * len(given["quantiles"])
            return times if len(times) > 1 else time
        return [time] if given.get("return_mode") == "all" else time

    patches.set(sys.modules[function.__module__], name, answer)
    stub = _stub(name)
    for part in ("__code__", "__defaults__", "__kwdefaults__"):
        patches.set(function, part, getattr(stub, part))


# Of functions whose code is not replaced yet.
_signature: Final = functools.cache(inspect.signature)


@functools.cache
def _stub(name: str) -> Any:
    """Return a function that has a global of where its code comes to stand answer."""
    made: dict[str, Any] = {}
    exec(f"def stub(*args, **named): return {name}(args, named)", made)
    return made["stub"]
