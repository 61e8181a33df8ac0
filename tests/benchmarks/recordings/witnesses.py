"""Record the correct Triton witnesses.

python -m tests.benchmarks.recordings.witnesses --device interpret --out DIR [OPTION …]

Further options are those of `kfuzz record`.
"""

import sys

from kfuzz.app import main
from kfuzz.contracts.witnesses.roster import everywhere


def targets() -> list[str]:
    """Return the targets that name the correct witnesses of both devices, each once."""
    return [
        f"kfuzz.contracts.witnesses.{w.module}:{w.kernel}"
        for w in everywhere().values()
        if w.conforming and {"interpret", "cuda"} <= set(w.backends)
    ]


if __name__ == "__main__":
    sys.exit(main(["record", *targets(), *sys.argv[1:]]))
