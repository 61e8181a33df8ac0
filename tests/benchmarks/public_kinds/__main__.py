"""Faults from public threads: at how many seeds is each found, how soon, as what?

    python -m tests.benchmarks.public_kinds --seeds 10 --at-once 6

Each file binds `faulty` and `fixed`. A command of its own searches `faulty`: at the
first seed for all the time given, at each further one until its first finding. It fails
where none is confirmed at a seed, the first has several, or `fixed` has one.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.benchmarks.late_faults.__main__ import found, searched

HERE: Final = Path(__file__).parent
FILES: Final = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))
HEADS: Final = (
    "file", "found", "after, s: median / most", "cases: findings", "elements",
    "contract: cause", "missed at", "fixed, cases: findings",
)  # fmt: skip


def row(of_seed: dict[int, dict[str, Any]], fixed: dict[str, Any]) -> list[str]:
    """Return the cells of a file, but for its name."""
    whole = next(iter(of_seed.values()))
    confirmed = {seed: f for seed, k in of_seed.items() if (f := found(k))}
    after = [of_seed[seed]["after"] for seed in confirmed]
    elements = [f["input_elements"] for f in confirmed.values()]
    causes = {
        f"{f['contract']}: {'; '.join(f['cause'] or ['none'])}"
        for f in [*confirmed.values(), *whole["findings"]]
    }
    return [
        f"{len(confirmed)} of {len(of_seed)}",
        f"{median(after):.1f} / {max(after):.1f}" if after else "–",
        f"{whole['cases']}: {len(whole['findings'])}",
        f"{min(elements)} to {max(elements)}" if elements else "–",
        "<br>".join(sorted(causes)),
        " ".join(str(seed) for seed in of_seed if seed not in confirmed),
        f"{fixed['decided']}: {len(fixed['findings'])}",
    ]


def main() -> int:
    """Search what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="interpret")
    add("--seconds", type=float, default=60.0, help="of each command")
    add("--seeds", type=int, default=1, metavar="N", help="how many")
    add("--seed", type=int, default=11, help="the first of them")
    add("--at-once", type=int, default=1, metavar="N", help="commands")
    add("--jobs", type=int, default=2, help="of kfuzz, of each command")
    add("--only", nargs="+", choices=FILES, default=FILES, metavar="FILE")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.seeds)

    def search(file: str, name: str, seed: int, *, first: bool) -> dict[str, Any]:
        target = f"{HERE / file}.py::{name}"
        said = searched([target], options.seconds, options, seed=seed, first=first)
        made = said.values()  # its gradients are a kernel of their own
        return {
            "findings": [finding for kernel in made for finding in kernel["findings"]],
            "cases": sum(kernel["cases"] or 0 for kernel in made),
            "decided": min(kernel["decided"] for kernel in made),
            "after": min(kernel["after"] for kernel in made),
        }

    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    wrong = False
    with ThreadPoolExecutor(options.at_once) as pool:
        begun = {}
        for file in options.only:
            of = partial(pool.submit, search, file)
            faulty = {s: of("faulty", s, first=s > seeds[0]) for s in seeds}
            begun[file] = faulty, of("fixed", seeds[0], first=False)
        for file, (faulty, fixed) in begun.items():
            of_seed = {seed: made.result() for seed, made in faulty.items()}
            cells = row(of_seed, fixed.result())
            print(f"| {file} | {' | '.join(cells)} |", flush=True)
            wrong |= len(of_seed[seeds[0]]["findings"]) != 1
            wrong |= bool(fixed.result()["findings"] or not fixed.result()["decided"])
            wrong |= not all(map(found, of_seed.values()))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
