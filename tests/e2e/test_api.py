"""`kfuzz.falsify` and `kfuzz.replay` in a fresh Python, as in a notebook."""

import json

import pytest

from tests.e2e.project import HEADER, WRONG, Project

USE = """

if __name__ == "__main__":
    import json
    import os
    import kfuzz

    found = kfuzz.falsify(wrong, max_cases=30, seed=1, device="cpu")
    one = found[0]
    results = [kfuzz.replay(one, times=1).outcome] if PLACE else []
    print(json.dumps({
        "ids": [f.id for f in found],
        "elements": one.input_elements,
        "nonzero": one.nonzero_elements,
        "state": one.state,
        "pids": sorted(map(int, open("pids").read().split())),
        "pid": os.getpid(),
        "replay": results,
    }))
"""
# Notes which processes call it.
NOTING = WRONG.replace(
    "    n = y",
    "    import os\n    open('pids', 'a').write(f'{os.getpid()} ')\n    n = y",
)


@pytest.mark.slow
def test_a_kernel_of_a_file_runs_in_processes_of_its_own(project: Project) -> None:
    project.write("kernels.py", HEADER + NOTING + USE.replace("PLACE", "True"))
    done = project.python("kernels.py")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["ids"]) == 1
    assert (told["elements"], told["nonzero"]) == (3, 1)
    assert told["state"] == "confirmed"
    assert told["pid"] not in told["pids"]
    assert told["replay"] == ["FAILS"]
    assert not project.corpus.exists()
    assert project.wait_until_alone() == []


@pytest.mark.slow
def test_a_kernel_of_no_file_runs_in_this_process(project: Project) -> None:
    done = project.python("-c", HEADER + NOTING + USE.replace("PLACE", "False"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["ids"]) == 1
    assert (told["elements"], told["nonzero"]) == (3, 1)
    assert set(told["pids"]) == {told["pid"]}


@pytest.mark.slow
def test_a_user_s_own_hypothesis_tests_store_where_they_did(project: Project) -> None:
    project.write("kernels.py", HEADER + WRONG)
    done = project.python(
        "-c",
        "import kernels, kfuzz, os\n"
        "from hypothesis.configuration import storage_directory\n"
        "before = storage_directory('examples').path\n"
        "kfuzz.falsify(kernels.wrong, max_cases=5, seed=1, device='cpu')\n"
        "assert storage_directory('examples').path == before, before\n"
        "assert not os.path.exists('.hypothesis')\n",
    )
    assert done.returncode == 0, done.stderr
