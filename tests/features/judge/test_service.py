"""`kfuzz.Judge`, and the same behind HTTP: verdicts, rewards, and who may ask."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kfuzz
from kfuzz.core.errors import KfuzzError, UsageError
from kfuzz.execution.processes import wire as table
from kfuzz.features.judge.adapters.rewards import judge_with
from kfuzz.features.judge.service import judge as service
from kfuzz.features.judge.service.judge import REWARDS, Ruling, Score, Task
from kfuzz.features.judge.service.server import MOST_BYTES, serving
from tests.features.judge.judging import SERVED, problem

PAIRS = Path(__file__).with_name("pairs")
RELU = problem("return x.relu()", "torch.randn(8, 16)")
RIGHT = "import torch\ndef relu(x):\n    return torch.relu(x)\n"
TOKEN = "open sesame"


@pytest.fixture(scope="module")
def judge() -> kfuzz.Judge:
    return judge_with(**SERVED)


@pytest.fixture(scope="module")
def side_by_side() -> Iterator[kfuzz.Judge]:
    with kfuzz.Judge(
        device="cpu", max_time=60, build_time=60, max_cases=4, jobs=2
    ) as judge:
        yield judge


@pytest.fixture(scope="module")
def relu(judge: kfuzz.Judge) -> Task:
    return judge.task(RELU, entry="relu")


@pytest.mark.slow
def test_a_cheat_violates_and_its_honest_twin_conforms(judge: kfuzz.Judge) -> None:
    task = judge.task(PAIRS / "softmax" / "reference.py")
    wrong = judge.judge(PAIRS / "softmax" / "zeros.py", task=task)
    assert (wrong.verdict, wrong.reward) == (Ruling.VIOLATES, 0.0)
    assert wrong.finding is not None
    assert wrong.finding["contract"] == "K-VAL-01"
    assert wrong.finding["state"] == "confirmed"
    assert wrong.finding["inputs"] == {"x": "float32[4, 2048]"}, "it is reduced"
    assert wrong.finding["got"] == 0.0
    assert json.loads(json.dumps(wrong.document))["verdict"] == "violates"
    right = judge.judge(PAIRS / "softmax" / "honest.py", task=task)
    assert (right.verdict, right.reward) == (Ruling.CONFORMS, 1.0)
    assert right.finding is None
    assert right.cases == 4


@pytest.mark.slow
def test_what_is_judged_next_gets_the_weights_as_built() -> None:
    pair = PAIRS / "layer_norm"
    with kfuzz.Judge(
        pair / "reference.py", device="cpu", max_time=60, max_cases=40
    ) as judge:
        # It ends with a case in which weights that are constant as built are drawn.
        assert (
            judge.judge(pair / "neutral_weights.py", seed=1).verdict is Ruling.VIOLATES
        )
        right = judge.judge(pair / "honest.py", seed=1)
        assert right.verdict is Ruling.CONFORMS, right.reason


@pytest.mark.slow
def test_explaining_reduces(judge: kfuzz.Judge, relu: Task) -> None:
    wrong = judge.judge(RIGHT.replace("(x)\n", "(x) + 0.01\n"), task=relu, explain=True)
    assert wrong.verdict is Ruling.VIOLATES
    assert wrong.finding is not None
    assert wrong.finding["inputs"] == {"x": "float32[1, 1]"}
    assert wrong.finding["line"] is None, "it is no Triton kernel"


def test_verdicts_on_what_is_no_violation(judge: kfuzz.Judge, relu: Task) -> None:
    def of(text: str, task: Task = relu) -> Score:
        return judge.judge(f"import torch\ndef relu(x):\n    {text}", task=task)

    broken = judge.judge("import (", task=relu)
    assert (broken.verdict, broken.reward) == (Ruling.ERROR, 0.0)
    assert "SyntaxError" in broken.reason
    assert str(judge._home) not in broken.reason
    undecided = judge.task(
        RELU.replace("x.relu()", "torch.zeros_like(x)"), entry="relu"
    )
    dropped = of("return x", undecided)
    assert (dropped.verdict, dropped.reward) == (Ruling.UNDER_SPECIFIED, None)
    assert "the same for every input" in dropped.reason


@pytest.mark.slow
def test_what_is_wrong_about_nan_alone_has_a_verdict_of_its_own() -> None:
    with kfuzz.Judge(
        RELU, entry="relu", device="cpu", max_time=60, max_cases=20,
        rewards={"conforms_on_finite": 0.9},
    ) as judge:  # fmt: skip
        made = judge.judge(
            "import torch\ndef relu(x):\n    return torch.where(x > 0, x, 0.0)"
        )
    assert made.verdict is Ruling.CONFORMS_ON_FINITE, made
    assert made.reward == 0.9
    assert made.finding is not None


@pytest.mark.slow
def test_a_judgement_that_does_not_end_is_ended_with_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference hangs here: its process takes its whole time, and no more."""
    monkeypatch.setattr(service, "GRACE_SECONDS", 0.5)
    with kfuzz.Judge(device="cpu", max_time=60, build_time=60, max_cases=3) as judge:
        relu = judge.task(RELU, entry="relu")
        assert judge.judge(RIGHT, task=relu).verdict is Ruling.CONFORMS
        [before] = [p._child.pid for p in judge._workers if p._child]
        monkeypatch.setattr(judge, "_build_time", 0.5)
        hangs = judge.task("import time\ntime.sleep(100)\n" + RELU, entry="relu")
        made = judge.judge(RIGHT, task=hangs)
        assert (made.verdict, made.reward) == (Ruling.UNDER_SPECIFIED, None)
        assert "opening the reference was given up" in made.reason
        assert not os.path.exists(f"/proc/{before}")
        monkeypatch.setattr(judge, "_build_time", 20.0)
        assert judge.judge(RIGHT, task=relu).verdict is Ruling.CONFORMS
        zygote = judge._zygote.pid
        assert zygote is not None
    assert not table.session_of(zygote)
    assert not judge._home.exists()
    with pytest.raises(UsageError, match="closed"):
        judge.judge(RIGHT, task=relu)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"problem": "softmax"}, "no such file"),
        ({"entry": "a b"}, "no Python name"),
        ({"max_time": 0}, "not a positive number"),
        ({"rewards": {"conform": 1.0}}, "did you mean 'conforms'"),
    ],
)
def test_what_cannot_be_obeyed_is_said_at_once(given: Any, says: str) -> None:
    with pytest.raises(KfuzzError, match=says):
        kfuzz.Judge(**given)


def test_a_reference_that_is_not_of_the_form_is_the_callers_error(
    judge: kfuzz.Judge,
) -> None:
    with pytest.raises(UsageError, match="it has no Model"):
        judge.judge(RIGHT, task=judge.task("x = 1\n"))
    with pytest.raises(UsageError, match="no task"):
        judge.judge(RIGHT)


def test_every_verdict_has_a_reward_and_stands_in_the_table() -> None:
    text = Path(service.__file__).with_name("README.md").read_text()
    assert set(REWARDS) == set(Ruling)
    assert all(f"| `{ruling}` |" in text for ruling in Ruling)


# Behind HTTP ------------------------------------------------------------------------


class Client:
    def __init__(self, path: str) -> None:
        self.path = path

    def connected(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("judge", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        connection.sock.connect(self.path)
        return connection

    def ask(
        self, body: Any, *, token: str = TOKEN, path: str = "/judge", verb: str = "POST"
    ) -> tuple[int, Any]:
        connection = self.connected()
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        connection.request(verb, path, text, headers)
        answer = connection.getresponse()
        made = answer.status, json.loads(answer.read())
        connection.close()
        return made


@pytest.fixture
def client(judge: kfuzz.Judge, tmp_path: Path) -> Iterator[Client]:
    path = str(tmp_path / "judge.sock")
    with serving(f"unix:{path}", judge, TOKEN):
        assert os.stat(path).st_mode & 0o777 == 0o600
        yield Client(path)
    assert not os.path.exists(path)


def test_a_candidate_is_sent_and_a_verdict_comes_back(client: Client) -> None:
    sent = {"candidate": RIGHT, "reference": RELU, "entry": "relu", "seed": 3}
    status, made = client.ask(sent)
    assert (status, made["verdict"], made["reward"]) == (200, "conforms", 1.0)
    assert made["seed"] == 3
    assert made["finding"] is None
    wrong = RIGHT.replace("torch.relu(x)", "torch.relu(x) * 2")
    status, made = client.ask({**sent, "candidate": wrong})
    assert (status, made["verdict"]) == (200, "violates")
    assert client.ask(None, verb="GET", path="/health") == (200, {"jobs": 1})


def test_bad_requests_are_answered_and_nothing_hangs(client: Client) -> None:
    good = {"candidate": RIGHT, "reference": RELU}
    for body, status, says in (
        (b"{", 400, "no JSON"),
        ({}, 400, "no candidate"),
        ({"candidate": 1}, 400, "candidate is int, not str"),
        ({"candidate": RIGHT}, 400, "no problem"),
        ({**good, "canditate": ""}, 400, "did you mean 'candidate'"),
        ({**good, "reference": __file__}, 400, "importing it raises"),
    ):
        got, made = client.ask(body)
        assert got == status, says
        assert says in made["error"]
    # More than a socket holds: it is answered all the same, not cut off.
    long = {**good, "candidate": "#" * (MOST_BYTES // 2)}
    status, made = client.ask(long, token="open")
    assert status == 401
    assert "token" in made["error"]
    assert client.ask(good, path="/")[0] == 404
    large = client.connected()
    large.putrequest("POST", "/judge")
    large.putheader("Authorization", f"Bearer {TOKEN}")
    large.putheader("Content-Length", str(MOST_BYTES + 1))
    large.endheaders()
    assert large.getresponse().status == 413
    large.close()
    gone = client.connected()  # before the answer
    body = json.dumps({**good, "entry": "relu"}).encode()
    gone.request("POST", "/judge", body, {"Authorization": f"Bearer {TOKEN}"})
    gone.close()
    assert client.ask({**good, "entry": "relu"})[1]["verdict"] == "conforms"


def test_a_port_is_served_on_this_machine_alone(
    judge: kfuzz.Judge, tmp_path: Path
) -> None:
    with serving("0", judge, TOKEN) as place:
        assert place.startswith("http://127.0.0.1:")
        connection = http.client.HTTPConnection(place.removeprefix("http://"))
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert (answer.status, b"no token" in answer.read()) == (401, True)
        connection.close()
        with pytest.raises(UsageError, match="cannot listen"):
            serving(place.rpartition(":")[2], judge, TOKEN).__enter__()
    for address in ("0.0.0.0:80", "nowhere"):
        with pytest.raises(UsageError, match="no address"):
            serving(address, judge, TOKEN).__enter__()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="a file"):
        serving(f"unix:{tmp_path}/file", judge, TOKEN).__enter__()


@pytest.mark.slow
def test_no_candidate_reads_what_others_are_judged_on(
    side_by_side: kfuzz.Judge, relu: Task
) -> None:
    judge = side_by_side
    spy = "import os, torch\ndef relu(x):\n    seen = []\n"
    spy += f"    for folder, _, files in os.walk({str(judge._private)!r}):\n"
    spy += "        for f in files:\n            try:\n"
    spy += "                seen.append(open(os.path.join(folder, f)).read())\n"
    spy += "            except OSError:\n                pass\n"
    spy += "    return torch.relu(x) + len(seen)\n"
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda c: judge.judge(c, task=relu), [RIGHT, spy]))
    # The reference is in memory alone; its folder is there, and hidden.
    assert list(judge._private.iterdir())
    assert not list(judge._private.rglob("*.py"))
    assert [s.verdict for s in made] == [Ruling.CONFORMS] * 2, made


@pytest.mark.slow
def test_the_command_serves_until_it_is_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "judge.sock")
    command = [
        sys.executable,
        "-m",
        "kfuzz",
        "judge",
        str(PAIRS / "softmax/reference.py"),
    ]
    command += ["--serve", f"unix:{path}", "--device", "cpu", "--max-cases", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"serving at unix:{path}\n"
        name, _, token = process.stdout.readline().strip().partition("=")
        assert name == "KFUZZ_JUDGE_TOKEN"
        cheat = {"candidate": (PAIRS / "softmax/zeros.py").read_text()}
        client = Client(path)
        assert client.ask(cheat, token=token)[1]["verdict"] == "violates"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not os.path.exists(path)
