"""Programs that misbehave: each is contained, its ending is named, and nothing outside is hurt."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path

import pytest

from sbd import _seccomp, sandbox
from sbd.errors import UserError
from sbd.sandbox import Limits, check_function, run_program

QUICK = Limits(wall_seconds=1.0, cpu_seconds=10, memory_bytes=128 << 20)

pytestmark = pytest.mark.skipif(
    not sandbox.protections()["seccomp"], reason="this kernel grants no seccomp filter, so running code is refused"
)


@pytest.fixture(params=["landlock", "sealed"])
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With Landlock, and as on a kernel without it."""
    found = sandbox.protections()
    if request.param == "landlock" and not found["landlock"]:
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setattr(sandbox, "protections", lambda: {**found, "landlock": request.param == "landlock"})
    return request.param


def test_a_right_function_passes_and_a_wrong_one_fails(plan: str) -> None:
    right = check_function("def f(x):\n    return [x, x + 1]", "f", [[[1], [1, 2]], [[5], [5, 6]]])
    assert right.status == "passed"
    assert right.passed
    wrong = check_function("def f(x):\n    return x if x < 5 else 0", "f", [[[1], 1], [[5], 5]])
    assert wrong.status == "failed"
    assert wrong.message == "f(5) returned 0, expected 5"
    assert not wrong.passed


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("return x +", "error", "SyntaxError"),
        ("return y", "error", "NameError"),
        ("assert x == 2", "failed", "AssertionError"),
        ("raise SystemExit(0)", "error", "SystemExit"),
        ("import os; os._exit(0)", "error", "without a report"),
        ("return f(x)", "error", "RecursionError"),
        ("import ctypes; ctypes.string_at(0)", "error", "signal 11"),
        ("return object()", "failed", "expected 1"),
        ("return None", "failed", "returned None, expected 1"),
    ],
)
def test_faults_are_named(body: str, status: str, message: str) -> None:
    outcome = check_function(f"def f(x):\n    {body}", "f", [[[1], 1]])
    assert (outcome.status, outcome.passed) == (status, False)
    assert message in outcome.message


def test_a_missing_function_and_missing_tests_do_not_pass() -> None:
    outcome = check_function("def g(x):\n    return x", "f", [[[1], 1]])
    assert outcome.status == "error"
    assert "no function 'f'" in outcome.message
    with pytest.raises(UserError, match="no tests"):
        check_function("def f(x):\n    return x", "f", [])


def test_an_endless_loop_and_an_endless_sleep_time_out() -> None:
    assert run_program("while True: pass", limits=QUICK).status == "timeout"
    started = time.monotonic()
    asleep = run_program("import time; time.sleep(100)", limits=QUICK)
    assert asleep.status == "timeout"
    assert "1 s" in asleep.message
    assert time.monotonic() - started < 10


def test_the_limit_of_cpu_time_holds_and_cannot_be_ignored() -> None:
    source = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    outcome = run_program(source, limits=Limits(wall_seconds=60, cpu_seconds=1))
    assert outcome.status == "timeout"
    assert "CPU" in outcome.message


@pytest.mark.parametrize("source", ["x = bytearray(10 * 2**30)", "x = []\nwhile True: x.append(bytearray(2**22))"])
def test_a_memory_hog_is_stopped(source: str) -> None:
    outcome = run_program(source, limits=Limits(wall_seconds=30, memory_bytes=128 << 20))
    assert outcome.status == "memory"
    assert "memory limit" in outcome.message


def test_a_fork_bomb_does_not_get_off_the_ground(plan: str) -> None:
    bomb = "import os\nwhile True:\n    os.fork()"
    stubborn = "import os\nfor _ in range(1000):\n    try: os.fork()\n    except OSError: pass\nprint(os.getpid())"
    outcome = run_program(bomb)
    assert outcome.status == "denied"
    assert "processes" in outcome.message
    assert len(run_program(stubborn).output.split()) == 1  # one process came to the end, so none was ever made
    assert run_program("import subprocess; subprocess.run(['true'])").status == "denied"
    assert run_program("import os; os.execv('/bin/true', ['true'])").status == "denied"


def test_threads_are_bounded() -> None:
    source = (
        "import threading, time\n"
        "for _ in range(5000): threading.Thread(target=time.sleep, args=(99,), daemon=True).start()"
    )
    outcome = run_program(source, limits=QUICK)
    assert outcome.status in ("error", "timeout", "memory")
    assert outcome.seconds < 10


def test_there_is_no_network(plan: str) -> None:
    for source in (
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.create_connection(('127.0.0.1', 80))",
        "import urllib.request as r; r.urlopen('http://127.0.0.1')",
    ):
        outcome = run_program(source)
        assert outcome.status == "denied", source
        # Sealed, the program may fall over a module it can no longer load before it comes to the network.
        assert outcome.message.startswith("network") or plan == "sealed", source
    hidden = "import socket\ntry: socket.socket()\nexcept OSError as e: print('caught', e.errno)"
    assert run_program(hidden).output.startswith("caught")


def test_files_outside_can_be_neither_read_nor_changed(plan: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do not read")
    os.chmod(tmp_path, 0o777)
    for source in (
        f"print(open({str(secret)!r}).read())",
        f"open({str(secret)!r}, 'w').write('x')",
        f"open({str(secret)!r}, 'a')",
        f"import os; os.remove({str(secret)!r})",
        f"import os; os.rename({str(secret)!r}, {str(tmp_path / 'moved')!r})",
        f"import os; os.truncate({str(secret)!r}, 0)",
        f"import os; os.chmod({str(secret)!r}, 0)",
        f"import os; os.link({str(secret)!r}, {str(tmp_path / 'link')!r})",
        f"import os; os.mkdir({str(tmp_path / 'folder')!r})",
        f"import os; os.listdir({str(tmp_path)!r})",
        f"import shutil; shutil.rmtree({str(tmp_path)!r})",
        "open('/etc/passwd').read()",
        "open('here.txt', 'w')",
    ):
        outcome = run_program(source)
        assert (outcome.status, outcome.message[:5]) == ("denied", "files"), (source, outcome)
        assert outcome.output == ""
    assert secret.read_text() == "do not read"
    assert secret.stat().st_mode & 0o777
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.txt"]


def test_other_processes_are_out_of_reach(plan: str) -> None:
    for source in (
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.killpg(0, 9)",
        "import os; os.setsid()",
        "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 1))",
    ):
        outcome = run_program(source)
        assert not outcome.passed, source
    assert run_program("import os; os.kill(os.getppid(), 9)").status == "denied"


def test_a_gigabyte_of_output_is_cut_off_at_the_limit() -> None:
    started = time.monotonic()
    outcome = run_program("s = 'x' * 2**20\nfor _ in range(1024): print(s)", limits=Limits(wall_seconds=30))
    assert outcome.status == "output"
    assert len(outcome.output) <= 64 << 10
    assert time.monotonic() - started < 10
    returned = check_function("def f(x):\n    return 'x' * 10**7", "f", [[[1], 1]])
    assert returned.status == "output"


def test_the_environment_and_the_folder_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "42")
    seen = run_program("import os; print(sorted(os.environ), os.getcwd())").output
    assert "SECRET_TOKEN" not in seen
    assert "HOME" not in seen
    folder = Path(seen.split()[-1])
    assert folder != Path.cwd()
    assert not folder.exists()


def test_what_the_program_printed_and_its_input() -> None:
    outcome = run_program("import sys\nprint(sum(map(int, sys.stdin.read().split())))", stdin="1 2 3\n4")
    assert outcome.status == "passed"
    assert outcome.output == "10\n"


def test_the_library_can_be_used(plan: str) -> None:
    source = (
        "import math, re, collections, itertools, functools, heapq, bisect, string, random, datetime, hashlib, typing\n"
        "import json, decimal, fractions, statistics, asyncio, dataclasses\n"
        "assert hashlib.md5(b'').hexdigest().startswith('d41d')\n"
        "assert re.sub('a', 'b', 'aa') == 'bb' and math.gcd(4, 6) == 2"
    )
    assert run_program(source).status == "passed"


def test_the_order_of_sets_is_the_same_in_every_run() -> None:
    outputs = {run_program("print(list({'a', 'b', 'c', 'd', 'e', 'f'}))").output for _ in range(3)}
    assert len(outputs) == 1


def test_expected_values_do_not_enter_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = []
    start = sandbox._start
    monkeypatch.setattr(sandbox, "_start", lambda job, *rest: (jobs.append(repr(job)), start(job, *rest))[1])
    assert check_function("def f(x):\n    return x", "f", [[[1], 987654]]).status == "failed"
    assert len(jobs) == 1
    assert "987654" not in jobs[0]


def test_a_forged_report_is_not_believed() -> None:
    forged = (
        "import os\n"
        "for fd in range(3, 20):\n"
        "    try: os.write(fd, b\"('finished', 'x', ())\")\n"
        "    except OSError: pass\n"
    )
    assert run_program(forged + "os._exit(0)").status == "error"
    assert check_function(forged + "def f(x): os._exit(0)", "f", [[[1], 1]]).status == "error"


def test_where_nothing_protects_running_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "protections", lambda: {"landlock": True, "seccomp": False, "namespace": False})
    with pytest.raises(UserError, match="cannot contain generated code"):
        run_program("print(1)")
    assert run_program("print(1)", allow_unprotected=True).output == "1\n"
    assert sandbox._plan({"landlock": True, "seccomp": False, "namespace": True}, False, False)["namespace"]
    with pytest.raises(UserError, match="cannot contain"):
        sandbox._plan({"landlock": True, "seccomp": False, "namespace": True}, True, False)


def test_namespaces_in_place_of_seccomp_cut_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (sandbox.protections()["namespace"] and sandbox.protections()["landlock"]):
        pytest.skip("this kernel grants no user namespaces or no Landlock")
    plan = {"seccomp": False, "landlock": True, "sealed": False, "namespace": True}
    monkeypatch.setattr(sandbox, "_plan", lambda *_: plan)
    source = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('8.8.8.8', 53))"
    outcome = run_program(source)
    assert outcome.status == "denied"
    assert outcome.message.startswith("network")
    assert check_function("def f(x):\n    return x", "f", [[[1], 1]]).passed
    assert run_program("open('/etc/passwd')").status == "denied"


def test_a_protection_that_fails_in_the_child_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_filter", lambda sealed: b"\0" * 8)  # no valid program
    with pytest.raises(UserError, match="could not give up its rights"):
        run_program("print(1)")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("sealed", [False, True])
def test_every_denied_call_is_denied_by_the_program(machine: str, sealed: bool) -> None:
    """Run the filter on a small interpreter of classic BPF, for both architectures."""
    program = _seccomp.program(machine, sealed)
    column = 0 if machine == "x86_64" else 1
    for calls, number in _seccomp._DENIED:
        for name, numbers in calls.items():
            if numbers[column] is not None:
                assert _bpf(program, machine, numbers[column]) == 0x50000 | number, name
    for allowed in {"x86_64": (0, 1, 9, 12, 60, 202), "aarch64": (63, 64, 222, 214, 93, 98)}[machine]:  # read ... futex
        assert _bpf(program, machine, allowed) == 0x7FFF0000
    clone, thread = _seccomp._CLONE[machine], 0x10000
    assert _bpf(program, machine, clone, [thread | 0x100]) == 0x7FFF0000
    assert _bpf(program, machine, clone, [17]) == 0x50001
    for call, index in _seccomp._OPEN[machine]:
        for flags, free in ((0, not sealed), (1, False), (2, False), (0o101, False), (0o1000, False)):
            assert (_bpf(program, machine, call, [0] * index + [flags]) == 0x7FFF0000) is free
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert _bpf(program, other, 0) == 0x80000000  # calls of another architecture kill


def _bpf(program: bytes, machine: str, call: int, arguments: list[int] | None = None) -> int:
    import struct

    given = (arguments or []) + [0] * (6 - len(arguments or []))
    data = struct.pack("<IIQ6Q", call, _seccomp._AUDIT_ARCH[machine], 0, *given)
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    counter, accumulator = 0, 0
    while True:
        operation, true, false, k = code[counter]
        counter += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif operation == 0x06:
            return k
        else:
            holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[operation]
            counter += true if holds else false


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with the header of x86_64")
def test_the_call_numbers_are_those_of_the_kernel_headers() -> None:
    import re

    headers = {0: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 1: "/usr/include/asm-generic/unistd.h"}
    checked = 0
    for column, header in headers.items():
        with contextlib.suppress(OSError):
            text = Path(header).read_text()
            known = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
            for calls, _ in _seccomp._DENIED:
                for name, numbers in calls.items():
                    if name in known:
                        assert numbers[column] == known[name], name
                        checked += 1
    if not checked:
        pytest.skip("no kernel headers here")
