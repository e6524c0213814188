"""The catalogue of fault points and the source say the same."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import houston_daemon
from tests.faults.fault_points import FAULT_POINTS
from tests.faults.injection import Fault, fault_environment, parse_fault, parse_fault_orders

DAEMON = Path(houston_daemon.__file__).parent
NAME = re.compile(r"(recorder|search|supervisor|fork_server|worker)(\.[a-z_]+){2}")


def called() -> list[tuple[str, str]]:
    """(name, module) of every call of `point` in the source."""
    found = []
    for file in sorted(DAEMON.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "point":
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{file}: a point has a plain name"
                found.append((str(name.value), str(file.relative_to(DAEMON))))
    return found


def test_every_point_is_called_once_and_where_the_catalogue_says() -> None:
    assert sorted(called()) == sorted((name, module) for name, (module, _) in FAULT_POINTS.items())


def test_there_are_enough_and_each_says_what_is_about_to_happen() -> None:
    assert len(FAULT_POINTS) >= 50
    assert all(NAME.fullmatch(name) for name in FAULT_POINTS)
    said = [what for _, what in FAULT_POINTS.values()]
    assert len(set(said)) == len(said)
    assert all(len(what.split()) >= 4 for what in said)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("kill", Fault("kill")),
        ("kill@3", Fault("kill", 0, 3)),
        ("delay=0.5", Fault("delay", 0.5)),
        ("clock=-3600@2", Fault("clock", -3600, 2)),
    ],
)
def test_an_order_is_read(text: str, means: Fault) -> None:
    assert parse_fault(text) == means
    assert parse_fault_orders(f"a.b.c={text},d.e.f=exit=3") == {
        "a.b.c": means,
        "d.e.f": Fault("exit", 3),
    }


@pytest.mark.parametrize("text", ["", "explode", "kill@often", "delay=long"])
def test_an_order_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_fault(text)


def run(order: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from houston_shared import faults\n{code}"],
        env={**os.environ, **fault_environment(order)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


THRICE = "for n in range(1, 4):\n    print(n, flush=True)\n    faults.point('recorder.open.before')"


@pytest.mark.parametrize(
    ("order", "code", "printed"),
    [
        ("", 0, "1\n2\n3\n"),
        ("recorder.open.before=kill@2", -9, "1\n2\n"),
        ("recorder.open.before=exit=70", 70, "1\n"),
        ("recorder.open.before=raise@3", 1, "1\n2\n3\n"),
        ("recorder.epoch.before=kill", 0, "1\n2\n3\n"),
    ],
)
def test_what_is_ordered_happens_then_and_only_then(order: str, code: int, printed: str) -> None:
    done = run(order, THRICE)
    assert (done.returncode, done.stdout) == (code, printed), done.stderr


def test_without_an_order_a_point_is_the_function_that_does_nothing() -> None:
    done = run("", "print(faults.point.__module__)")
    assert done.stdout == "houston_shared.faults\n"


def test_an_order_in_a_folder_is_carried_out_once_by_whoever_is_first(tmp_path: Path) -> None:
    (tmp_path / "recorder.open.before").write_text("exit=7@2")
    first, second = run(str(tmp_path), THRICE), run(str(tmp_path), THRICE)
    assert (first.returncode, first.stdout) == (7, "1\n2\n")
    assert (second.returncode, second.stdout) == (0, "1\n2\n3\n")
    name, action, _pid = (tmp_path / "fired").read_text().split()
    assert (name, action) == ("recorder.open.before", "exit")


def test_a_shifted_clock_is_shifted_for_good() -> None:
    code = (
        "import time\nfrom houston_shared.times_and_counts import now_us\nbefore = time.time()\n"
        "faults.point('recorder.open.before')\n"
        "print([round((now - before) / 3600) for now in (now_us() / 1e6, time.time())])"
    )
    assert run("recorder.open.before=clock=-36000", code).stdout == "[-10, -10]\n"
