"""What an agent sees of output that is longer than an observation."""

import pytest

from houston_daemon.environments.workstation.command_actions import output_lines

PROGRESS = "start\n" + "".join(f"\r{share / 100:6.2f} % of it" for share in range(10_001))
ONE_LINE = "{" + ", ".join(f'"k{number}": {number}' for number in range(30_000)) + ', "answer": 42}'
MANY_LINES = "".join(f"line {number}\n" for number in range(60_000)) + "the end"


class Log:
    """A terminal's log without marks."""

    name = "main"

    def __init__(self, text: str) -> None:
        self.data = text.encode()

    async def lines(self, start: int, end: int) -> list[str]:
        return self.data[start:end].decode(errors="replace").split("\n")


@pytest.mark.parametrize(
    ("text", "end"),
    [(PROGRESS, "100.00 % of it"), (ONE_LINE, '"answer": 42}'), (MANY_LINES, "the end")],
    ids=["a progress bar", "one line of JSON", "many lines"],
)
async def test_its_end_is_always_shown(text: str, end: str) -> None:
    log = Log(text)
    shown = await output_lines(log, 0, len(log.data), 20_000)  # type: ignore[arg-type]
    assert shown.text.rstrip().endswith(end) and len(shown.text) <= 20_500
