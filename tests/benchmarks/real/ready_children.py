"""How soon a fresh child is ready, once the file under test has been imported.

    python -m tests.benchmarks.real.ready_children --device cuda [FILE::NAME]

Each child is forked from the template that imported the file, opens the kernel and
says that it is ready; on a GPU it has a context then.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Final

from kfuzz.cli.searching import homes
from kfuzz.contracts.classes import CLASSES
from kfuzz.engine.config import RunConfig
from kfuzz.engine.workers import zygotes
from kfuzz.engine.workers.backend import Backend, budget_for
from kfuzz.engine.workers.children import Children, Place
from kfuzz.engine.workers.templates import home_of
from kfuzz.targets.load import load_all

LIGER: Final = f"{Path(__file__).parent / 'liger.py'}::liger_softmax"


def main() -> None:
    """Print the seconds of each child and their median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", default=LIGER)
    parser.add_argument("--device", default="interpret")
    parser.add_argument("--children", type=int, default=20)
    options = parser.parse_args()
    root = Path.cwd()
    config = RunConfig(targets=(options.target,), root=root, corpus=root)
    zygotes.begin_here(options.device, homes(config))
    [loaded] = load_all((options.target,), root=root)
    backend = Backend(options.device)
    place = Place(
        device=backend.device,
        backend=backend.name,
        budget=budget_for(loaded.kernel, backend.name),
        classes=tuple(sorted(CLASSES)),
        root=root,
    )
    home = home_of(loaded.source, root)
    fork = partial(backend.fork, None, home=home, expired=lambda: False)
    children = Children(loaded, place, fork, lambda: False)
    took = []
    try:
        for _ in range(options.children + 1):
            since = time.monotonic()
            [child] = children.fresh(1)
            took.append(time.monotonic() - since)
            child.discard()
        shared = backend.shares(home)
    finally:
        children.close()
        backend.close()
    each = ", ".join(f"{seconds:.2f}" for seconds in took)
    print(f"{options.target}, from a template: {shared}; seconds: {each}")
    print(f"median without the first: {statistics.median(took[1:]):.3f} s")


if __name__ == "__main__":
    main()
