"""Checked cases a second, and what checking costs over the launches alone.

    python -m tests.benchmarks.throughput --device cuda --json cuda.json

For each family of cases: a burst of members whose kernel is only launched, the same
burst screened by all contracts that are always on, bursts drawn and screened as a
campaign does it, and plain loops over Hypothesis. `--device` is cuda or cpu;
all times of a table are taken in one run of a minute or two.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.burst import MEMBERS, Burst
from kfuzz.core.codec import encode
from kfuzz.engine.search.batches import items_of
from kfuzz.engine.search.case_drawing import batches_of, search_round, strategy_of
from kfuzz.engine.workers.backend import Backend, runs_on
from kfuzz.engine.workers.children import Place
from kfuzz.engine.workers.runner import Runner
from kfuzz.execution.processes import Zygote
from kfuzz.targets.load import LoadedKernel, load_all
from tests.benchmarks.peers.asking import ROOT, environment
from tests.benchmarks.peers.versions import machine
from tests.benchmarks.timing.families import FAMILIES, KERNELS, Family

SERVE: Final = "tests.benchmarks.timing.in_child:serve"
LOOPS: Final = ("Hypothesis, torch's random values", "Hypothesis, its own arrays")
# Bursts drawn in one round of Hypothesis's, as in a campaign's first on a GPU, and
# structures that are measured at most.
ROUND: Final = 16
WARM: Final = 96
STRUCTURES: Final = 48
# Calls that take longer are what the share of the harness is stated for.
LONG_CALL: Final = 2e-3
# For one request to a child, compilation included.
GRACE_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Rate:
    """Bursts drawn, screened in a child, and taken back, as in a campaign.

    Attributes:
        members: items prefiltered.
        suspects: those in which something was seen.
        bursts: bursts screened.
        declined: bursts that could not be.
        shapes: different shapes in a round, summed over the rounds.
        seconds: time taken.
        drawing: seconds that drawing alone takes for as many bursts.
        fresh: members a second when the same bursts were new, and the kernel was
            compiled for their sizes.
    """

    members: int
    suspects: int
    bursts: int
    declined: int
    shapes: int
    seconds: float
    drawing: float
    fresh: float


def bursts(loaded: LoadedKernel, family: Family, backend: str) -> Any:
    """Return the strategy of a family's bursts."""
    kernel = loaded.kernel
    cases = strategy_of(kernel, family.budget)
    batches = runs_on(kernel, backend).limits.batches
    assert cases is not None
    assert batches is not None
    return batches_of(
        kernel, cases, members=lambda case: items_of(case, batches, MEMBERS)
    )


def drawn(strategy: Any, number: int, seed: int) -> list[Burst]:
    """Return some bursts."""
    made: list[Burst] = []
    search_round(strategy, made.append, cases=number, seed_value=seed)
    return made


def pipelined(
    loaded: LoadedKernel, family: Family, backend: Backend, seconds: float
) -> Rate:
    """Draw bursts while a child screens the one before; return the rate."""
    strategy = bursts(loaded, family, backend.name)
    place = Place(
        device=backend.device,
        backend=backend.name,
        budget=family.budget,
        classes=tuple(sorted(c.id for c in ATTRIBUTION)),
        root=ROOT,
    )
    runner = Runner(loaded, place, backend.fork)
    counts = dict.fromkeys(("members", "suspects", "bursts", "declined"), 0)
    shapes: set[object] = set()
    pending: list[Burst] = []
    until = float("inf")

    def collect() -> None:
        if not pending:
            return
        burst = pending.pop()
        made = runner.prefiltered()
        if made.unsupported or made.lost or made.error:
            counts["declined"] += 1
            return
        counts["bursts"] += 1
        counts["members"] += burst.members
        counts["suspects"] += len(made.suspects)
        shapes.add(tuple(t.shape for t in burst.case.tensors.values()))

    def take(burst: Burst) -> None:
        if time.perf_counter() > until:
            return
        collect()
        runner.submit(burst)
        pending.append(burst)

    def rounds_for(least: float) -> tuple[int, float]:
        """Screen a round again and again; return how often, and the seconds taken."""
        counts.update(dict.fromkeys(counts, 0))
        shapes.clear()
        number, began = 0, time.perf_counter()
        while not number or time.perf_counter() - began < least:
            number += 1
            search_round(strategy, take, cases=ROUND, seed_value=2)
            collect()
        return number, time.perf_counter() - began

    try:
        # What is compiled once is compiled before the clock starts.
        until = time.perf_counter() + seconds
        search_round(strategy, take, cases=WARM, seed_value=1)
        collect()
        until = float("inf")
        _, elapsed = rounds_for(0)
        fresh = counts["members"] / elapsed
        # The same bursts again, of which nothing is left to be compiled.
        number, elapsed = rounds_for(seconds)
    finally:
        runner.close()
    began = time.perf_counter()
    drawn(strategy, ROUND, 2)
    drawing = time.perf_counter() - began
    return Rate(
        fresh=fresh, **counts, shapes=number * len(shapes), seconds=elapsed,
        drawing=number * drawing,
    )  # fmt: skip


def measured(
    family: Family,
    loaded: LoadedKernel,
    zygote: Zygote,
    device: str,
    backend: str,
    seconds: float,
) -> dict[str, Any]:
    """Return the times of structures, and those of plain loops."""
    message = {
        "device": device,
        "file": str(KERNELS),
        "kernel": family.kernel,
        "root": str(ROOT),
        "budget": vars(family.budget),
        "limits": vars(family.limits),
        "seconds": seconds,
        # Judging takes most of the time.
        "structure_seconds": seconds * (1 if backend == "cuda" else 4),
        "seed": 1,
        "judging": backend != "cuda",
    }
    some = drawn(bursts(loaded, family, backend), STRUCTURES, 7)
    made: dict[str, Any] = {}
    for name, asked in (
        ("structures", {"do": "structures", "bursts": [encode(b) for b in some]}),
        *((loop, {"do": "plain", "loop": loop}) for loop in LOOPS),
    ):
        with zygote.fork() as child:
            reply = child.request({**message, **asked}, 4 * seconds + GRACE_SECONDS)
        made[name] = reply.get("structures", reply)
    return made


def summary(family: dict[str, Any]) -> dict[str, float]:
    """Return a family's numbers; times in seconds."""
    timed = [t for t in family["structures"] if not t["unsupported"]]
    rate, loops = family["rate"], [family[name] for name in LOOPS]
    members = sum(t["members"] for t in timed)
    launches = sum(t["launches"] for t in timed)
    screened = sum(t["screened"] for t in timed)
    per_second = rate["members"] / rate["seconds"]
    made = {
        "structures": len(timed),
        "members": members / max(len(timed), 1),
        "launch": launches / max(members, 1),
        "oracle": sum(t["oracle"] for t in timed) / max(members, 1),
        "screened": screened / max(members, 1),
        "overhead": screened / launches if launches else float("nan"),
        "cases": per_second,
        "fresh": rate["fresh"],
        "bursts": rate["bursts"] / rate["seconds"],
        "shapes": rate["shapes"] / rate["seconds"],
        "suspects": sum(t["suspects"] for t in timed) + rate["suspects"],
    }
    for name, loop in zip(("generated", "arrays"), loops, strict=True):
        made[name] = loop["cases"] / loop["seconds"]
        made[f"over {name}"] = per_second / made[name] if made[name] else float("inf")
    long = [t for t in timed if t["alone"] > LONG_CALL]
    for name, found in (
        ("screened", [t["shares"].get("screened") for t in long]),
        ("judged", [t["shares"].get("judged") for t in long if not t["further"]]),
        ("called again", [t["shares"].get("judged") for t in long if t["further"]]),
    ):
        shares = [share for share in found if share is not None]
        if shares:
            made[f"harness, {name}"] = statistics.median(shares)
            made[f"harness at most, {name}"] = max(shares)
    made["long"] = len(long)
    return made


def table(families: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| family | launch alone, us | oracle, us | prefiltered, us | over the "
        "launches alone | items of a batch | checked cases/s | while compiling | "
        "distinct shapes/s | "
        f"{LOOPS[0]}, cases/s | {LOOPS[1]}, cases/s | harness over kernel, oracle and "
        "comparison: screened; judged; called again |"
    )
    yield f"|{'---|' * 12}"
    for name, family in families.items():
        s = summary(family)
        shares = [_shares(s, k) for k in ("screened", "judged", "called again")]
        cells = (
            name,
            f"{s['launch'] * 1e6:.1f}",
            f"{s['oracle'] * 1e6:.1f}",
            f"{s['screened'] * 1e6:.1f}",
            f"{s['overhead']:.2f}",
            f"{s['members']:.0f}",
            f"{s['cases']:.0f}",
            f"{s['fresh']:.0f}",
            f"{s['shapes']:.0f}",
            f"{s['generated']:.0f} (x {s['over generated']:.1f})",
            f"{s['arrays']:.0f} (x {s['over arrays']:.1f})",
            "; ".join(shares),
        )
        yield f"| {' | '.join(cells)} |"


def _shares(made: dict[str, float], name: str) -> str:
    """Return the median share of the harness and the greatest, in words."""
    if f"harness, {name}" not in made:
        return "–"
    return f"{made[f'harness, {name}']:.0%} (≤ {made[f'harness at most, {name}']:.0%})"


def by_dtype(families: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield how the overhead depends on the dtype."""
    for name, family in families.items():
        timed = [t for t in family["structures"] if not t["unsupported"]]
        found = []
        for dtype in sorted({t["dtype"] for t in timed}):
            of = [t for t in timed if t["dtype"] == dtype]
            ratio = sum(t["screened"] for t in of) / sum(t["launches"] for t in of)
            found.append(f"{dtype} {ratio:.2f} ({len(of)})")
        yield f"{name}: {', '.join(found)}"


def problems(families: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what should not be: these kernels are correct."""
    for name, family in families.items():
        made = summary(family)
        if made["suspects"]:
            yield f"{name}: {made['suspects']:.0f} suspects among correct results"
        if not family["rate"]["bursts"]:
            yield f"{name}: no burst was screened"
        for t in family["structures"]:
            if t["unsupported"]:
                yield f"{name}: not screened: {t['unsupported']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the file."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parse.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parse.add_argument(
        "--seconds", type=float, help="of each of four parts of a family; 1.5 or 3"
    )
    parse.add_argument("--families", default="", help="only those whose names hold it")
    parse.add_argument("--json", type=Path, help="file for every time")
    options = parse.parse_args(arguments)
    backend = Backend(options.device)
    backend.quiet = True
    zygote = Zygote(
        SERVE,
        env=environment(backend.name),
        preload=("torch", "triton"),
        output=lambda _: None,  # numpy's warnings; what ends a child tells its tail
    )
    families: dict[str, dict[str, Any]] = {}
    seconds = options.seconds or (1.5 if backend.name == "cuda" else 3.0)
    try:
        zygote.start()
        for family in FAMILIES[backend.name]:
            if options.families not in family.name:
                continue
            target = f"{KERNELS}::{family.kernel}"
            loaded = load_all((target,), root=ROOT)[0]
            made = measured(
                family, loaded, zygote, backend.device, backend.name, seconds
            )
            made["rate"] = asdict(pipelined(loaded, family, backend, seconds))
            families[family.name] = made
    finally:
        zygote.close()
        backend.close()
    stored = {
        "machine": {**machine(), "device": backend.on.device_name(backend.device)},
        "backend": backend.name,
        "families": families,
        "summary": {name: summary(f) for name, f in families.items()},
    }
    if options.json:
        options.json.write_text(json.dumps(stored, indent=1) + "\n")
    print("\n".join(table(families)))
    print()
    print("over the launches alone, by dtype (structures):")
    print("\n".join(by_dtype(families)))
    print("; ".join(f"{name} {v}" for name, v in stored["machine"].items() if v))
    found = list(dict.fromkeys(problems(families)))
    for problem in found:
        print(f"PROBLEM: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
