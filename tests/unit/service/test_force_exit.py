"""A process that was told to end is gone in bounded time, whatever it hangs in."""

import signal
import subprocess
import sys

import pytest

HANGS = {
    "the main thread waits for a lock": "threading.Lock(); lock.acquire(); lock.acquire()",
    "the main thread sleeps": "time.sleep(600)",
    "an answer never comes": "concurrent.futures.Future().result()",
    "a thread will not end": (
        "t = threading.Thread(target=time.sleep, args=(600,)); t.start(); t.join()"
    ),
}
PROGRAM = """
import concurrent.futures, signal, sys, threading, time
from houston_daemon.service.force_exit import ForceExit
lock = threading.Lock()
heard = []
def tell(number):
    heard.append(number)
    print(number.name, flush=True)
forcing = ForceExit(tell, {patience})
forcing.start((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
print("ready", flush=True)
{hang}
"""


def hanging(hang: str, patience: float) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(hang=hang, patience=patience)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS.keys())
def test_a_second_signal_ends_it(hang: str) -> None:
    process = hanging(hang, patience=600)
    process.send_signal(signal.SIGTERM)
    assert heard(process) == "SIGTERM", "the first is told, whatever the main thread does"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cut short" in said
    assert "most recent call first" in said, "it says where every thread stood"


def test_after_one_signal_it_may_take_as_long_as_it_may() -> None:
    process = hanging(HANGS["an answer never comes"], patience=0.2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, "cut short" in said) == (1, True)


def test_leaving_without_a_signal_is_bounded_too() -> None:
    process = hanging("forcing.begin_shutdown(); " + HANGS["the main thread sleeps"], patience=0.2)
    process.communicate(timeout=30)
    assert process.returncode == 1


def test_a_hang_up_is_told_and_ends_nothing() -> None:
    process = hanging(HANGS["the main thread sleeps"], patience=0.0)
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
        assert heard(process) == "SIGHUP"
    assert process.poll() is None
    process.kill()
    process.communicate()
