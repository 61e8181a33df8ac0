"""Which operator agrees with what was seen of a function."""

import pytest
import torch

from kfuzz.features.observe.faults import Unknown
from kfuzz.features.observe.watching import MOST_ELEMENTS, Callee, Seen, shape_of
from kfuzz.features.observe.writing import bindings, guess, judged


def seen(function, *shapes, names=("a", "b", "c"), scalars=None, dtype=torch.float32):
    """Return a function that was called twice."""
    made = Callee("somewhere.kernels", "SoftmaxFunction.apply")
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        given = [torch.randn(*s, generator=generator).to(dtype) for s in shapes]
        y = function(*given)
        pairs = dict(zip(names, given, strict=False))
        kept = {n: shape_of(x, with_values=True) for n, x in pairs.items()}
        results = (shape_of(y, with_values=True),)
        made.calls.append(Seen({**kept, **(scalars or {})}, results))
        made.count += 1
    return made


def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def tanh_gate(a, b):
    return torch.nn.functional.gelu(a, approximate="tanh") * b


CALLS = {
    "softmax": (lambda x: x.softmax(-1), [(4, 9)], {}, {}),
    "rms_norm": (norm, [(4, 9), (9,)], {"eps": 1e-6, "offset": 0.0}, {}),
    "swiglu": (lambda a, b: torch.nn.functional.silu(a) * b, [(3, 8), (3, 8)], {}, {}),
    "geglu": (tanh_gate, [(3, 8), (3, 8)], {}, {"algorithm": "tanh_form"}),
    "matmul": (torch.matmul, [(5, 7), (7, 6)], {}, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_the_operator_is_found(name):
    function, shapes, scalars, claims = CALLS[name]
    made = guess(seen(function, *shapes, scalars=scalars))
    assert made is not None
    assert (made.operator, made.claims, made.calls) == (name, claims, 2)


def test_arguments_in_another_order_are_told_apart():
    made = guess(seen(lambda b, a: a @ b, (7, 6), (5, 7), names=("second", "first")))
    assert made is not None
    assert made.operator == "matmul"
    assert dict(made.given) == {"a": "first", "b": "second"}


@pytest.mark.slow
def test_a_wrong_kernel_and_an_unknown_one_agree_with_none():
    assert guess(seen(lambda x: x.softmax(-1) * 1.01, (4, 9))) is None
    assert guess(seen(lambda x: torch.zeros_like(x), (4, 9))) is None
    assert guess(seen(lambda x: x.cumsum(0).flip(1).sin() + 3 * x, (4, 9))) is None


def test_what_was_not_kept_says_nothing():
    large = torch.zeros(MOST_ELEMENTS + 1)
    assert shape_of(large, with_values=True).values is None
    made = Callee("m", "f", count=1)
    made.calls.append(Seen({"x": shape_of(large, with_values=True)}, None))
    made.calls.append(Seen({"x": Unknown("Foo")}, ()))
    assert guess(made) is None


def test_a_file_says_what_is_known_and_what_is_asked():
    found = seen(lambda x: x.softmax(-1), (4, 9))
    found.launches["_kernel"] = 2, {"num_warps": 4}
    unknown = seen(lambda x: x.sin() + x, (4, 9))
    unknown.name = "other"
    text = bindings([(found, guess(found)), (unknown, None)], command="kfuzz observe x")
    compile(text, "observed.py", "exec")
    assert "@kfuzz.kernel(ops.softmax, dtypes=('float32',), sizes=(4, 9))" in text
    assert "def softmax(x):" in text
    assert "somewhere.kernels.SoftmaxFunction.apply(x)" in text
    assert "launches _kernel 2 times (num_warps=4)" in text
    assert "# TODO: name the operator." in text
    assert "#     return somewhere.kernels.other(a)" in text


def _doubled(made, call, **given):
    """Add a call like another one, whose result is wrong."""
    (y,) = made.calls[call].results
    wrong = (shape_of(y.values * 2, with_values=True),)
    made.calls.append(Seen({**made.calls[call].given, **given}, wrong))


def test_a_result_beyond_the_bound_that_others_keep_is_a_fault():
    found = seen(lambda x: x.softmax(-1), (4, 9), scalars={"fast": False})
    _doubled(found, 0)
    assert guess(found) is None
    made, (fault,) = judged(found)
    assert (made.operator, made.calls) == ("softmax", 2)
    assert fault.message.startswith("softmax: y[")
    assert fault.kind[0] == "K-VAL-01"


def test_what_may_be_another_operator_is_not_judged():
    found = seen(lambda x: x.softmax(-1), (4, 9), scalars={"fast": False})
    _doubled(found, 0, fast=True)  # of an option with which no call agrees
    assert judged(found)[1] == []
    found.calls[2:] = [found.calls[0]] * 2
    found.name = "capped"  # no name of the operator's
    _doubled(found, 0)
    assert judged(found) is None
    found.name, found.calls[:-1] = "softmax", found.calls[:1]  # one alone agrees
    assert judged(found) is None
