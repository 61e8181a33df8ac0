"""How much memory a child is left."""

import os
import resource

from kfuzz.execution.processes.wire import VARIABLE, allowance, limit_memory


def test_the_variable_says_how_many_mebibytes(monkeypatch):
    monkeypatch.setenv(VARIABLE, "300")
    assert allowance() == 300 << 20
    monkeypatch.setenv(VARIABLE, "0")
    assert allowance() is None


def test_otherwise_it_is_part_of_what_is_free(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < allowance() < total


def test_an_allocation_beyond_it_fails_and_the_process_goes_on(monkeypatch):
    monkeypatch.setenv(VARIABLE, "64")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            limit_memory()
            kept = bytearray(16 << 20)
            try:
                bytearray(1 << 30)
            except MemoryError:
                code = 0 if len(kept) == 16 << 20 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
