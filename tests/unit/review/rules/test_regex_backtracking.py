"""No text that an agent writes or a tool prints makes a pattern of a rule run for minutes."""

import re
from collections.abc import Iterator

import pytest

from houston_daemon.review.rules import (
    command_failures,
    error_rules,
    idle_gpu_rule,
    script_rules,
    shell_commands,
)
from houston_shared.guidance_prohibitions import (
    files_to_read_first,
    find_permissions,
    find_prohibitions,
)

PIECES = (
    "a", "a.", "./", "Error", "use ", "do not use ", "'\"`", "train_", "sh: a: ", "import from ",
    "AutoModelForLM", "pipeline(   ", "x must not be ", "Traceback (most recent call last):\n",
    '  File "a", line 1\n', "SyntaxError: x\n", "cat > x <<E\n", "CUDA_VISIBLE_DEVICES'", "$((",
    "timeout -", "pkill ", "bash <<A\n", "bash -c '", '"$(', "<<E ", "then ", "cd a;", "$'\\'",
    "\n", "-lora", "[1] Exit 1",
)  # fmt: skip
BEGUN = (("[1] Exit 1", " "), ("(print(", ")"))
"""How a text begins, and what is repeated after it."""
COUNTED = ("A{}=1;", "export A{}=1; ls;", "cd {};", "cat <<E{} ", "cat > {} <<E\n{}\nE\n")
SIZE = 60_000
COMMAND = 20_000


def patterns() -> Iterator[re.Pattern[str]]:
    for module in (
        idle_gpu_rule,
        command_failures,
        script_rules,
        shell_commands,
        idle_gpu_rule,
        error_rules,
    ):
        yield from (value for value in vars(module).values() if isinstance(value, re.Pattern))


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_are_read_in_time(piece: str) -> None:
    """Bounded by the time limit alone: what is quadratic takes minutes, the others milliseconds."""
    read_with_all(piece * (SIZE // len(piece)))


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("begin", "piece"), BEGUN)
def test_long_texts_that_begin_otherwise_are_read_in_time(begin: str, piece: str) -> None:
    read_with_all(begin + piece * (SIZE // len(piece)))


def read_with_all(text: str) -> None:
    assert isinstance(files_to_read_first(text), list)
    assert isinstance(find_prohibitions(text) + find_permissions(text), list)
    assert isinstance(shell_commands.parse_command(text), shell_commands.ShellCommand)
    assert all(list(pattern.finditer(text)) is not None for pattern in patterns())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["print()", "import a,", "from a;", "print() ;"])
def test_a_program_of_many_statements_is_read_in_time(piece: str) -> None:
    """A rule asks whether a program only imports; this one does more, in its last letter."""
    program = piece * (290 // len(piece))
    assert not command_failures.is_probe(f'python3 -c "{program}x("', "", 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", COUNTED)
def test_commands_of_many_names_are_read_in_time(piece: str) -> None:
    """A command holds no copy of everything before it."""
    text = "".join(piece.format(number, number) for number in range(COMMAND // len(piece)))
    counts = [len(program.environment) for program in shell_commands.parse_command(text).simple]
    assert counts and max(counts) <= shell_commands.MAX_VARIABLES + 1


def test_shells_in_shells_are_read_to_some_depth() -> None:
    command = shell_commands.parse_command("".join(f"bash <<A{n}\n" for n in range(2000)))
    assert [program.program for program in command.simple] == ["bash"]
