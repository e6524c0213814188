"""The filter, run by a small interpreter of classic BPF on calls of both architectures."""

import errno
import struct

import pytest

from houston_daemon.hosts.sandbox import seccomp_filter

ALLOWED = "allowed"


def judge(machine: str, number: int, *arguments: int, audit: int | None = None) -> str:
    """What the filter says of one call, as the kernel would run it (seccomp(2))."""
    data = seccomp_filter.filter_program(machine)
    code = [struct.unpack_from("=HBBI", data, at) for at in range(0, len(data), 8)]
    audit = seccomp_filter.ARCHITECTURES[machine].audit if audit is None else audit
    values = (*arguments, *[0] * (6 - len(arguments)))
    call = struct.pack("=iIQ6Q", number, audit, 0, *values)
    word, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            word = struct.unpack_from("=I", call, constant)[0]
        elif operation == 0x06:
            kind, value = constant & 0xFFFF0000, constant & 0xFFFF
            return ALLOWED if kind == 0x7FFF0000 else errno.errorcode[value]
        else:
            met = {
                0x15: word == constant,
                0x35: word >= constant,
                0x45: bool(word & constant),
            }[operation]
            at += if_true if met else if_false


CALLS = {
    # name: (x86_64 number, aarch64 number, arguments, verdict)
    "read": (0, 63, (0,), ALLOWED),
    "execve": (59, 221, (0,), ALLOWED),
    "ptrace of an own process": (101, 117, (0,), ALLOWED),
    "ptrace by a debugger": (101, 117, (16, 7), ALLOWED),
    "attaching to the first process": (101, 117, (16, 1), "EPERM"),
    "seizing the first process": (101, 117, (0x4206, 1), "EPERM"),
    "reading the first process": (310, 270, (1,), "EPERM"),
    "reading an own process": (310, 270, (7,), ALLOWED),
    "writing the first process": (311, 271, (1,), "EPERM"),
    "mount": (165, 40, (), "EPERM"),
    "bpf": (321, 280, (), "EPERM"),
    "io_uring_setup": (425, 425, (), "EPERM"),
    "open_by_handle_at": (304, 265, (), "EPERM"),
    "a thread": (56, 220, (0x3D0F00,), ALLOWED),
    "a process": (56, 220, (0x11,), ALLOWED),
    "a user namespace by clone": (56, 220, (0x10000011,), "EPERM"),
    "clone3": (435, 435, (), "ENOSYS"),
    "unshare of files": (272, 97, (0x400,), ALLOWED),
    "unshare of the user": (272, 97, (0x10000000,), "EPERM"),
    "unshare of time": (272, 97, (0x80,), "EPERM"),
    "a window's size": (16, 29, (0, 0x5413), ALLOWED),
    "TIOCSTI": (16, 29, (0, 0x5412), "EPERM"),
    "TIOCSTI with high bits, which the kernel drops": (16, 29, (0, 0xFF00005412), "EPERM"),
    "TIOCLINUX": (16, 29, (0, 0x541C), "EPERM"),
    "a socket by path": (41, 198, (1,), ALLOWED),
    "an internet socket": (41, 198, (2,), ALLOWED),
    "netlink": (41, 198, (16,), ALLOWED),
    "a packet socket": (41, 198, (17,), "EAFNOSUPPORT"),
    "vsock": (41, 198, (40,), "EAFNOSUPPORT"),
    "the kernel's cryptography": (41, 198, (38,), "EAFNOSUPPORT"),
    "no randomisation, for debuggers": (135, 92, (0x40000,), ALLOWED),
    "another personality": (135, 92, (0x0400000,), "EPERM"),
}


@pytest.mark.parametrize("machine", seccomp_filter.ARCHITECTURES)
@pytest.mark.parametrize("name", CALLS)
def test_the_filter_judges(name: str, machine: str) -> None:
    *numbers, arguments, verdict = CALLS[name]
    number = numbers[seccomp_filter.ARCHITECTURES[machine].column]
    assert judge(machine, number, *arguments) == verdict


@pytest.mark.parametrize("machine", seccomp_filter.ARCHITECTURES)
def test_what_is_in_the_table_is_refused_and_its_neighbours_are_not(machine: str) -> None:
    column = seccomp_filter.ARCHITECTURES[machine].column
    refused = {
        n for pair in seccomp_filter.SYSCALL_NUMBERS.values() if (n := pair[column]) is not None
    }
    judged = {n for n in range(480) if judge(machine, n, *(0,) * 6) == "EPERM"}
    assert judged == refused


def test_other_ways_of_calling_are_unknown() -> None:
    assert judge("x86_64", 0x40000000 | 59) == "ENOSYS"  # x32
    assert judge("x86_64", 11, audit=0x40000003) == "ENOSYS"  # 32 bit


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp_filter.filter_program("sparc64") == b""
