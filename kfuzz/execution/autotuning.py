"""`@triton.autotune` where nothing can be timed: one configuration, chosen."""

from collections.abc import Callable
from typing import Any

from kfuzz.execution.patches import Patches


def install(
    tuner: Any,
    chosen: Callable[[], int],
    note: Callable[[str, int], None],
    patches: Patches,
) -> None:
    """Have autotuned kernels run a chosen configuration until the patches are undone.

    Those that prune configurations and those that prepare arguments are asked as
    before; what the autotuner has cached neither counts nor changes.

    Args:
        tuner: `triton.runtime.autotuner.Autotuner`.
        chosen: returns the number of the configuration, modulo how many there are.
        note: told which one ran, in words, and of how many.
        patches: takes what is replaced.
    """
    original = tuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        every = self.configs
        if len(every) < 2:
            note(str(every[0]), 1)
            return original(self, *args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        pruned = list(self.prune_configs(kwargs))
        first = chosen()
        for turn in range(len(pruned)):
            config = pruned[(first + turn) % len(pruned)]
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            # What follows the timing on a first call.
            arguments = {**self.nargs, **kwargs, **config.all_kwargs()}
            self.pre_hook(arguments, reset_only=True)
            self.configs = [config]
            try:
                result = original(self, *args, **kwargs)
            except Exception as error:
                if turn + 1 == len(pruned) or not _declined(error):
                    raise
                continue
            finally:
                self.configs = every
            note(str(config), len(pruned))
            return result
        raise AssertionError("the last configuration returned or raised")

    patches.set(tuner, "run", run)


def _declined(error: BaseException | None) -> bool:
    """Whether a `tl.static_assert` failed: the autotuner passes such ones over."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_name == "_new_static_assert":
                return True
            trace = trace.tb_next
        error = error.__cause__
    return False
