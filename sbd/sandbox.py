"""Run a Python program that nobody has read: in a process of its own, with limits, and without rights.

What the kernel enforces, all without privileges: CPU time, address space and file size (rlimits); no network, no new
processes, no signals, no change of any file (a seccomp filter, x86_64 and aarch64); no reading outside the Python
library (Landlock; where the kernel lacks it no file can be opened at all once the program's imports are loaded). Where
seccomp is missing, user, network and process namespaces take its place, but for root. Where neither is there, running
is refused. The parent adds the wall clock, the bound on output, an empty environment and an empty, unwritable
temporary directory.

A function's results are compared here, outside, so the expected values never enter the sandbox. It guards against
accidents and mischief of generated code; a program written to forge "finished" in its own process is not the subject.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import marshal
import os
import platform
import secrets
import selectors
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sbd import _seccomp
from sbd.errors import UserError

STATUSES = ("passed", "failed", "error", "timeout", "memory", "output", "denied")
_CHILD = Path(__file__).with_name("_sandbox_child.py")
_RESULT_BYTES = 64 << 10
_REPORT_GRACE = 0.2


@dataclass(frozen=True)
class Limits:
    """What one run may use. ``processes`` counts threads; new processes are always denied under seccomp."""

    wall_seconds: float = 5.0
    cpu_seconds: int = 4
    memory_bytes: int = 256 << 20
    output_bytes: int = 64 << 10
    processes: int = 64


@dataclass(frozen=True)
class Outcome:
    """How a run ended: one of STATUSES, one line that says why, what it printed (bounded), and how long it took."""

    status: str
    message: str
    output: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the program ran to its end and every test held."""
        return self.status == "passed"


def check_function(
    source: str,
    entry_point: str,
    tests: list[list[Any]],
    limits: Limits | None = None,
    allow_unprotected: bool = False,
) -> Outcome:
    """Define ``source``, call ``entry_point`` on the arguments of each test and compare with what is expected.

    ``tests`` holds ``[arguments, expected]``; arguments must be JSON values, results Python literals. All calls run
    in one process. Raises UserError where the kernel cannot protect (unless ``allow_unprotected``) or tests are empty.
    """
    if not tests:
        raise UserError(f"no tests for the function {entry_point!r}; a function without tests would always pass")
    job = {"source": source, "entry_point": entry_point, "arguments": [arguments for arguments, _ in tests]}
    outcome, values = _run(job, "", limits or Limits(), allow_unprotected)
    if not outcome.passed:
        return outcome
    if len(values) != len(tests):
        return Outcome("error", "the report has not one result per test", outcome.output, outcome.seconds)
    for (arguments, expected), text in zip(tests, values, strict=True):
        call = f"{entry_point}({', '.join(map(repr, arguments))})"
        try:
            equal = ast.literal_eval(text) == expected
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            equal = False
        if not equal:
            message = f"{call} returned {text[:200]}, expected {expected!r}"
            return Outcome("failed", message[:500], outcome.output, outcome.seconds)
    return outcome


def run_program(
    source: str,
    stdin: str = "",
    limits: Limits | None = None,
    allow_unprotected: bool = False,
    packages: Sequence[str] = (),
) -> Outcome:
    """Run ``source`` to its end (it passes if no assertion or other error stops it); ``output`` is what it printed.

    packages: installed packages besides the library that it may import, such as numpy; they are loaded before rights
    are given up.
    """
    job = {"source": source, "entry_point": None, "arguments": [], "packages": _packages(tuple(packages))}
    return _run(job, stdin, limits or Limits(), allow_unprotected)[0]


@functools.cache
def protections() -> dict[str, bool]:
    """Which of landlock, seccomp and namespace the running kernel grants (tried once, in child processes)."""
    job = {"probe": True, "readable": _readable(), "filter": _filter(sealed=False)}
    _, _, found = _parse(_start(job, "", Limits(wall_seconds=30)).result)
    return {name: name in found for name in ("landlock", "seccomp", "namespace")}


def _plan(found: dict[str, bool], root: bool, allow_unprotected: bool) -> dict[str, bool]:
    """The protections to use. ``sealed``: without Landlock the filter must forbid opening any file."""
    if found["seccomp"]:
        return {"seccomp": True, "landlock": found["landlock"], "sealed": not found["landlock"], "namespace": False}
    if found["namespace"] and found["landlock"] and not root:  # root is exempt from the limit on processes
        return {"seccomp": False, "landlock": True, "sealed": False, "namespace": True}
    if not allow_unprotected:
        raise UserError(
            f"this kernel cannot contain generated code (found {found}, root: {root}); score the saved generations on"
            " Linux with seccomp (x86_64 or aarch64), or allow unprotected runs in a throw-away machine"
        )
    return {"seccomp": False, "landlock": found["landlock"], "sealed": False, "namespace": False}


@functools.cache
def _filter(sealed: bool) -> bytes:
    machine = platform.machine()
    return _seccomp.program(machine, sealed) if _seccomp.supported(machine) else b""


def _parse(result: bytes) -> tuple[str, str, tuple[str, ...]]:
    """The child's report; a program can write there too, so it is read as a literal and its types are checked."""
    try:
        status, message, values = ast.literal_eval(result.decode())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return "", "", ()
    if not (isinstance(status, str) and isinstance(message, str) and isinstance(values, tuple)):
        return "", "", ()
    return status, message, tuple(str(value) for value in values)


@functools.cache
def _packages(names: tuple[str, ...]) -> list[tuple[str, str, list[str]]]:
    """Of each package: its name, the folder to import it from, and what of it may be read later."""
    found = []
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"programs need the package {name}, which is not installed here")
        folder = Path(next(iter(spec.submodule_search_locations)))
        libraries = folder.with_name(f"{name}.libs")
        found.append((name, str(folder.parent), [str(path) for path in (folder, libraries) if path.is_dir()]))
    return found


@functools.cache
def _readable() -> list[str]:
    """Where the interpreter's own modules and libraries are."""
    paths = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), f"{sys.base_prefix}/lib"]
    paths += ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom"]
    return sorted({os.path.realpath(path) for path in paths})


def _imports(source: str) -> list[str]:
    """Modules of the standard library that ``source`` imports, to be loaded before a sealed run."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return sorted(name for name in names if name.split(".")[0] in sys.stdlib_module_names)


@dataclass
class _State:
    """What the parent saw of a run."""

    result: bytes = b""
    output: bytes = b""
    ended_by: str = ""
    returncode: int = 0
    seconds: float = 0.0


def _run(job: dict[str, Any], stdin: str, limits: Limits, allow_unprotected: bool) -> tuple[Outcome, tuple[str, ...]]:
    plan = _plan(protections(), os.geteuid() == 0, allow_unprotected)
    nonce = secrets.token_hex(16)
    job = {
        "packages": [],
        **job,
        "probe": False,
        "nonce": nonce,
        "plan": plan,
        "limits": asdict(limits),
        "readable": _readable() + [path for _, _, paths in job.get("packages", []) for path in paths],
        "filter": _filter(plan["sealed"]) if plan["seccomp"] else b"",
        "preload": _imports(job["source"]) if plan["sealed"] else [],
    }
    state = _start(job, stdin, limits)
    status, message, values = _verdict(state, nonce, limits)
    output = state.output.decode("utf-8", "replace")
    return Outcome(status, message, output, state.seconds), values


def _verdict(state: _State, nonce: str, limits: Limits) -> tuple[str, str, tuple[str, ...]]:
    if state.ended_by == "output":
        return "output", f"printed or returned more than {limits.output_bytes} bytes", ()
    if state.ended_by == "timeout":
        return "timeout", f"ran for more than {limits.wall_seconds:g} s", ()
    if -state.returncode in (signal.SIGXCPU, signal.SIGKILL) and not state.result:
        return "timeout", f"killed after more than {limits.cpu_seconds} s of CPU time (or out of memory)", ()
    status, message, values = _parse(state.result)
    if status == "unguarded":
        raise UserError(f"the sandbox could not give up its rights ({message}); nothing was run")
    if status == "finished" and message == nonce:
        return "passed", "", values
    if status in STATUSES[1:]:
        return status, message, ()
    ending = f"signal {-state.returncode}" if state.returncode < 0 else f"exit status {state.returncode}"
    return "error", f"ended without a report ({ending})", ()


def _start(job: dict[str, Any], stdin: str, limits: Limits) -> _State:
    """Start the child, collect its report and output up to their bounds, and end it with all it started."""
    state, started = _State(), time.monotonic()
    read_end, write_end = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="sbd-sandbox-") as folder,
        tempfile.TemporaryFile() as job_file,
        tempfile.TemporaryFile() as stdin_file,
        os.fdopen(read_end, "rb", buffering=0) as result_pipe,
    ):
        job_file.write(marshal.dumps(job))
        job_file.flush()
        job_file.seek(0)
        stdin_file.write(stdin.encode("utf-8", "replace"))
        stdin_file.seek(0)
        os.chmod(folder, 0o555)
        try:
            process = subprocess.Popen(
                [sys.executable, "-S", "-s", "-P", "-B", str(_CHILD), str(job_file.fileno()), str(write_end)],
                stdin=stdin_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # The same order of sets in every run; numpy's libraries must not start threads.
                env={"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                pass_fds=(job_file.fileno(), write_end),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        try:
            _collect(process, result_pipe, state, limits, started + limits.wall_seconds)
        finally:
            _end(process)
            state.returncode = process.returncode
            state.seconds = time.monotonic() - started
    return state


def _collect(
    process: subprocess.Popen[bytes], result_pipe: Any, state: _State, limits: Limits, deadline: float
) -> None:
    assert process.stdout is not None
    with process.stdout, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "output")
        selector.register(result_pipe, selectors.EVENT_READ, "result")
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                state.ended_by = "timeout"
                return
            for key, _ in selector.select(remaining):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data == "output":
                    state.output = (state.output + chunk)[: limits.output_bytes + 1]
                else:
                    state.result += chunk
                if len(state.output) > limits.output_bytes or len(state.result) > _RESULT_BYTES:
                    state.output = state.output[: limits.output_bytes]
                    state.ended_by = "output"
                    return
        try:
            process.wait(max(_REPORT_GRACE, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            state.ended_by = "timeout"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole session and reap the child. Its group cannot be reused by others before it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
