"""Children that hang, crash, flood and vanish; the campaign that outlives them."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfuzz.core.errors import HarnessError
from kfuzz.execution.processes import wire as output_module
from kfuzz.execution.processes import wire as table
from kfuzz.execution.processes.child import Child, InProcess, Zygote
from kfuzz.execution.processes.wire import (
    MAX_FRAME_BYTES,
    Channel,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    WireClosed,
    WireError,
    WireTimeout,
    ZygoteError,
)

HERE = Path(__file__).parents[1] / "helpers"
ROOT = HERE.parent.parent
ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "COLOUR": "teal"}
PATIENCE = 30.0  # never the thing measured; long enough for a loaded machine


class Sink:
    """Collects what is forwarded."""

    def __init__(self) -> None:
        self.data = b""

    def __call__(self, piece: bytes) -> None:
        self.data += piece


@pytest.fixture(scope="module")
def shared() -> Iterator[Zygote]:
    with Zygote("processes_serving:serve", env=ENV, output=Sink()) as zygote:
        yield zygote


@pytest.fixture
def child(shared: Zygote) -> Iterator[Child]:
    with shared.fork() as child:
        yield child


def new_zygote(serve: str = "serve", **more) -> Zygote:
    more.setdefault("output", Sink())
    return Zygote(f"processes_serving:{serve}", env=ENV, **more)


def ask(child: Child, do: str, timeout: float | None = PATIENCE, **more) -> dict:
    return child.request({"do": do, **more}, timeout)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def all_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while any(map(is_running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_request_comes_back_as_it_went(child):
    message = {"do": "echo", "nested": [1, {"x": None}], "text": "é\0", "big": 2**70}
    assert child.request(message, PATIENCE) == message


def test_kfuzzs_own_children_take_and_give_objects():
    message = {"do": "echo", "path": Path("a"), "pair": (1, {2})}
    with new_zygote(pickled=True) as zygote, zygote.fork() as child:
        assert child.request(message, PATIENCE) == message
        with pytest.raises(WireError, match="announces"):
            ask(child, "write_on_the_wire")


def test_after_a_hang_the_next_child_works(shared):
    with shared.fork() as hung:
        with pytest.raises(ChildTimeout):
            ask(hung, "hang", timeout=0.1)
        with pytest.raises(ChildTimeout):  # it may be waited for again
            hung.wait(0.0)
        hung.kill()
        assert all_gone([hung.pid])
    with shared.fork() as fresh:
        assert ask(fresh, "echo") == {"do": "echo"}


def test_a_late_reply_can_still_be_taken(child):
    with pytest.raises(ChildTimeout):
        ask(child, "pause", timeout=0.05, seconds=0.5)
    assert child.wait(PATIENCE) == {"pid": child.pid}
    assert ask(child, "echo") == {"do": "echo"}


@pytest.mark.parametrize(
    ("do", "exit_code", "signal_name"),
    [("segfault", None, "SIGSEGV"), ("abort", None, "SIGABRT"), ("exit", 3, None)],
)
def test_a_death_says_how(shared, do, exit_code, signal_name):
    child = shared.fork()
    with pytest.raises(ChildDied) as caught:
        ask(child, do, code=3)
    assert caught.value.exit_code == exit_code
    assert caught.value.signal_name == signal_name
    assert (signal_name or "exit code 3") in str(caught.value)
    with pytest.raises(ChildDied):  # and says so again
        ask(child, "echo")


def test_output_before_a_crash_is_kept(shared):
    with pytest.raises(ChildDied) as caught:
        ask(shared.fork(), "segfault")
    assert "about to read address 0" in caught.value.output_tail
    assert "do_segfault" in caught.value.output_tail  # the Python stack
    with pytest.raises(ChildDied) as caught:
        ask(shared.fork(), "print_from_c", crash=True)
    assert "printed by C" in caught.value.output_tail


@pytest.mark.parametrize(
    ("do", "type_name", "message"),
    [
        ("sys_exit", "SystemExit", "a kernel that ends the program"),
        ("exhaust", "MemoryError", "out of registers"),
        ("raise", "ValueError", "block size must be a power of two"),
        ("raise_unprintable", "Bad", "cannot be had"),
        ("reply_object", "WireError", "JSON"),
    ],
)
def test_an_exception_is_told_and_survived(child, do, type_name, message):
    with pytest.raises(ChildRaised) as caught:
        ask(child, do)
    assert caught.value.type == type_name
    assert message in caught.value.message
    assert "Traceback" in caught.value.traceback
    assert ask(child, "look")["pid"] == child.pid


def test_a_handler_without_a_reply_is_a_fault_of_ours(child):
    with pytest.raises(HarnessError, match="no dictionary"):
        ask(child, "reply_nothing")
    assert ask(child, "echo") == {"do": "echo"}


def test_an_error_while_loading_answers_every_request():
    with new_zygote("serve_nothing") as zygote, zygote.fork() as child:
        for _ in range(2):
            with pytest.raises(ChildRaised, match="warp_core") as caught:
                ask(child, "echo")
            assert caught.value.type == "ImportError"


def test_a_flood_neither_blocks_nor_fills():
    sink = Sink()
    with new_zygote(output=sink) as zygote, zygote.fork() as child:
        assert ask(child, "print", mib=200) == {}
        child.close()
        assert child.output_tail.endswith("the last line\n")
        assert len(child.output_tail) == output_module.TAIL_BYTES
    assert len(sink.data) >= output_module.FORWARD_BYTES
    assert len(sink.data) < output_module.FORWARD_BYTES + 200
    assert sink.data.count(b"is dropped") == 1


def test_what_c_prints_is_forwarded():
    sink = Sink()
    with new_zygote(output=sink) as zygote, zygote.fork() as child:
        ask(child, "print_from_c", crash=False)
    assert sink.data == b"printed by C\n"


def test_a_death_between_requests_is_noticed(shared):
    child = shared.fork()
    ask(child, "die_later", seconds=0.01)
    assert all_gone([child.pid])
    with pytest.raises(ChildDied) as caught:
        ask(child, "echo")
    assert caught.value.signal_name == "SIGALRM"


def test_a_child_that_closes_its_connection_is_killed(shared):
    child = shared.fork()
    with pytest.raises(ChildDied) as caught:
        ask(child, "close_everything")
    assert caught.value.signal_name == "SIGKILL"
    assert all_gone([child.pid])


def test_noise_on_the_wire_ends_the_child_only(shared):
    child = shared.fork()
    with pytest.raises(WireError, match="announces"):
        ask(child, "write_on_the_wire")
    assert all_gone([child.pid])
    with shared.fork() as fresh:
        assert ask(fresh, "echo") == {"do": "echo"}


@pytest.mark.parametrize("end", ["close", "kill", "crash"])
def test_helpers_go_with_their_child(shared, end, tmp_path):
    child = shared.fork()
    note = tmp_path / "pids"
    if end == "crash":
        # The helpers inherit output, yet the death is seen at once.
        with pytest.raises(ChildDied):
            ask(child, "leave_helpers", crash=True, note=str(note))
    else:
        ask(child, "leave_helpers", note=str(note))
        getattr(child, end)()
    assert all_gone([child.pid, *map(int, note.read_text().split())])


def test_signals_to_the_terminals_group_do_not_reach_children(child):
    seen = ask(child, "look")
    assert seen["group"] == child.pid
    assert os.getsid(child.pid) == os.getsid(seen["parent"]) != os.getsid(0)
    os.kill(seen["parent"], signal.SIGINT)
    os.kill(child.pid, signal.SIGINT)
    assert ask(child, "look")["parent"] == seen["parent"]


def test_a_killed_zygote_is_not_the_kernels_fault_and_is_replaced():
    with new_zygote() as zygote:
        idle, busy = zygote.fork(), zygote.fork()
        ask(idle, "echo")
        busy.send({"do": "spin_holding_signals"})
        first = zygote.pid
        os.kill(first, signal.SIGKILL)
        with pytest.raises(ZygoteError, match="died"):
            busy.wait(PATIENCE)
        with pytest.raises(ZygoteError, match="died"):
            ask(idle, "echo")
        with zygote.fork() as child:
            assert ask(child, "echo") == {"do": "echo"}
        assert zygote.pid != first
        assert all_gone([first, idle.pid, busy.pid])


def test_helpers_of_a_killed_zygote_go_too(tmp_path):
    note = tmp_path / "pids"
    with new_zygote() as zygote:
        child = zygote.fork()
        helper = ask(child, "leave_helpers", note=str(note))["pids"][0]
        with pytest.raises(ZygoteError):
            ask(child, "kill_parent")
        # The one that fled its session as well as its parents is out of reach.
        assert all_gone([child.pid, helper])
        os.kill(int(note.read_text().split()[1]), signal.SIGKILL)


def test_a_zygote_that_cannot_start_shows_why():
    with new_zygote(preload=["torch_of_another_world"]) as zygote:
        for _ in range(2):
            with pytest.raises(ZygoteError) as caught:
                zygote.fork()
            assert "No module named 'torch_of_another_world'" in str(caught.value)
            assert "did not start" in str(caught.value)
    with (
        Zygote("processes_serving:absent", env=ENV, output=Sink()) as zygote,
        pytest.raises(ZygoteError, match="no function 'absent'"),
    ):
        zygote.fork()


CAMPAIGN = """
import sys, time
from kfuzz.execution.processes.child import Zygote
zygote = Zygote("processes_serving:serve", env={env!r})
zygote.start()
hung, helper = zygote.fork(), zygote.fork()
pids = [zygote.pid, hung.pid, helper.pid]
pids += helper.request({{"do": "leave_helpers"}}, 30)["pids"]
hung.send({{"do": "spin_holding_signals"}})
print(*pids, flush=True)
time.sleep(3600)
"""


@pytest.fixture
def campaign() -> Iterator[tuple[int, list[int]]]:
    """Another campaign: its pid; those of its zygote, two children, two helpers."""
    with subprocess.Popen(
        [sys.executable, "-c", CAMPAIGN.format(env=ENV)],
        stdout=subprocess.PIPE,
        env={**ENV, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 5
        assert all(map(is_running, pids))
        yield process.pid, pids
        process.kill()
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)


def test_nothing_outlives_a_killed_campaign(campaign):
    pid, pids = campaign
    os.kill(pid, signal.SIGKILL)
    assert all_gone(pids)


def test_children_do_not_outlive_campaign_and_zygote(campaign):
    pid, pids = campaign
    os.kill(pid, signal.SIGSTOP)  # it can do nothing about what follows
    os.kill(pids[0], signal.SIGKILL)
    assert all_gone(pids[1:3])


def test_an_interrupted_fork_leaves_the_zygote_usable():
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with new_zygote() as zygote:
        zygote.fork().close()
        first = zygote.pid
        before = signal.signal(signal.SIGALRM, interrupt)
        os.kill(first, signal.SIGSTOP)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                zygote.fork()
        finally:
            signal.signal(signal.SIGALRM, before)
            os.kill(first, signal.SIGCONT)
        with zygote.fork() as child:
            assert ask(child, "look")["pid"] == child.pid
        assert zygote.pid == first


def test_children_are_found_on_kernels_that_do_not_list_them(monkeypatch):
    monkeypatch.setattr(table, "_listing", lambda pid: Path("/nonexistent"))
    with new_zygote() as zygote, zygote.fork() as child:
        assert table.children_of(zygote.pid) == [child.pid]


def test_leaving_ends_hung_children():
    with new_zygote() as zygote:
        children = [zygote.fork() for _ in range(3)]
        for child in children:
            child.send({"do": "spin_holding_signals"})
        pids = [zygote.pid, *(child.pid for child in children)]
    assert all_gone(pids)
    with pytest.raises(HarnessError, match="closed"):
        children[0].wait(PATIENCE)


@pytest.mark.slow
def test_many_forks_leak_nothing():
    before = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    with new_zygote() as zygote:
        with zygote.fork() as child:
            held = ask(child, "look")["fds"]
            during = len(os.listdir("/proc/self/fd"))
        for number in range(200):
            child = zygote.fork()
            assert ask(child, "echo", number=number)["number"] == number
            child.kill() if number % 2 else child.close()
        with zygote.fork() as child:
            assert ask(child, "look")["fds"] == held
            assert len(os.listdir("/proc/self/fd")) == during
            assert threading.active_count() == threads + 2
        left = Path(f"/proc/{zygote.pid}/task/{zygote.pid}/children").read_text()
        assert left == ""  # no zombies either
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == threads


def test_two_children_work_at_the_same_time(shared):
    with shared.fork() as slow, shared.fork() as quick:
        slow.send({"do": "hang"})
        quick.send({"do": "pause", "seconds": 0.01})
        assert quick.wait(PATIENCE) == {"pid": quick.pid}
        with pytest.raises(ChildTimeout):
            slow.wait(0.0)


def test_the_environment_is_what_was_given(child):
    seen = ask(child, "look")
    environment = seen["environment"]
    assert environment.pop("PYTHONPATH").split(":") == [str(ROOT), str(HERE)]
    environment.pop("LC_CTYPE", None)  # Python's own, without a locale
    assert environment == {name: ENV[name] for name in ("PATH", "COLOUR")}
    assert seen["core"] == 0


def test_users_files_stay_out_of_the_zygote(tmp_path, monkeypatch):
    # A file beside the user's kernels must not stand in for a real module.
    (tmp_path / "colorsys.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    with new_zygote(preload=["colorsys"]) as zygote, zygote.fork() as child:
        seen = ask(child, "look")
        assert {"colorsys", "processes_serving"} <= set(seen["modules"])
        assert seen["imported_in"] == seen["parent"] == zygote.pid
        assert not {"torch", "pytest", "test_processes"} & set(seen["modules"])
        assert seen["threads"] == 1
        assert str(tmp_path) not in seen["path"]
        assert "" not in seen["path"]


def test_in_process_keeps_the_interface():
    def serve():
        def handle(message):
            if message["do"] == "raise":
                raise ValueError("not a power of two")
            if message["do"] == "exit":
                sys.exit(3)
            return message if message["do"] == "echo" else message["do"]

        return handle

    with InProcess(serve) as here:
        assert here.request({"do": "echo", "pair": (1, 2)}) == {
            "do": "echo",
            "pair": (1, 2),
        }
        with pytest.raises(ChildRaised, match="power of two"):
            here.request({"do": "raise"})
        with pytest.raises(ChildRaised) as caught:
            here.request({"do": "exit"})
        assert caught.value.type == "SystemExit"
        with pytest.raises(HarnessError, match="dictionary"):
            here.request({"do": "reply"})
        with pytest.raises(HarnessError, match="no request"):
            here.wait()


def test_in_process_lets_the_user_interrupt():
    def interrupted(message: dict) -> dict:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InProcess(lambda: interrupted).request({})


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), "limit"),
        (b"\0\0\0\2[]", "list, no dictionary"),
        (b"\0\0\0\3{]}", "cannot be read"),
        (b"\0\0\0\1\xff", "cannot be read"),
        (b"\0\0\x40\0" + b"[" * 0x4000, "cannot be read"),
    ],
)
def test_malformed_frames_are_refused(ends, sent, told):
    channel, theirs = ends
    theirs.sendall(sent)
    with pytest.raises(WireError, match=told):
        channel.receive(PATIENCE)


def test_a_frame_may_arrive_in_pieces(ends):
    channel, theirs = ends
    frame = b'\0\0\0\x07{"a":1}'
    for byte in frame[:-1]:
        theirs.send(bytes([byte]))
        with pytest.raises(WireTimeout):
            channel.receive(0.0)
    theirs.send(frame[-1:])
    assert channel.receive(0.0) == {"a": 1}


def test_a_frame_cut_short_is_told(ends):
    channel, theirs = ends
    theirs.sendall(b'\0\0\0\x07{"a"')
    theirs.close()
    with pytest.raises(WireClosed, match="middle of a frame"):
        channel.receive(PATIENCE)


def test_oversized_messages_are_not_sent(ends):
    channel, _ = ends
    with pytest.raises(WireError, match="over the limit"):
        channel.send({"a": "x" * MAX_FRAME_BYTES})
    channel.send({}, 1.0)


def test_a_reader_that_stands_still_is_not_waited_for(ends):
    channel, _ = ends
    with pytest.raises(WireTimeout):
        channel.send({"a": "x" * (4 << 20)}, 0.05)


def test_a_line_that_many_children_print_is_passed_on_once():
    sink = Sink()
    once = output_module.Once(sink)
    for _ in range(3):
        once(b"imported\n")
        once(b"called\ncalled\n")
    assert sink.data == b"imported\ncalled\n"
    trace = b"Traceback (most recent call last):\n  File a.py\n%s\n"
    once(trace % b"ValueError: 1")
    once(trace % b"ValueError: 1")
    once(trace % b"ValueError: 2")
    told = trace % b"ValueError: 1" + trace % b"ValueError: 2"
    assert sink.data == b"imported\ncalled\n" + told
