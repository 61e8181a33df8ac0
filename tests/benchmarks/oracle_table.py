"""False alarms and detections of kfuzz and of fixed tolerances, as Markdown tables.

    python -m tests.benchmarks.oracle_table              # every size, two seeds
    python -m tests.benchmarks.oracle_table --seeds 1 --largest 129

Exits with 1 where kfuzz charges a correct kernel without a cause that is shown, or,
at every size, finds a fault in fewer configurations than it can be found in.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from tests.benchmarks.rows import OPERATORS, Config, configs  # isort: skip  (it sets the paths)
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import compare
from kfuzz.numerics.formats import FORMATS, round_to
from tests.benchmarks.kernels import MUTANTS, Mutant, correct_of

# (rtol, atol) of torch.testing.assert_close.
CLOSE: Final = {
    "float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5)
}  # fmt: skip
FIXED: Final = ("allclose", "assert_close", "1e-3", "1e-2")


def close(y: Tensor, wanted: Tensor, rtol: float, atol: float) -> Tensor:
    """Return per case whether torch.allclose holds, NaN being equal to NaN."""
    near = (y - wanted).abs() <= atol + rtol * wanted.abs()
    near = (near & torch.isfinite(wanted)) | (y == wanted)
    near = near | (torch.isnan(y) & torch.isnan(wanted))
    return near.flatten(1).all(1)


@dataclass
class Judged:
    """One configuration: its acceptances, and the oracles that judge by them."""

    config: Config
    accepted: Acceptance
    flushing: Acceptance
    shadow: Acceptance | None
    wanted: Tensor

    @classmethod
    def of(cls, config: Config, *, shadow: bool) -> "Judged":
        """Return the acceptances of all cases of a configuration."""
        operator: Operator = OPERATORS[config.operator]
        exact = replace(operator.defaults, subnormals="preserve")
        made = accept(operator, config.problem(exact))["y"]
        loose = accept(operator, config.problem(operator.defaults))["y"]
        plain = replace(operator, error_model=None)
        second = accept(plain, config.problem(exact))["y"] if shadow else None
        wanted = round_to(made.reference, FORMATS[config.dtype])
        return cls(config, made, loose, second, wanted)

    def passes(self, y: Tensor) -> dict[str, Tensor]:
        """Return per oracle and case whether a result is admitted."""
        rtol, atol = CLOSE[self.config.dtype]
        found = {
            "kfuzz": ~compare(y, self.accepted).missed.flatten(1).any(1),
            "allclose": close(y, self.wanted, 1e-5, 1e-8),
            "assert_close": close(y, self.wanted, rtol, atol),
            "1e-3": close(y, self.wanted, 1e-3, 1e-3),
            "1e-2": close(y, self.wanted, 1e-2, 1e-2),
        }
        if self.shadow is not None:
            found["shadow"] = ~compare(y, self.shadow).missed.flatten(1).any(1)
        return found

    def flushes(self, y: Tensor) -> Tensor:
        """Return per case whether flushing subnormals explains a result."""
        return ~compare(y, self.flushing).missed.flatten(1).any(1)


@dataclass
class Tally:
    """What one mutant's runs came to.

    Attributes:
        runs: cases.
        visible: cases in which its bits differ from every correct kernel's.
        caught: by oracle, cases in which it is refused and every correct kernel is
            admitted.
        places: by oracle, configurations with such a case.
        normal: cases of normal data; `caught_normal` and `normal_places` are theirs.
    """

    runs: int = 0
    visible: int = 0
    normal: int = 0
    configurations: int = 0
    caught: Counter[str] = field(default_factory=Counter)
    caught_visible: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    caught_normal: Counter[str] = field(default_factory=Counter)
    normal_places: Counter[str] = field(default_factory=Counter)


@dataclass
class Table:
    """Everything that is printed.

    Attributes:
        oracles: names, in the order of the columns.
        runs: runs of correct kernels by operator.
        alarms: (operator, oracle) -> runs of correct kernels that were refused.
        flushing: kernel, data type and family -> cases in which kfuzz refused it for
            flushing subnormals, which it does not declare.
        unexplained: cases in which kfuzz refused a correct kernel for nothing.
        worst: by operator, the greatest error over tolerance of a correct kernel.
        mutants: by operator and fault.
        cases: by operator.
    """

    oracles: tuple[str, ...]
    runs: Counter[str] = field(default_factory=Counter)
    alarms: Counter[tuple[str, str]] = field(default_factory=Counter)
    flushing: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    worst: dict[str, float] = field(default_factory=dict)
    mutants: dict[tuple[str, str], Tally] = field(default_factory=dict)
    cases: Counter[str] = field(default_factory=Counter)

    def add(self, config: Config) -> None:
        """Run every kernel of a configuration."""
        judged = Judged.of(config, shadow="shadow" in self.oracles)
        name = config.operator
        self.cases[name] += len(config.families)
        good = {o: torch.ones(len(config.families), dtype=bool) for o in self.oracles}
        results = []
        for label, kernel in correct_of(config).items():
            y = kernel(config)
            results.append(y)
            passes = judged.passes(y)
            self.runs[name] += len(config.families)
            explained = judged.flushes(y) & ~passes["kfuzz"]
            for at in explained.nonzero().flatten().tolist():
                self.flushing[label, config.dtype, config.families[at]] += 1
            for at in (~passes["kfuzz"] & ~explained).nonzero().flatten().tolist():
                where = f"{label}, {config.dtype}, n = {config.size}"
                self.unexplained.append(f"{where}, {config.families[at]}")
            for oracle in self.oracles:
                refused = ~passes[oracle]
                if oracle in ("kfuzz", "shadow"):
                    # No correct kernel under what it declares.
                    refused = refused & ~explained
                good[oracle] &= ~refused
                self.alarms[name, oracle] += int(refused.sum())
            ratio = compare(y, judged.accepted)
            usable = torch.where(ratio.missed, 0.0, ratio.ratio)
            if usable.numel():
                self.worst[name] = max(self.worst.get(name, 0.0), float(usable.max()))
        for mutant in MUTANTS:
            if mutant.operator == name and config.dtype in mutant.dtypes:
                self._mutate(mutant, judged, good, results)

    def _mutate(
        self,
        mutant: Mutant,
        judged: Judged,
        good: Mapping[str, Tensor],
        results: Iterable[Tensor],
    ) -> None:
        config = judged.config
        tally = self.mutants.setdefault((mutant.operator, mutant.fault), Tally())
        y = mutant.run(config)
        passes = judged.passes(y)
        visible = torch.ones(len(config.families), dtype=torch.bool)
        for other in results:
            same = (y == other) | (torch.isnan(y) & torch.isnan(other))
            visible &= ~same.flatten(1).all(1)
        normal = torch.tensor([f == "randn" for f in config.families])
        tally.configurations += 1
        tally.runs += len(config.families)
        tally.visible += int(visible.sum())
        tally.normal += int(normal.sum())
        for oracle in self.oracles:
            caught = good[oracle] & ~passes[oracle]
            tally.caught[oracle] += int(caught.sum())
            tally.caught_visible[oracle] += int((caught & visible).sum())
            tally.places[oracle] += bool(caught.any())
            tally.caught_normal[oracle] += int((caught & normal).sum())
            tally.normal_places[oracle] += bool((caught & normal).any())

    def losses(self) -> list[str]:
        """Return the faults found in fewer configurations than they can be."""
        found = []
        for m in MUTANTS:
            tally = self.mutants.get((m.operator, m.fault), Tally())
            if tally.places["kfuzz"] < m.found:
                found.append(
                    f"{m.operator}, {m.fault}: {tally.places['kfuzz']} configurations, "
                    f"{m.found} can be found"
                )
        return found


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def false_alarms(table: Table) -> list[str]:
    """Return the table of correct kernels."""
    lines = [
        "| operator | cases | runs | " + " | ".join(table.oracles) + " | worst ratio |",
        "|---" * (len(table.oracles) + 4) + "|",
    ]
    for name in table.runs:
        alarms = " | ".join(str(table.alarms[name, o]) for o in table.oracles)
        lines.append(
            f"| {name} | {table.cases[name]} | {table.runs[name]} | {alarms} "
            f"| {table.worst.get(name, 0.0):.4f} |"
        )
    return lines


def detections(table: Table) -> list[str]:
    """Return the table of mutants."""
    columns = [f"{o} % (configurations)" for o in table.oracles]
    lines = [
        "| operator, fault | "
        + " | ".join([*columns, "randn and 1e-2", "kfuzz on randn %"])
        + " |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for (operator, fault), t in table.mutants.items():
        cells = [
            f"{_share(t.caught[o], t.runs)} ({t.places[o]}/{t.configurations})"
            for o in table.oracles
        ]
        cells.append(
            f"{_share(t.caught_normal['1e-2'], t.normal)} "
            f"({t.normal_places['1e-2']}/{t.configurations})"
        )
        cells.append(_share(t.caught_normal["kfuzz"], t.normal))
        lines.append(f"| {operator}, {fault} | " + " | ".join(cells) + " |")
    total = list(table.mutants.values())
    for title, part, whole in (
        ("every run", "caught", sum(t.runs for t in total)),
        ("runs whose bits differ", "caught_visible", sum(t.visible for t in total)),
    ):
        cells = [
            _share(sum(getattr(t, part)[o] for t in total), whole)
            for o in table.oracles
        ]
        lines.append(
            f"| **{title}** ({whole}) | " + " | ".join([*cells, "", ""]) + " |"
        )
    return lines


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="cases per family")
    parser.add_argument("--largest", type=int, default=4097, help="largest size")
    parser.add_argument("--operators", nargs="*", default=list(OPERATORS))
    parser.add_argument("--shadow", action="store_true", help="judge by it, too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.monotonic()
    table = Table(("kfuzz", *FIXED, *(["shadow"] if given.shadow else [])))
    with np.errstate(all="ignore"):
        for name in given.operators:
            for config in configs(name, seeds=given.seeds, largest=given.largest):
                table.add(config)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    lines = ["### Correct kernels: false alarms", "", *false_alarms(table), ""]
    if table.flushing:
        lines += ["Refused for flushing subnormals, which they do not declare:", ""]
        lines += [
            f"* {label}, {dtype}, {family}: {n} cases"
            for (label, dtype, family), n in sorted(table.flushing.items())
        ]
        lines.append("")
    lines += [f"* FALSE ALARM: {text}" for text in table.unexplained]
    lines += ["### Faults: detections", "", *detections(table)]
    whole = given.largest >= 4097 and set(given.operators) == set(OPERATORS)
    losses = table.losses() if whole else []
    lines += [f"* LOST: {text}" for text in losses]
    print("\n".join(lines))
    return 1 if table.unexplained or losses else 0


if __name__ == "__main__":
    raise SystemExit(main())
