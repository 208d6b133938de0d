"""The system-call filter of the sandbox, as the bytes of a classic BPF program for x86_64 or aarch64.

It denies what a pure function never needs: the network, new processes, signals, other programs' memory, mounts, kernel
settings, any change of the file system. What is denied returns an error number that tells the kind (see sandbox.py).
"""

from __future__ import annotations

import errno
import struct

# name: (number on x86_64, number on aarch64); None where the architecture has no such call.
_NETWORK = {"socket": (41, 198), "io_uring_setup": (425, 425)}
_PROCESS = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
}
_FILES = {
    "creat": (85, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "rmdir": (84, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
_SYSTEM = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
}
_DENIED = ((_NETWORK, errno.ENETUNREACH), (_PROCESS, errno.EPERM), (_FILES, errno.EACCES), (_SYSTEM, errno.EPERM))
# clone is allowed for threads only; open for reading only, or not at all when sealed. (number, argument with the flags)
_CLONE = {"x86_64": 56, "aarch64": 220}
_OPEN = {"x86_64": ((2, 1), (257, 2)), "aarch64": ((56, 2),)}
_CLONE3, _OPENAT2 = 435, 437  # their flags are behind a pointer; libc falls back when told "no such call"

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE_THREAD = 0x10000
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND
_X32_BIT = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def supported(machine: str) -> bool:
    """Whether there is a filter for this architecture (as ``platform.machine()`` names it)."""
    return machine in _AUDIT_ARCH


def program(machine: str, sealed: bool) -> bytes:
    """The filter for ``machine``. ``sealed``: no file can be opened any more, not even to read."""
    column = 0 if machine == "x86_64" else 1
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    for calls, number in _DENIED:
        for numbers in calls.values():
            if numbers[column] is not None:
                code += _deny(numbers[column], number)
    code += _deny(_CLONE3, errno.ENOSYS) + _deny(_OPENAT2, errno.ENOSYS)
    code += [
        (_EQUAL, 0, 4, _CLONE[machine]),
        (_LOAD, 0, 0, _argument(0)),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for call, flags in _OPEN[machine]:
        if sealed:
            code += _deny(call, errno.EACCES)
            continue
        code += [
            (_EQUAL, 0, 4, call),
            (_LOAD, 0, 0, _argument(flags)),
            (_ANY_BIT, 0, 1, _WRITING),
            (_RETURN, 0, 0, _ERRNO | errno.EACCES),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _deny(call: int | None, number: int) -> list[tuple[int, int, int, int]]:
    assert call is not None
    return [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ERRNO | number)]


def _argument(index: int) -> int:
    """Offset of the low half of an argument in struct seccomp_data (both architectures are little-endian)."""
    return 16 + 8 * index
