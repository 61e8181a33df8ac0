"""Does `kfuzz diff` find what changed between releases, and call the rest equal?

    python -m tests.benchmarks.releases --keep FOLDER [--only 0.8.2] [--cases 100]

What changed is what the releases' own notes and threads name, see `known_faults`; what
is to be equal has the same source in both, or a change that its comment calls none.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.hunt import wheels

BINDINGS = Path(__file__).parent / "known_faults" / "bindings"
# Package, releases, what differs, what is equal.
PAIRS = [
    ("liger-kernel", "0.3.0", "0.3.1", "losses:kl_div_with_mean", "norms:rms_norm"),
    ("liger-kernel", "0.4.2", "0.5.0", "losses:cross_entropy_none", "rotary:geglu"),
    ("liger-kernel", "0.5.3", "0.5.4", "norms:layer_norm", "rotary:swiglu"),
    ("liger-kernel", "0.6.0", "0.6.1", "norms:layer_norm_of_halves", "rotary:swiglu"),
    ("liger-kernel", "0.8.1", "0.8.2",
     "losses:fused_linear_cross_entropy_none.backward", "norms:rms_norm"),
    ("fla-core", "0.3.2", "0.4.0", "recurrent:normalised_linear_attention",
     "modules:swish"),
    ("fla-core", "0.4.1", "0.4.2", "modules:swish", "modules:layer_norm"),
    ("fla-core", "0.5.0", "0.5.1", "modules:bias_gelu.backward", "modules:swish"),
    ("fla-core", "0.5.1", "0.5.2", "modules:l2_penalty", "modules:swish"),
    ("fla-core", "0.5.2", "0.6.0", "sequences:local_cumsum", "modules:sigmoid"),
]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--cases", type=int, default=100)
    given = parser.parse_args()
    path = [str(wheels.shared(given.keep)), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    print("| releases | function | expected | found | first, or cases | seconds |")
    print("|---|---|---|---|---|---|", flush=True)
    for package, old, new, changed, same in PAIRS:
        if given.only not in (old, new, "", package):
            continue
        for version in (old, new):
            wheels.install(given.keep, package, version)
        for name, expected in ((changed, "differ"), (same, "equal")):
            file, _, kernel = name.partition(":")
            family = package.partition("-")[0]
            target = f"{BINDINGS / f'{family}_{file}.py'}::{kernel}"
            words = [f"{package}=={v}::{target}" for v in (old, new)]
            words += [f"--environment={given.keep}", f"--max-cases={given.cases}"]
            command = [sys.executable, "-m", "kfuzz", "diff", *words]
            began = time.monotonic()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True
            )
            seconds = time.monotonic() - began
            head, *rest = done.stdout.splitlines() or done.stderr.splitlines()[-1:]
            found = {0: "equal", 1: "differ"}.get(done.returncode, "not compared")
            told = head.partition(": ")[2] or head
            told += "".join(f"; {r.strip()}" for r in rest if " line " in r[:8])
            print(
                f"| {package} {old}, {new} | {kernel} | {expected} | {found} "
                f"| {told} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
