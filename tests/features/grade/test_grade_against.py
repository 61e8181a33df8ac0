"""Two statements compared: what differs, and what arbitrates."""

from dataclasses import replace

from kfuzz.core.finding import Fingerprint
from kfuzz.core.statement import Graded
from kfuzz.core.verdict import Verdict
from kfuzz.features.lab.grade.statement_text import Outcome, compare
from tests.helpers.statements import but, fault, kernel, statement

CPU = statement()
VIOLATED = Graded(Verdict.VIOLATES, 5)


def gpu(*kernels):
    made = Fingerprint(torch="2.11.0", kfuzz="0.1.0", device="a GPU", driver="580")
    return statement(*kernels, device="cuda", fingerprint=made)


def test_a_contract_that_one_breaks_arbitrates_against_it() -> None:
    broken = replace(but(kernel(), C_EXC_01=VIOLATED), findings=(fault(),))
    for here, there in ((CPU, gpu(broken)), (gpu(broken), CPU)):
        (found,) = compare(here, there).differences
        assert found.outcome is Outcome.DIFFER
        assert found.contract == "C-EXC-01/softmax"
        assert found.why == ("C-EXC-01 arbitrates against cuda: y[0] = 0, expected nan")


def test_kernels_of_one_format_are_compared_with_the_one_for_all() -> None:
    cpu = statement(kernel("mm", operator="matmul"), kernel("only_cpu"))
    cuda = gpu(
        kernel("mm", operator="matmul", claims={"dtypes": "float32"}),
        kernel("mm_bfloat16", operator="matmul", claims={"dtypes": "bfloat16"}),
        kernel("mm_tf32", operator="matmul", claims={"dtypes": "float32"}),
    )
    for made in (compare(cpu, cuda), compare(cuda, cpu)):
        assert made.kernels == 2
        assert {*made.only_here, *made.only_there} == {"only_cpu", "mm_tf32"}
