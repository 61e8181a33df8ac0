"""What a script says of each kind of failure, and of those that it cannot see."""

import ast
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kfuzz.core.declaration import Declaration
from kfuzz.core.finding import Line, Target
from kfuzz.core.recipe import Case, Destination, TensorSpec
from kfuzz.core.verdict import Access, Failure, Kind
from kfuzz.engine.scripts import imported, script
from tests.helpers.findings import finding

HEAD = "import ctypes\nimport torch\n\nKEPT = []\n\n\ndef mine(x, dim=-1):\n"
KERNEL = Target("kernels.py", "mine")
STORE = "    ctypes.memset(x.data_ptr() + {at}, 0, 4)\n    return x.clone()\n"

# A kernel's body for each kind, and what to replace to mend it.
VISIBLE = {
    "past the end": (Kind.WRITE_OUTSIDE, STORE.format(at=28), ("28", "24")),
    "before the start": (Kind.WRITE_OUTSIDE, STORE.format(at=-4), ("-4", "0")),
    "in a gap": (Kind.WRITE_OUTSIDE, STORE.format(at=12), ("12", "16")),
    "view of an argument": (
        Kind.ALIASES_INPUT, "    return x[:1]\n", ("[:1]", ".clone()"),
    ),
    "static buffer": (
        Kind.ALIASES_OUTPUT,
        "    KEPT.append(torch.empty_like(x))\n    return KEPT[0]\n",
        ("KEPT[0]", "KEPT[-1]"),
    ),
    "index": (
        Kind.INDEX_ACCEPTED, "    if 0:\n        raise IndexError\n    return x\n",
        ("if 0", "if 1"),
    ),
    "seed": (
        Kind.SEED_DEPENDENT, "    return x + torch.rand(1)\n", ("torch.rand(1)", "1"),
    ),
}  # fmt: skip


def outcome(
    kind: Kind,
    folder: Path,
    target: Target = KERNEL,
    *,
    poison: str | None = None,
    **changes: Any,
) -> int:
    """Run the script of a hand-made finding; return its exit code."""
    spec = TensorSpec((2, 3), ("M", "N"), "float32", (4, 1), values=bytes(24))
    failure = Failure("K-MEM-01", kind, "it fails", "x")
    made = finding(
        kernel="mine",
        case=Case({"x": spec}, {"dim": -1}, poison=poison),
        failure=replace(failure, **changes),
        target=target,
    )
    (folder / "repro.py").write_text(script(made))
    with pytest.raises(SystemExit) as end:
        runpy.run_path("repro.py")
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Two files written within a second would pass for one in a cache.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize("name", VISIBLE)
def test_a_script_fails_until_the_kernel_is_mended(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, body, (bad, good) = VISIBLE[name]
    (folder / "kernels.py").write_text(HEAD + body)
    assert outcome(kind, folder) == 1
    assert "FAILS" in capsys.readouterr().out
    (folder / "kernels.py").write_text(HEAD + body.replace(bad, good))
    assert outcome(kind, folder) == 0
    assert "passes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "changes", "part"),
    [
        (Kind.READ_OUTSIDE, {}, "a load outside its arguments"),
        (Kind.WRITE_OUTSIDE, {"output": ""}, "this store outside"),
        (
            Kind.WRITE_OUTSIDE,
            {"accesses": (Access("store", "x", "x", "before", 2**31, -(2**31)),)},
            "this store outside",
        ),
        (Kind.RACE, {}, "which of two programs stores last"),
        (Kind.UNWRITTEN, {}, "what fresh memory held"),
        (Kind.BATCH_DEPENDENT, {}, "what the same rows are in another batch"),
        (Kind.OVERLAP_DEPENDENT, {}, "what it gives beside other calls"),
        (
            Kind.TUNING_DEPENDENT,
            {"contract": "C-CMP-02", "index": (0, 0)},
            "what an autotuner leaves when it measures",
        ),
        (
            Kind.VALUE,
            {"contract": "C-CMP-02", "index": (0, 0), "expected": 1.0},
            "which configuration runs",
        ),
    ],
)
def test_a_script_says_what_it_cannot_see(
    kind: Kind,
    changes: dict[str, Any],
    part: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "kernels.py").write_text(HEAD + "    return x.clone()\n")
    assert outcome(kind, folder, **changes) == 2
    said = capsys.readouterr().out
    assert part in said
    assert "kfuzz replay mine-" in said
    assert ("may crash" in said) is (kind is Kind.WRITE_OUTSIDE)
    assert "Exit code 2" in (folder / "repro.py").read_text()


def test_a_script_says_that_a_file_of_bindings_needs_kfuzz(folder: Path) -> None:
    (folder / "bound.py").write_text("import kfuzz\n")
    (folder / "plain.py").write_text("import torch\n")
    for name in ("bound.py", "plain.py", "elsewhere.py"):
        text = script(finding(target=Target(name, "softmax")))
        assert ("own file, which imports kfuzz." in text) == (name == "bound.py")


def test_a_script_takes_an_imported_function_from_where_it_is_defined(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "kernels.py").write_text(HEAD + "    return x[:1]\n")
    (folder / "below").mkdir()
    (folder / "below" / "bound.py").write_text(
        'import kernels\nimport kfuzz\nkfuzz.kernel("x", name="named")(kernels.mine)\n'
    )
    monkeypatch.setitem(sys.modules, "kfuzz", None)  # the script must not ask for it
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    target = Target("below/bound.py", "named")
    assert outcome(Kind.ALIASES_INPUT, folder, target) == 1
    assert "imports kfuzz" not in (folder / "repro.py").read_text()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('import a.b as m\nkfuzz.kernel("x")(m.mine)', ("a.b", "mine")),
        ('import a.b\nkfuzz.kernel("x")(a.b.mine)', ("a.b", "mine")),
        ('from a import b\nkfuzz.kernel("x", name="mine")(b.f)', ("a.b", "f")),
        ('from a import f\ny = kfuzz.kernel("x", name="mine")(f)', ("a", "f")),
        ('from a import f\ny = kfuzz.kernel("x", name="other")(f)', None),
        ('from .a import mine\nkfuzz.kernel("x")(mine)', None),
        ('def mine(x): ...\nkfuzz.kernel("x")(mine)', None),
        ('import a\nkfuzz.kernel("x", name="mine")(lambda x: a.f(x))', None),
        ('import a\n@kfuzz.kernel("x")\ndef mine(x): ...', None),
        ("not python(", None),
    ],
)
def test_where_a_function_is_imported_from(
    text: str, found: tuple[str, str] | None
) -> None:
    assert imported(text, "mine") == found


def test_a_script_looks_at_the_result_concerned(folder: Path) -> None:
    value = {"index": (0, 1), "expected": 2.0, "low": 1.5, "high": 2.0, "place": 1}
    two = {"output": "", "message": "returns Tensor, expected 2 tensors"}
    shape = {"place": 1, "message": "h has shape (6,), expected (2, 3)"}
    kinds = (Kind.VALUE, Kind.WRONG_TYPE, Kind.WRONG_SHAPE)
    for wrong, codes in (
        ("(x, x + 3)", (1, 0, 0)),
        ("(x, x + 2)", (0, 0, 0)),
        ("(x, torch.full((2, 3), 2))", (0, 0, 0)),
        ("(x, (x + 2).flatten())", (None, 0, 1)),
        ("x", (None, 1, None)),
    ):
        (folder / "kernels.py").write_text(HEAD + f"    return {wrong}\n")
        for kind, changes, code in zip(kinds, (value, two, shape), codes, strict=True):
            if code is not None:
                assert outcome(kind, folder, **changes) == code, (wrong, kind)


@pytest.mark.usefixtures("restored")  # the script is run here
@pytest.mark.parametrize(("poison", "code"), [("nan", 0), ("finite", 2)])
def test_a_script_that_fills_memory_otherwise_does_not_say_that_it_passes(
    poison: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = {"index": (0, 0), "got": 2.0, "expected": 0.0, "low": 0.0, "high": 0.0}
    (folder / "kernels.py").write_text(
        # Wrong only where fresh memory holds a large number.
        HEAD + "    return (torch.empty(2, 3) > 100).float()\n"
    )
    assert outcome(Kind.UNWRITTEN, folder, poison=poison, **near) == code
    assert ("kfuzz replay mine-" in capsys.readouterr().out) is (code == 2)
    assert f"{code}: " in (folder / "repro.py").read_text()


def test_a_script_runs_the_configuration_that_failed(folder: Path) -> None:
    (folder / "kernels.py").write_text(
        "def mine(x, dim=-1, *, block):\n    return x + block\n"
    )
    spec = TensorSpec((2, 3), ("M", "N"), "float32", values=bytes(24))
    failure = Failure(
        "C-CMP-02", Kind.VALUE, "it fails", "y", index=(0, 0), expected=1.0, low=1.0,
        high=1.0,
    )  # fmt: skip
    for number, code in ((0, 0), (1, 1)):
        made = finding(
            kernel="mine",
            case=Case({"x": spec}, {"dim": -1}, config=number),
            failure=failure,
            declaration=Declaration(configs=({"block": 1}, {"block": 2})),
            target=Target("kernels.py", "mine"),
        )
        (folder / "repro.py").write_text(script(made))
        with pytest.raises(SystemExit) as end:
            runpy.run_path("repro.py")
        assert end.value.code == code


# What ends a literal, an f-string, a comment, a docstring or a line.
HOSTILE = (
    '" + print("RAN") + "',
    "' + print('RAN') + '",
    '\nprint("RAN")\n#',
    '\rprint("RAN")\r#',
    '"""\nprint("RAN")\n"""',
    '\x0c\x00\u2028\ud800print("RAN")',
    '{print("RAN")}$call',
    "\\",
    '[print("RAN")]',
)


def foreign(kind: Kind, text: str, *, message: str, out: bool) -> str:
    """Return the script of a finding that holds a text wherever it can."""
    spec = TensorSpec((2, 3), ("M", "N"), "float32", values=bytes(24))
    failure = Failure(
        "K-MEM-01", kind, message, text, text, index=(0, 1), got=0.0, expected=0.0,
        low=0.0, high=0.0, place=1,
    )  # fmt: skip
    configs = ({text: text},)
    claims = Declaration(configs=configs, out=(text,) if out else (), inplace=("x",))
    places = {text: Destination((2, 3), "float32", (3, 1))}
    made = finding(
        kernel="mine",
        case=Case({"x": spec, text: spec}, {text: text}, destinations=places),
        failure=failure,
        declaration=claims,
        target=Target(text, text),
        line=Line(text, 41, True, text, 0, text),
    )
    return script(made)


def statements(code: str) -> list[str]:
    """Return what a script is made of, without the values of its literals."""
    return [type(node).__name__ for node in ast.walk(ast.parse(code))]


MESSAGES = ("{}", "y with x times 2^3, but not 2^3 times {}", "of {} expected {}")
PLACES = [(message, out) for message in MESSAGES for out in (False, True)]


@pytest.mark.parametrize("kind", Kind)
def test_what_a_finding_holds_is_no_code_of_its_script(kind: Kind) -> None:
    """Each text is tried in each place with some of the kinds, in turn."""
    first = list(Kind).index(kind)
    honest: dict[tuple[str, bool], list[str]] = {}
    for i, text in enumerate(HOSTILE, first):
        place = message, out = PLACES[i % len(PLACES)]
        if place not in honest:
            code = foreign(
                kind, "honest", message=message.replace("{}", "honest"), out=out
            )
            honest[place] = statements(code)
        code = foreign(kind, text, message=message.replace("{}", text), out=out)
        assert statements(code) == honest[place], (text, message, out)
