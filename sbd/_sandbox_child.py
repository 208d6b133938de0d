"""The inside of the sandbox: gives up its rights, runs the program it was handed, reports what happened.

A script of its own, started by sandbox.py in a fresh interpreter without the site packages. It imports nothing of sbd
and as little as it can of the library (json and contextlib would double the 20 ms that a run takes).
Usage: ``python -S -s -P _sandbox_child.py JOB_FD RESULT_FD``.
"""

import ctypes
import errno
import marshal
import os
import resource
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_NEW_USER_NET_PID = 0x10000000 | 0x40000000 | 0x20000000


class _Fprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _checked(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def landlock_abi():
    """Version of Landlock in the running kernel, 0 or less where it is absent."""
    return _libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))


def restrict_files(readable):
    """Only the paths of ``readable`` can be opened, for reading; TCP is denied too where the kernel can."""
    libc, abi = _libc(), landlock_abi()
    _checked(abi - 1, "Landlock")
    rights = (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1
    words = [rights] + [3] * (abi >= 4) + [3] * (abi >= 6)  # files; TCP bind and connect; signals and abstract sockets
    attributes = (ctypes.c_uint64 * len(words))(*words)
    ruleset = _checked(libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(8 * len(words)), 0), "Landlock")
    for path in readable:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
        rule = allowed.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder)  # packed: u64, s32
        _checked(libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), "Landlock rule")
        os.close(handle)
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _checked(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)


def filter_calls(program):
    """Install the seccomp filter; it cannot be taken off again."""
    libc = _libc()
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    fprog = _Fprog(len(program) // 8, program)
    _checked(libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(fprog), 0, 0), "seccomp")


def leave_network():
    """Go into new user, network and process namespaces; the program runs in a child that is their first process."""
    _checked(_libc().unshare(_NEW_USER_NET_PID), "namespaces")
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)


def _limit(limits):
    memory, seconds, processes = limits["memory_bytes"], limits["cpu_seconds"], limits["processes"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _guard(job):
    """Give up every right that the job's plan names; any failure is fatal, so nothing runs half protected."""
    for package, folder, _ in job["packages"]:
        sys.path.append(folder)
        try:
            __import__(package)
        finally:
            sys.path.remove(folder)
    for module in job["preload"]:
        try:  # noqa: SIM105
            __import__(module)
        except Exception:  # the program will meet the same error, and is to be told of it there
            pass
    plan = job["plan"]
    if plan["namespace"]:
        leave_network()
    _limit(job["limits"])
    if plan["landlock"]:
        restrict_files(job["readable"])
    if plan["seccomp"]:
        filter_calls(job["filter"])


def _probe(job):
    """Which protections this kernel grants: tried one by one, each in a child of its own."""

    def works(attempt):
        child = os.fork()
        if not child:
            try:
                attempt()
            except BaseException:
                os._exit(1)
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0

    return {
        "landlock": works(lambda: restrict_files(job["readable"])),
        "seccomp": bool(job["filter"]) and works(lambda: filter_calls(job["filter"])),
        "namespace": works(leave_network),
    }


def _failure(error):
    """(status, message) of an exception that ended the program; what was denied may lie below another error."""
    kind = type(error).__name__
    message = f"{kind}: {error}"[:500]
    if isinstance(error, MemoryError):
        return "memory", "MemoryError: the memory limit was reached"
    cause, depth = error, 0
    while cause is not None and depth < 10:
        if isinstance(cause, OSError):
            if cause.errno == errno.ENETUNREACH or type(cause).__name__ == "gaierror":
                return "denied", f"network: {message}"
            if cause.errno in (errno.EACCES, errno.EFBIG):
                return "denied", f"files: {message}"
            if cause.errno == errno.EPERM:
                return "denied", f"processes or system: {message}"
        cause, depth = cause.__cause__ or cause.__context__, depth + 1
    if isinstance(error, AssertionError):
        return "failed", message
    if isinstance(error, SystemExit):
        return "error", f"left by SystemExit({error.code!r}) before its end"[:500]
    return "error", message


def _run(job):
    """(status, message, values): the repr of each result of the entry point, if there is one."""
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    exec(compile(job["source"], "<program>", "exec"), space)
    if job["entry_point"] is None:
        return "finished", job["nonce"], ()
    function = space.get(job["entry_point"])
    if not callable(function):
        return "error", f"there is no function {job['entry_point']!r}", ()
    return "finished", job["nonce"], tuple(repr(function(*arguments)) for arguments in job["arguments"])


def main():
    """Read the job, give up rights, run, report: the repr of (status, message, values) on the result descriptor."""
    job_fd, result_fd = int(sys.argv[1]), int(sys.argv[2])
    with open(job_fd, "rb") as handle:
        job = marshal.load(handle)
    sys.argv = ["program"]

    def report(status, message, values=()):
        payload = memoryview(repr((status, message, values)).encode("utf-8", "backslashreplace"))
        while payload:
            payload = payload[os.write(result_fd, payload) :]
        os._exit(0)  # skip exit handlers and threads that the program may have left

    if job["probe"]:
        report("probed", "", tuple(name for name, works in _probe(job).items() if works))
    try:
        _guard(job)
    except BaseException as error:
        report("unguarded", f"{type(error).__name__}: {error}")
    try:
        result = _run(job)
    except BaseException as error:
        result = _failure(error)
    try:  # noqa: SIM105
        sys.stdout.flush()
    except Exception:  # a program may have closed it
        pass
    report(*result)


main()
