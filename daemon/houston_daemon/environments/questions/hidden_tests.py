"""Programs as answers: each runs in the sandbox on the inputs of hidden tests, and all must pass.

The sandbox gets one input at a time and never what is expected. Outputs are compared here.
"""

import asyncio
import json
import re
import tempfile
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.questions.hidden_tests_child import RESULT_LINE
from houston_daemon.hosts.host_protocol import RolloutHost

CASE_SECONDS = 10.0
"""How long a program may take for one test."""
OUTPUT_BYTES = 4_000_000
_CHILD = Path(__file__).with_name("hidden_tests_child.py")
_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)


class TestCase(msgspec.Struct, frozen=True):
    """One hidden test."""

    __test__ = False
    """It is none of pytest's."""
    input: str
    """What stdin holds; for a function an argument as JSON in each line."""
    output: str
    """What is to be printed; of a function the result as JSON."""


class HiddenTests(msgspec.Struct, frozen=True):
    """How a program is tested."""

    cases: tuple[TestCase, ...] = ()
    function: str = ""
    """Name of the function that is called, or of a method of the class `Solution`; empty for a
    program that reads stdin."""


def program_of(answer: str) -> str:
    """The program in an answer: what stands in its last fence, or all of it."""
    fenced = _FENCE.findall(answer)
    return str(fenced[-1]) if fenced else answer


async def count_passed(host: RolloutHost, answer: str, tested: HiddenTests) -> int:
    """How many tests a program passes before the first that it fails. Raises HoustonError where
    the host cannot run it."""
    program = program_of(answer)
    if "\0" in program:
        return 0
    with tempfile.TemporaryDirectory(prefix="houston-test-") as folder:
        for number, case in enumerate(tested.cases):
            if not await _passes(host, program, tested.function, case, Path(folder)):
                return number
    return len(tested.cases)


async def _passes(
    host: RolloutHost, program: str, function: str, case: TestCase, folder: Path
) -> bool:
    file = folder / "input.txt"
    await asyncio.to_thread(file.write_text, case.input, encoding="utf-8")
    paths = await asyncio.to_thread(lambda: list(local_host_setup.interpreter_paths(_CHILD)))
    named = [function] if function else []
    ended = await host.spawn(
        [local_host_setup.PYTHON, "-I", "-S", str(_CHILD), str(file), *named],
        seconds=CASE_SECONDS,
        writable=False,
        extra_read=[*paths, folder],
        environment={"HOUSTON_CODE": program},
        output_limit=OUTPUT_BYTES,
        network=False,
    )
    if ended.exit_code != 0 or ended.cut:
        return False
    output = ended.stdout.decode("utf-8", "replace")
    if not function:
        return same_output(output, case.output)
    return same_result(output.rpartition(f"{RESULT_LINE}\n")[2], case.output)


def same_output(output: str, expected: str) -> bool:
    """Whether two outputs have the same lines, but for spaces at their ends; numbers of a line are
    compared as numbers."""
    lines = [[line.split() for line in text.strip().splitlines()] for text in (output, expected)]
    return len(lines[0]) == len(lines[1]) and all(
        len(words) == len(other) and all(map(_same_word, words, other))
        for words, other in zip(*lines, strict=True)
    )


def _same_word(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False


def same_result(output: str, expected: str) -> bool:
    """Whether two texts are the same JSON; what is none equals nothing."""
    try:
        return bool(json.loads(output) == json.loads(expected))
    except (ValueError, RecursionError):  # the latter of a text that is nested for that
        return False
