"""Compiling what a case needs, before it is judged elsewhere."""

from typing import Any

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.core.case_surroundings import poison_of
from kfuzz.core.recipe import Case
from kfuzz.evaluation.evaluator import Evaluator
from kfuzz.execution.calls.compiling import compiling_only
from kfuzz.execution.calls.tuners import held


def compile_for(evaluator: Evaluator, case: Case) -> bool:
    """Call a kernel on a case with its Triton launches left out.

    The tensors are those of the case, laid out as for a judgement: what Triton compiles
    for, their alignment among it, and so the keys in its cache, are the same. Nothing
    is judged: without launches, what a call returns or raises means nothing.

    Args:
        evaluator: of the kernel; it is to judge nothing afterwards.
        case: the case.

    Returns:
        Whether the call returned.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
        BuildError: if something cannot be built for the call.
    """
    case = evaluator.settled(case)
    kernel, caller = evaluator.kernel, evaluator.caller(case)
    derived = Derived(case, evaluator.values(case))
    # Shapes of outputs are asked for where the kernel is given memory for them.
    accepted = caller.accepted(derived) if kernel.declaration.out else None
    expected = {} if accepted is None else expected_metadata(accepted)
    call = held(kernel.taking(case.tensors), kernel.tuners)

    def compiles(*args: Any, **kwargs: Any) -> Any:
        with compiling_only():
            return call(*args, **kwargs)

    run = caller.run(derived, expected, poison_of(case), instead=compiles)
    return run.raised is None
