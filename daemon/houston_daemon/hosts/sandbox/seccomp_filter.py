"""The system calls that a sandboxed process may not make, as a filter for `bwrap --seccomp`.

A small assembler of classic BPF (linux/filter.h, seccomp(2)). Refused: typing keys into a terminal
(TIOCSTI), namespaces and mounts, direct access to the kernel (modules, bpf, perf, keyrings,
io_uring, userfaultfd, file handles, clocks), and kinds of sockets that no network namespace
confines. Calls that ordinary programs need stay. This module makes bytes; it installs nothing.
"""

import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

# Offsets in struct seccomp_data; arguments are 64 bits, and their low half comes first on both
# architectures below.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
# Classic BPF (linux/bpf_common.h): load a word; jump if equal, not below, any bit; return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_X32 = 0x40000000
"""Numbers from here on are the x32 way of making calls on x86_64; refused as unknown."""

_NEW_USER = 0x10000000
_NEW_ANY = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others, such as vsock to the machine's own host, packets
and the kernel's cryptography, are not held by a network namespace or are rarely looked after."""
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""Linux, 32 bit, old uname, without address randomisation (debuggers), and the question."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a filter must know of an architecture."""

    audit: int
    """AUDIT_ARCH_* of linux/audit.h."""
    column: int
    """Its column in the table of numbers."""
    x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 0, x32=True),
    "aarch64": Architecture(0xC00000B7, 1),
}

SYSCALL_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64), from asm/unistd_64.h and asm-generic/unistd.h
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Refused with EPERM, whatever the arguments."""
_CLONE, _CLONE3, _UNSHARE = (56, 220), (435, 435), (272, 97)
_IOCTL, _SOCKET, _PERSONALITY = (16, 29), (41, 198), (135, 92)
_PTRACE, _VM_READ, _VM_WRITE = (101, 117), (310, 270), (311, 271)
_FIRST_PID = 1
"""The sandbox's first process is bubblewrap: who traces it can stop it, and the sandbox hangs."""

Instruction = tuple[int, int, int, int]
"""(code, jump if true, jump if false, constant), as in struct sock_filter."""


def filter_program(machine: str) -> bytes:
    """The filter for `machine` (as `platform.machine()` names it), struct sock_filter by the dozen.

    Empty where the architecture is not known: there is no filter then, as `houston doctor` says.
    """
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return b""
    code = assemble_filter(architecture)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


@lru_cache(maxsize=1)
def filter_for_this_machine() -> bytes:
    """The filter for this machine, empty where it has none."""
    return filter_program(platform.machine())


def assemble_filter(machine: Architecture) -> list[Instruction]:
    """The instructions, in order. Every rule is complete in itself and falls through if unmet."""
    code = [_load_word(_ARCHITECTURE), (_EQUAL, 1, 0, machine.audit), _refuse_call(errno.ENOSYS)]
    code.append(_load_word(_NUMBER))
    if machine.x32:
        code += [(_AT_LEAST, 0, 1, _X32), _refuse_call(errno.ENOSYS)]
    for name in sorted(SYSCALL_NUMBERS):
        number = SYSCALL_NUMBERS[name][machine.column]
        if number is not None:
            code += [(_EQUAL, 0, 1, number), _refuse_call(errno.EPERM)]
    # Its flags lie behind a pointer. The C libraries fall back to clone when it is not there.
    code += [(_EQUAL, 0, 1, _CLONE3[machine.column]), _refuse_call(errno.ENOSYS)]
    code += _when_argument(_CLONE[machine.column], 0, _refuse_bits(_NEW_USER))
    code += _when_argument(_UNSHARE[machine.column], 0, _refuse_bits(_NEW_ANY))
    code += _when_argument(_IOCTL[machine.column], 1, _refuse_values((_TIOCSTI, _TIOCLINUX)))
    code += _when_argument(
        _SOCKET[machine.column], 0, _refuse_other_values(_FAMILIES, errno.EAFNOSUPPORT)
    )
    code += _when_argument(_PTRACE[machine.column], 1, _refuse_values((_FIRST_PID,)))
    code += _when_argument(_VM_READ[machine.column], 0, _refuse_values((_FIRST_PID,)))
    code += _when_argument(_VM_WRITE[machine.column], 0, _refuse_values((_FIRST_PID,)))
    code += _when_argument(
        _PERSONALITY[machine.column], 0, _refuse_other_values(_PERSONALITIES, errno.EPERM)
    )
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _load_word(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


def _refuse_call(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _when_argument(number: int, argument: int, rule: list[Instruction]) -> list[Instruction]:
    """`rule` over the low half of one argument of the call `number`, then the number again."""
    body = [_load_word(_ARGUMENTS + 8 * argument), *rule, _load_word(_NUMBER)]
    return [(_EQUAL, 0, len(body), number), *body]


def _refuse_bits(bits: int) -> list[Instruction]:
    return [(_ANY_BIT, 0, 1, bits), _refuse_call(errno.EPERM)]


def _refuse_values(values: Iterable[int]) -> list[Instruction]:
    instructions: list[Instruction] = []
    for value in values:
        instructions += [(_EQUAL, 0, 1, value), _refuse_call(errno.EPERM)]
    return instructions


def _refuse_other_values(values: tuple[int, ...], default: int) -> list[Instruction]:
    """Refuse whatever is none of `values`."""
    tests: list[Instruction] = [
        (_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)
    ]
    return [*tests, _refuse_call(default)]
