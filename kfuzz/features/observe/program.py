"""The process in which a program is observed.

python -m kfuzz.features.observe.program FOLDER SCRIPT [ARGUMENT …]
"""

import os
import runpy
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from kfuzz.execution.device import simulated
from kfuzz.execution.interpreter.watch import interpreting, watch
from kfuzz.features.observe.watching import Watching, write


def main(folder: Path, script: str, arguments: list[str]) -> None:
    """Run a program as Python would, and keep what it launched."""
    import triton.runtime.interpreter  # noqa: F401 - what is not loaded is not hooked

    watching = Watching()
    ended = os._exit

    def leave(status: int) -> NoReturn:
        write(watching.callees, folder)
        ended(status)

    os._exit = leave
    sys.argv = [script, *arguments]
    # What Python puts there for a script, in the place of what it put for this module.
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        with ExitStack() as around:
            if interpreting():
                around.enter_context(simulated.gpu())
                around.enter_context(watch())
            around.enter_context(watching.on())
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.setprofile(None)
        write(watching.callees, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
