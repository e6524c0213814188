"""No text that an agent writes or a tool prints makes a pattern of a rule run for minutes."""

import re
from collections.abc import Iterator

import pytest

from houston_daemon.supervision.rules import (
    compute,
    exit_codes,
    scripts,
    shell,
    training_runs,
    wrong,
)
from houston_daemon.supervision.rules.prohibitions import allowed, forbidden

PIECES = (
    "a", "a.", "./", "Error", "use ", "do not use ", "'\"`", "train_", "sh: a: ", "import from ",
    "AutoModelForLM", "pipeline(   ", "x must not be ", "Traceback (most recent call last):\n",
    '  File "a", line 1\n', "SyntaxError: x\n", "cat > x <<E\n", "CUDA_VISIBLE_DEVICES'", "$((",
    "timeout -", "pkill ",
)  # fmt: skip
SIZE = 60_000


def patterns() -> Iterator[re.Pattern[str]]:
    for module in (compute, exit_codes, scripts, shell, training_runs, wrong):
        yield from (one for one in vars(module).values() if isinstance(one, re.Pattern))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", PIECES)
def test_long_texts_are_read_in_time(piece: str) -> None:
    """Bounded by the time limit alone: what is quadratic takes minutes, the others milliseconds."""
    text = piece * (SIZE // len(piece))
    assert isinstance(forbidden(text) + allowed(text), list)
    assert isinstance(shell.read(text), shell.Command)
    assert all(list(one.finditer(text)) is not None for one in patterns())
