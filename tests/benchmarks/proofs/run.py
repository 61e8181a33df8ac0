"""Prove many kernels, search each, and hold one against the other.

    python -m tests.benchmarks.proofs.run witnesses --state proofs.json
    python -m tests.benchmarks.proofs.run mutants --every 3 --state mutants.json
    python -m tests.benchmarks.proofs.run files a.py b.py --state real.json

What was done is kept in the state and not done again. A property that is proved for all
sizes and that a case of the search breaks is a contradiction: the exit code is 1 then.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

# Triton reads it when a kernel is defined: here kernels are compiled, not run.
os.environ["TRITON_INTERPRET"] = "0"
# A case that takes longer, with all before it, is given up.
SECONDS: Final = 60.0
CASES: Final = 24


def main() -> int:
    """Run the command line; return the exit code."""
    from tests.benchmarks.proofs.table import contradictions, tables

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("witnesses", "mutants", "files"))
    parser.add_argument("files", nargs="*", help="of `files`: bindings")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="in all")
    parser.add_argument("--each", type=float, default=30.0, help="proving, each kernel")
    parser.add_argument("--cases", type=int, default=CASES, help="searched, of each")
    parser.add_argument("--only", default="*", help="a glob of names")
    parser.add_argument("--every", type=int, default=1, help="every so many mutant")
    parser.add_argument("--offset", type=int, default=0)
    given = parser.parse_args()
    state: dict[str, Any] = {}
    if given.state.exists():
        state = json.loads(given.state.read_text())
    with tempfile.TemporaryDirectory(prefix="proofs-") as folder:
        _work(given, Path(folder), state)
    print(tables(state))
    return 1 if contradictions(state) else 0


def _work(given: argparse.Namespace, folder: Path, state: dict[str, Any]) -> None:
    from kfuzz.execution.launches.building import Process
    from tests.benchmarks.proofs.judging import Asked

    end = time.monotonic() + given.seconds
    process = Process("tests.benchmarks.proofs.judging", interpret=True)

    def ask(asked: Asked) -> Any:
        nonlocal process
        process.send(asked)
        try:
            if process.ready(SECONDS):
                return process.receive()
            why = "it took too long"
        except (EOFError, OSError):
            why = "it ended its process"
        process.close()
        process = Process("tests.benchmarks.proofs.judging", interpret=True)
        return why

    try:
        for unit, conforming in _units(given, folder):
            if unit.id in state or not fnmatch(unit.id, given.only):
                continue
            if time.monotonic() > end:
                break
            made = _proved(unit, given.each)
            made["conforming"] = conforming
            examples = made.pop("cases")
            answer = ask(Asked(unit, given.cases, [case for _, case in examples]))
            if isinstance(answer, str):
                made["search"] = answer
            else:
                shown, found, cases = answer
                made |= {"found": found, "searched": cases}
                _apply(made, [name for name, _ in examples], shown)
            state[unit.id] = made
            text = json.dumps(state, indent=1) + "\n"
            given.state.write_text(text)
            print(unit.id, made.get("properties"), made.get("found"), flush=True)
    finally:
        process.close()


def _units(given: argparse.Namespace, folder: Path) -> Iterator[tuple[Any, bool]]:
    """Yield kernels, and whether they are correct."""
    from tests.benchmarks.proofs.judging import Unit

    if given.what == "witnesses":
        from kfuzz.contracts.witnesses.roster import roster

        for entry in roster("cpu"):
            if entry.backend == "interpret":
                witness, bound = entry.witness, entry.load()
                yield (
                    Unit(witness.kernel, bound.name, module=bound.module),
                    witness.conforming,
                )
    elif given.what == "mutants":
        from tests.benchmarks.mutants.mutator import mutants, written

        every = [m for m in mutants() if "interpret" in m.backends]
        chosen = every[given.offset :: given.every]
        written(folder, chosen)
        for mutant in chosen:
            yield (
                Unit(mutant.id, mutant.specimen.name, str(folder / mutant.file)),
                False,
            )
    else:
        from kfuzz.targets.load import load_all

        for kernel in load_all(tuple(given.files), root=Path.cwd()):
            file = str(kernel.source.file)
            yield Unit(kernel.kernel.name, kernel.kernel.name, file), True


def _proved(unit: Any, seconds: float) -> dict[str, Any]:
    from kfuzz.core.errors import KfuzzError
    from kfuzz.features.prove.proving import KernelProver

    began = time.process_time()
    try:
        outcome = KernelProver(unit.load(), unit.id, seconds=seconds).run()
    except (KfuzzError, SyntaxError) as error:
        return {"properties": {}, "why": {"": str(error)}, "cases": []}
    proof = outcome.proof
    return {
        "properties": {p.name: str(p.answer) for p in proof.properties},
        "why": {p.name: f"{p.why} (line {p.line})" for p in proof.properties if p.why},
        "variants": proof.variants,
        "queries": proof.queries,
        "solver_s": round(proof.seconds, 3),
        "cpu_s": round(time.process_time() - began, 2),
        "cases": [(c.property, c.case) for c in outcome.counterexamples],
    }


def _apply(made: dict[str, Any], names: list[str], shown: list[str]) -> None:
    """Note which properties the counterexamples refute."""
    from kfuzz.core.event import Proven
    from kfuzz.features.prove.proving import REFUTING

    made["examples"] = len(shown)
    for name, kind in zip(names, shown, strict=True):
        if kind in REFUTING[name]:
            made["properties"][name] = str(Proven.REFUTED)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
