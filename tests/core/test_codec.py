"""JSON codecs: round trips, and errors that carry the path to the bad field."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from kfuzz.core.codec import INLINE_ELEMENTS, decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind
from kfuzz.store import files as strict_json
from kfuzz.store import files as tensorfile
from kfuzz.store.files import StoredTensor
from tests.helpers.findings import cases, finding, findings, pinned


def through_json(value: Any) -> Any:
    return strict_json.loads(strict_json.dumps(encode(value)))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(findings())
def test_a_finding_survives_json(value: Finding) -> None:
    assert decode(Finding, through_json(value)) == value


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(cases())
def test_a_case_survives_json_and_keeps_scalar_types(value: Case) -> None:
    again = decode(Case, through_json(value))
    assert again == value
    assert [type(s) for s in again.scalars.values()] == [
        type(s) for s in value.scalars.values()
    ]


def test_a_field_that_cases_no_longer_have_is_passed_over() -> None:
    case = finding().case
    stored = through_json(case)
    assert decode(Case, {**stored, "collective": True}) == case
    with pytest.raises(DecodeError, match="collected"):
        decode(Case, {**stored, "collected": True})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0])
def test_numbers_that_json_lacks_survive(number: float) -> None:
    value = Failure("C-PRC-01", Kind.VALUE, "", got=number)
    again = decode(Failure, through_json(value)).got
    assert again is not None
    assert repr(again) == repr(number)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float8_e4m3fn"])
def test_nan_payloads_and_signs_survive_bit_for_bit(dtype: str) -> None:
    patterns = {
        "float64": [0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000],
        "float32": [0x7F800001, 0xFFC00001, 0x80000000],
        "bfloat16": [0x7F81, 0xFFC1, 0x8000],
        "float8_e4m3fn": [0x7F, 0xFF, 0x80],
    }[dtype]
    size = {"float64": 8, "float32": 4, "bfloat16": 2}.get(dtype, 1)
    raw = b"".join(p.to_bytes(size, "little") for p in patterns)
    spec = pinned(raw, dtype=dtype)
    encoded = through_json(spec)
    assert encoded["values"][:2] == [f"0x{p:0{2 * size}x}" for p in patterns[:2]]
    assert decode(TensorSpec, encoded).values == raw


def test_values_are_readable_up_to_the_limit_and_compact_beyond() -> None:
    at, over = (pinned(b"\0\0\x80\x3f" * (INLINE_ELEMENTS + i)) for i in (0, 1))
    assert encode(at)["values"] == [1.0] * INLINE_ELEMENTS
    assert isinstance(encode(over)["values"], str)
    assert decode(TensorSpec, encode(over)) == over


DELETE = object()
BAD_FIELDS = [
    ("case.tensors.x.dtype", "f8", "one of float64, float32"),
    ("case.tensors.x.shape", [1, 4], "values hold 12 bytes"),
    ("case.tensors.x.shape", "1,3", "a list"),
    ("case.tensors.x.values", [1, 2, 0.1], "not a value of float32"),
    ("case.tensors.x.values", [1, 2, "0x1ffffffff"], "bits of float32"),
    ("case.tensors.x.values", [1, 2, "0xg"], "bit-hex"),
    ("case.tensors.x.values", [1, 2, 10**400], "not a value of float32"),
    ("case.tensors.x.values", "???", "base64"),
    ("case.tensors.x.strides", [1], "1 strides for 2 sizes"),
    ("case.tensors.x.plants", [{"at": [0, 9], "bits": "0x0"}], "outside"),
    ("case.tensors.x.plants", [{"at": [0, 0], "bits": "0x1ffffffff"}], "wider"),
    ("case.tensors.x.fill", {"family": "randn"}, "exactly one"),
    ("case.tensors", [], "an object"),
    ("signature.kind", "wrong", "one of hang"),
    ("failure.ratio", "big", "a number"),
    ("failure.ratio", 10**400, "range"),
    ("declaration.layouts", "diagonal", "not a declaration"),
    ("declaration.shape_class", "f(N)", "may not hold"),
    ("declaration.dtypes", ["int32"], "floating"),
    ("history", [{"state": "new"}], "missing field"),
    ("seed", DELETE, None),
    ("operator", DELETE, "missing field"),
    ("colour", "red", "one of"),
]


@pytest.mark.parametrize(("path", "value", "what"), BAD_FIELDS)
def test_an_error_names_the_bad_field(path: str, value: Any, what: str | None) -> None:
    document = through_json(finding())
    *parents, last = path.split(".")
    owner = document
    for key in parents:
        owner = owner[key]
    if value is DELETE:
        del owner[last]
    else:
        owner[last] = value
    if what is None:  # a field with a default may be absent
        decode(Finding, document)
        return
    with pytest.raises(DecodeError, match=what) as caught:
        decode(Finding, document, "finding.json")
    where = caught.value.where
    place = f"finding.json.{path}"
    # What concerns a whole object is reported at the object.
    assert where.startswith(place) or place.startswith(where)
    assert where.count(".") >= len(parents) + 1
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "a field twice"),
        (b"[" * 40 + b"]" * 40, "nested deeper"),
        (b"[" * 10**5, "not JSON"),
    ],
)
def test_hostile_json_is_refused(text: bytes, what: str) -> None:
    with pytest.raises(DecodeError, match=what) as caught:
        strict_json.loads(text, where="finding.json")
    assert caught.value.where == "finding.json"


ARRAYS = {
    "float64": np.array([[1.5, -0.0], [np.inf, np.nan]]),
    "float16": np.arange(3, dtype=np.float16),
    "int64": np.array(-(2**63)),
    "uint8": np.zeros((2, 0, 3), np.uint8),
    "bool": np.array([True, False]),
}


def test_we_read_what_the_safetensors_package_writes() -> None:
    reference = pytest.importorskip("safetensors.numpy")
    ours = tensorfile.load(reference.save(ARRAYS, {"made": "by hand"}))
    assert ours == {k: StoredTensor(k, a.shape, a.tobytes()) for k, a in ARRAYS.items()}


def test_a_tensor_file_cut_anywhere_is_refused() -> None:
    whole = tensorfile.dump({"x": StoredTensor("float32", (3,), bytes(12))})
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            tensorfile.load(whole[:length])
    with pytest.raises(DecodeError):
        tensorfile.load(whole + b"\0")
