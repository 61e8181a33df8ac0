"""A reference in KernelBench's form as an operator, and what it is worth as a problem.

The operator has the reference's domain, float64 oracle and values. A result that is the
same for every input, that hides in its own rounding, or that the reference does not
reach itself, tells no right candidate from a wrong one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, compare_all, pose
from kfuzz.core.declaration import Declaration, ShapeClass
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.random_streams import Purpose, is_sampled, stream
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.execution.device.backends import DeviceBackend, backend_of
from kfuzz.execution.values.fills import seeded
from kfuzz.features.examining import in_own_types, reference_bounds
from kfuzz.features.judge.kernelbench.problem import (
    Form,
    Inputs,
    Sample,
    inputs_of,
    results,
    unchanged,
)
from kfuzz.features.judge.kernelbench.values import (
    ENDS,
    OWN,
    SCALED,
    Shapes,
    Values,
    shapes_of,
)
from kfuzz.features.judge.outcome import Audit
from kfuzz.features.judge.sandbox.wire import nesting
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.strategies.parameters import TensorParameter


class Reference:
    """A reference as what kernels are held against.

    Attributes:
        form: the file.
        shapes: the shapes that it takes.
        outputs: names of its results.
        formats: their dtypes.
        values: makes the values of its arguments, and checks them.
        operator: it as an operator, with its float64 oracle under the shadow.
        home: the sizes at which it is asked first: the benchmarked ones, or smaller
            ones in their place where an oracle of those would not fit.
    """

    def __init__(
        self,
        form: Form,
        shapes: Shapes,
        outputs: Sequence[Tensor],
        name: str,
        most: int,
        inputs: Inputs | None = None,
    ) -> None:
        """Make the operator.

        Args:
            form: the file.
            shapes: the shapes that it takes.
            outputs: its results at the benchmarked shape.
            name: the operator's.
            most: elements of the largest tensor of which an oracle is made.
            inputs: what its arguments have in common; nothing by default.
        """
        self.form = form
        self.shapes = shapes
        self._most = most
        self.names = tuple(s.name for s in form.samples)
        self._dtypes = [s.dtype for s in form.samples]
        many = len(outputs) > 1
        self.outputs = tuple(f"y{i}" if many else "y" for i in range(len(outputs)))
        self.formats = tuple(str(y.dtype).removeprefix("torch.") for y in outputs)
        self._double = form.double()
        # The other model and its copy, once it was asked for, and which one is used.
        self._other: tuple[nn.Module, nn.Module] | None = None
        self._drawn_model = False
        self.values = Values(form, shapes, inputs or Inputs())
        self.home = self._home(max(y.numel() for y in outputs))
        floats = [s.dtype for s in form.samples if s.kind == "float"]
        self.dtype = floats[0]
        self.operator = Operator(
            name,
            inputs={
                s.name: TensorParameter(
                    " ".join(axes), dtype="" if s.dtype == self.dtype else s.dtype
                )
                for s, axes in zip(form.samples, shapes.axes, strict=True)
            },
            oracle=self._oracle,
            error_model=self._accepted,
            outputs=self.outputs,
            integers=tuple(
                n
                for n, f in zip(self.outputs, self.formats, strict=True)
                if DTYPES[f].kind != "float"
            ),
            shape_class=shapes.shape_class,
            dtypes=(self.dtype,),
            defaults=Declaration(dtypes=(self.dtype,)),
            within=self.values.changed,
        )

    def use_drawn(self, *, drawn: bool) -> None:
        """Compute with the model in which constant weights are drawn, or as built.

        Raises:
            UsageError: if that model cannot be built.
        """
        if drawn is self._drawn_model:
            return
        if self._other is None:
            kept = self.form.model
            self.form.model = self.form.build(constants_drawn=True)
            self._other = self.form.model, self.form.double()
            self.form.model = kept
        mine = self.form.model, self._double
        (self.form.model, self._double), self._other = self._other, mine
        self._drawn_model = drawn

    def __call__(self, *tensors: Tensor) -> Any:
        """Call the model itself, in its own arithmetic."""
        self.values.require(tensors)
        made = self.form.call(self.form.model, tensors)
        return made if len(made) > 1 else made[0]

    def _oracle(self, *tensors: Tensor) -> Any:
        """The reference's own model, every weight and buffer in float64."""
        return self._computed(*in_own_types(tensors, self._dtypes))

    def _computed(self, *tensors: Tensor) -> Any:
        return self.form.call(self._double, tensors)

    def _accepted(self, problem: Problem) -> dict[str, Acceptance]:
        """Return what is accepted of each output, by the running-error shadow."""
        self.values.require([x[0] for x in problem.tensors.values()])
        stored = next((f for f in self.formats if DTYPES[f].kind == "float"), "float32")
        return reference_bounds(
            replace(problem, output=FORMATS[stored]), self._oracle, self.outputs,
            name=self.operator.name, formats=[stored] * len(self.outputs),
            computed=self._computed, arguments=self._dtypes,
        )  # fmt: skip

    def accepted(
        self, case: Case, values: Mapping[str, Tensor], claims: Declaration
    ) -> dict[str, Acceptance]:
        """Return what is accepted of each output on a case with these values."""
        return accept(self.operator, pose(self.operator, case, values, claims))

    @property
    def whole(self) -> bool:
        """Whether the benchmarked shape is the one that is asked first."""
        return self.home == dict(self.shapes.sizes)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether an oracle of arguments of given sizes fits."""
        return self.shapes.largest(sizes) <= self._most

    def _home(self, results: int) -> dict[str, int]:
        """Return the benchmarked sizes, halved until an oracle fits."""
        restriction = ShapeClass(self.shapes.shape_class)
        sizes = dict(self.shapes.sizes)
        whole = math.prod(sizes[name] for name in self.shapes.free)
        while True:
            given = self.shapes.largest(sizes)
            left = math.prod(sizes[name] for name in self.shapes.free)
            if max(given, results * left // max(whole, 1), 1) <= self._most:
                return sizes
            smaller = {}
            for name in self.shapes.free:
                least, _, modulus, _ = restriction.bounds(name)
                half = sizes[name] // 2 // modulus * modulus
                if half >= max(least, 1):
                    smaller[name] = half
            if not smaller:
                return sizes
            largest = max(smaller, key=lambda name: sizes[name])
            sizes = restriction.settled({**sizes, largest: smaller[largest]}, {})

    def _shape(self, sample: Sample, *, whole: bool = False) -> tuple[int, ...]:
        """Return the shape of a tensor at the sizes asked first, or the file's own."""
        if whole:
            return sample.shape
        at = self.form.samples.index(sample)
        return tuple(self.home[axis] for axis in self.shapes.axes[at])

    def case(
        self, family: str, seed: int, *, whole: bool = False, **others: str
    ) -> Case:
        """Return the benchmarked shape with values of a family.

        Args:
            family: of the floating arguments.
            seed: of the first argument; integers have the file's own values.
            whole: whether the shape is the file's own, however large.
            others: families of single arguments instead.
        """
        tensors = {}
        for i, (sample, axes) in enumerate(
            zip(self.form.samples, self.shapes.axes, strict=True)
        ):
            own = family if self.values.is_drawn(sample) else OWN
            chosen = others.get(sample.name, own)
            # The file's own values belong together: one seed for all of them.
            apart = 0 if chosen in SCALED else i << 32
            shape = self._shape(sample, whole=whole)
            strides = sample.strides if shape == sample.shape else None
            tensors[sample.name] = TensorSpec(
                shape, axes, sample.dtype, strides, fill=Fill(chosen, seed + apart)
            )
        return Case(tensors, config=0)

    def is_benchmarked(self, case: Case) -> bool:
        """Whether a case has the benchmarked shape, or the one in its place."""
        samples = list(zip(self.form.samples, case.tensors.values(), strict=True))
        return any(
            all(self._shape(s, whole=whole) == spec.shape for s, spec in samples)
            for whole in (False, True)
        )

    def is_own(self, case: Case) -> bool:
        """Whether a case has the file's own values, scaled at most."""
        fills = [s.fill for s in case.tensors.values()]
        return all(f is not None and f.family in SCALED for f in fills)

    def resized(self, case: Case) -> Case:
        """Return a case at the benchmarked shape, in the file's own layouts."""
        tensors = {
            name: replace(
                spec, shape=self._shape(s), offset=0, plants=(),
                strides=s.strides if self._shape(s) == s.shape else None,
            )
            for s, (name, spec) in zip(
                self.form.samples, case.tensors.items(), strict=True
            )
        }  # fmt: skip
        return replace(case, tensors=tensors)

    @property
    def least_elements(self) -> int:
        """The elements of the largest tensor where every dimension is least."""
        return self.shapes.largest(self.shapes.at_least({}))

    def adapted(self, case: Case) -> Case:
        """Return a drawn case with integers, truth values and such as the file's own.

        Of every four cases one has the file's own floating values as well.
        """
        tensors, own = {}, is_sampled(case.seed, Purpose.OWN_VALUES, 1 / 4)
        for sample, (name, spec) in zip(
            self.form.samples, case.tensors.items(), strict=True
        ):
            assert spec.fill is not None
            family, seed = spec.fill.family, spec.fill.seed
            if not self.values.is_drawn(sample):
                turn = stream(seed, Purpose.INTEGER_ENDS) % 8
                ends = sample.kind in ("int", "uint") and turn < len(ENDS)
                ends = ends and not self.values.inputs.is_fixed(name)
                family = ENDS[turn] if ends else OWN
            elif own:
                family = OWN
            else:
                tensors[name] = spec
                continue
            tensors[name] = replace(
                spec, fill=Fill(family, case.seed if own else seed), plants=()
            )
        return replace(case, tensors=tensors, config=0)


# What a problem is worth before anything is held against it.

# Kinds of element that results may have; others have no acceptance.
JUDGED: Final = (
    torch.float32, torch.float16, torch.bfloat16, torch.int64,
)  # fmt: skip
# Parameters that are named in a note.
_PARAMETERS: Final = 16
_SEEDS: Final = (1, 2)


def outputs_of(form: Form) -> tuple[tuple[Tensor, ...], str]:
    """Return what a reference gives on its own inputs, and what is wrong with that.

    Raises:
        UsageError: if its inputs cannot be made.
    """
    if all(s.kind != "float" for s in form.samples):
        return (), "no argument holds floating numbers: nothing sets a precision"
    if any(s.dtype == "float64" for s in form.samples):
        return (), "it computes in float64, which no float64 oracle can judge"
    weights = (*form.model.parameters(), *form.model.buffers())
    if any(map(is_lazy, weights)):
        return (), "its weights have no sizes before its first call: a lazy module"
    try:
        with torch.no_grad(), unchanged(form.model):
            returned = form.model(*form.first)
            made, form.nesting = results(returned), nesting(returned)
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        why = f"the reference raises {type(error).__name__} on its own inputs: {line}"
        return (), why
    for i, y in enumerate(made):
        if not isinstance(y, Tensor):
            return (), f"result {i} is a {type(y).__name__}, no tensor"
        if y.dtype not in JUDGED:
            return (), f"result {i} is of {y.dtype}, for which there is no acceptance"
    if len({y.dtype for y in made if y.is_floating_point()}) > 1:
        return (), "its results differ in floating dtype"
    if not made or not any(y.numel() for y in made):
        return (), "its result has no element"
    return made, ""


class PosedProblem(NamedTuple):
    """What a problem is worth, and its reference; None where it decides nothing."""

    audit: Audit
    reference: Reference | None


def open_problem(
    path: Path, device: str, backend: DeviceBackend, text: str | None = None
) -> PosedProblem:
    """Load a reference and audit it.

    The device becomes torch's current one: a reference, too, may ask for no other.

    Args:
        path: its file.
        device: where it runs, as torch calls it.
        backend: what candidates run on; its limits say how large an oracle may be.
        text: as of `Form`.

    Raises:
        UsageError: if the file is not of the form.
    """
    backend_of(device).select(device)
    form = Form(path, torch.device(device), text)
    made, why = outputs_of(form)
    if why:
        return PosedProblem(Audit(faults=(why,)), None)
    inputs = inputs_of(form)
    most = backend.limits.oracle_elements
    reference = Reference(form, shapes_of(form, inputs), made, path.stem, most, inputs)
    form.first = ()
    if not reference.fits(reference.home):
        why = "its tensors are too large for an oracle, and no smaller shape is taken"
        return PosedProblem(Audit(faults=(why,)), None)
    audit = Auditor(reference, lambda seed: reference.case(OWN, seed)).audit()
    return PosedProblem(audit, reference)


class Auditor:
    """Asks a reference what it tells, at one shape."""

    def __init__(self, reference: Reference, case: Callable[[int], Case]) -> None:
        """Take the reference.

        Args:
            reference: the reference.
            case: the file's own inputs under a seed, at the shape to ask at.
        """
        self._reference = reference
        self._data = {seed: reference.values.of(case(seed)) for seed in _SEEDS}
        self._case = case
        self._declared = reference.operator.defaults

    def audit(self) -> Audit:
        """Return what the problem is worth."""
        notes: list[str] = []
        if why := self._random() or self._remembering():
            return self._made([why], notes)
        if faults := self._independent():
            return self._made(faults, notes)
        neutral = self._reference.form.neutral()
        if neutral:
            named = ", ".join(neutral[:_PARAMETERS])
            notes.append(
                f"all 0 or all 1 as built: {named}; if torch's initialisers made them "
                "so, and names agree, other numbers are tried in their place"
            )
        accumulator, faults = self._inaccurate(notes)
        if not faults:
            faults = self._undecided()
        if not (modeless := self._modeless()):
            notes.append("not tried in evaluation mode, where the reference differs")
        made = self._made(faults, notes)
        return replace(made, accumulator=accumulator, modeless=modeless)

    def _made(self, faults: Sequence[str], notes: Sequence[str]) -> Audit:
        unknown = self._reference.shapes.unknown
        said = [*notes, f"other shapes: {unknown}"] if unknown else list(notes)
        if not self._reference.whole:
            home = ", ".join(f"{n} = {s}" for n, s in self._reference.home.items())
            said.append(
                "the benchmarked shape is too large for an oracle of all of it: "
                f"{home} stand in its place, and rows of it are judged once"
            )
        return Audit(
            faults=tuple(faults),
            notes=tuple(said),
            domain=self._reference.operator.domain_text(),
            inputs=self._reference.values.inputs.texts,
            finite=self._reference.values.inputs.has_zeros,
        )

    def _run(self, values: Mapping[str, Tensor], seed: int = 0) -> tuple[Any, ...]:
        given = [x.clone() for x in values.values()]
        with seeded(self._reference.form.device, seed):
            return results(self._reference(*given))

    def _random(self) -> str:
        """Return why two equal calls differ, "" where they agree."""
        data = self._data[_SEEDS[0]]
        one, other = self._run(data, seed=3), self._run(data, seed=4)
        if _same(one, other):
            return ""
        accepted = self._accepted(_SEEDS[0], self._declared)
        decided = not any(bool(a.undecided.any()) for a in accepted.values())
        missed = any(misses(accepted, y, self._reference) for y in (one, other))
        if decided and not missed:
            return ""  # sums in another order
        if _same(one, self._run(data, seed=3)):
            return (
                "its result depends on torch's random generator: dropout in training "
                "mode, or random numbers in forward"
            )
        return "equal calls of the reference give different results"

    def _remembering(self) -> str:
        """Return why a second call in a row differs, "" where it does not.

        The reference's buffers are put back after each call, a candidate's go on.
        """
        data = self._data[_SEEDS[0]]
        form = self._reference.form
        made = []
        with torch.no_grad(), unchanged(form.model):
            for _ in range(2):
                given = form.arguments([x.clone() for x in data.values()])
                with seeded(form.device, 3):
                    made.append(results(form.model(*given)))
        if _same(*made):
            return ""
        accepted = self._accepted(_SEEDS[0], self._declared)
        if not any(misses(accepted, y, self._reference) for y in made):
            return ""  # sums in another order
        return "its result depends on earlier calls: it changes its own buffers"

    def _independent(self) -> list[str]:
        """Return on which of its arguments the result does not depend."""
        data = self._data[_SEEDS[0]]
        first = self._run(data)
        dull = [
            name
            for name in data
            if (others := self._others(name))
            and not any(self._differs(first, values) for values in others)
        ]
        if len(dull) == len(data):
            return ["its result is the same for every input"]
        if dull:
            return [f"its result does not depend on {' nor on '.join(dull)}"]
        model = self._reference.form.model
        parameters = dict(model.named_parameters())
        if not parameters:
            return []
        if not self._differs_with(parameters, first):
            return ["its result does not depend on its weights"]
        return []

    def _others(self, name: str) -> list[dict[str, Tensor]]:
        """Return the first data with one argument changed, to what it may be."""
        data = self._data[_SEEDS[0]]
        x = data[name]
        changed = [self._data[_SEEDS[1]][name]]
        if x.is_floating_point():
            wide = torch.linspace(-100.0, 100.0, max(x.numel(), 1), device=x.device)
            changed += [-x, wide[: x.numel()].reshape(x.shape).to(x.dtype)]
        elif x.numel():
            changed.append(x.flip(tuple(range(x.dim()))).contiguous())
            changed.append(x.min().expand_as(x).contiguous())
            top = ~x if x.dtype is torch.bool else x.max().expand_as(x)
            changed.append(top.contiguous())
        inputs = self._reference.values.inputs
        if inputs.is_fixed(name):
            changed = changed[:1]
        made = [inputs.fitted({**data, name: other}) for other in changed]
        return [values for values in made if not torch.equal(values[name], x)]

    def _differs(self, first: Sequence[Any], values: Mapping[str, Tensor]) -> bool:
        try:
            return not _same(first, self._run(values))
        except Exception:  # outside its domain: it looks at it
            return True

    def _differs_with(
        self, parameters: Mapping[str, Tensor], first: Sequence[Any]
    ) -> bool:
        """Whether the result changes with some weights."""
        kept = {name: p.detach().clone() for name, p in parameters.items()}
        chance = torch.Generator().manual_seed(5)
        try:
            with torch.no_grad():
                for p in parameters.values():
                    noise = torch.randn(p.shape, generator=chance).to(p.device)
                    p.copy_(p + (0.5 + p.abs().to(torch.float32)).to(p.dtype) * noise)
            return not _same(first, self._run(self._data[_SEEDS[0]]))
        finally:
            with torch.no_grad():
                for name, p in parameters.items():
                    p.copy_(kept[name])

    def _inaccurate(self, notes: list[str]) -> tuple[str, list[str]]:
        """Return the arithmetic to hold candidates to, and where it is missed."""
        for seed in _SEEDS:
            made = self._run(self._data[seed])
            accepted = self._accepted(seed, self._declared)
            if not (missed := misses(accepted, made, self._reference)):
                continue
            wide = replace(self._declared, accumulator="tf32")
            if self._misses_by_default(seed) and not misses(
                self._accepted(seed, wide), made, self._reference
            ):
                notes.append(
                    "its convolutions run in TF32, torch's default: candidates are "
                    "held to that"
                )
                return "tf32", []
            return "float32", [
                f"the reference misses its own float64 value: {missed} (TF32, autocast "
                "or narrow weights?)"
            ]
        return "float32", []

    def _misses_by_default(self, seed: int) -> bool:
        """Whether what misses is cuDNN's TF32, which torch allows unasked."""
        if backend_of(self._reference.form.device).has.on_host:
            return False
        flags = torch.backends.cudnn
        if not flags.allow_tf32:
            return False
        flags.allow_tf32 = False
        try:
            made = self._run(self._data[seed])
        finally:
            flags.allow_tf32 = True
        accepted = self._accepted(seed, self._declared)
        return not misses(accepted, made, self._reference)

    def _modeless(self) -> bool:
        """Whether the result is the same in evaluation mode."""
        model, data = self._reference.form.model, self._data[_SEEDS[0]]
        built = {part: part.training for part in model.modules()}
        one = self._run(data, seed=3)
        try:
            model.eval()
            return _same(one, self._run(data, seed=3))
        except Exception:  # it has no such mode
            return False
        finally:
            for part, training in built.items():
                part.training = training

    def _undecided(self) -> list[str]:
        """Return why wrong results would pass at the file's own values."""
        one, other = (self._accepted(s, self._declared) for s in _SEEDS)
        whole = {n: a for n, a in one.items() if a.undecided.numel()}
        undecided = {n: a for n, a in whole.items() if bool(a.undecided.all())}
        if undecided or not whole:
            named = dict.fromkeys(u for a in undecided.values() for u in a.unknown)
            why = f"no error rule for {', '.join(named)}" if named else "overflow"
            which = f" {', '.join(undecided)}" if len(one) > 1 else ""
            return [f"no bound is known for its result{which}: {why}"]
        first, second = (self._run(self._data[s]) for s in _SEEDS)
        zeros = tuple(map(torch.zeros_like, first))
        for results_of, what in (
            ((second, first), "the results of other inputs"), ((zeros, zeros), "zeros")
        ):  # fmt: skip
            pairs = zip((one, other), results_of, strict=True)
            if not any(misses(a, made, self._reference) for a, made in pairs):
                return [
                    f"its result is inside the noise: {what} lie within the bound of "
                    "rounding"
                ]
        return []

    def _accepted(self, seed: int, declared: Declaration) -> Mapping[str, Acceptance]:
        return self._reference.accepted(self._case(seed), self._data[seed], declared)


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two sets of results have equal elements, NaN for NaN."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(
        a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in pairs
    )


def misses(
    accepted: Mapping[str, Acceptance], made: Sequence[Any], reference: Reference
) -> str:
    """Return where results lie outside what is admitted, "" where none does."""
    named = dict(zip(reference.outputs, made, strict=True))
    for name, compared in compare_all(named, accepted).items():
        missed = compared.missed
        if bool(missed.any()):
            worst = float(compared.ratio[missed].max())
            far = f", by {worst:.3g} x the bound" if math.isfinite(worst) else ""
            return f"{int(missed.sum())} of {missed.numel()} elements of {name}{far}"
    return ""
