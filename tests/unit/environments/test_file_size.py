"""A file that may grow no further is named as a limit, however the command was told."""

import pytest

from houston_daemon.environments.workstation.command_observations import CommandOutput
from houston_daemon.environments.workstation.workstation_environment import workstation_result
from houston_shared.records import ToolCall


@pytest.mark.parametrize(
    ("code", "output", "window", "said"),
    [
        (153, "File size limit exceeded", False, True),
        (1, "OSError: [Errno 27] File too large", False, True),
        (0, "the log says: File too large", False, False),
        (1, "No such file or directory", False, False),
        (153, "File size limit exceeded", True, False),
    ],
)
def test_a_file_that_may_not_grow(code: int, output: str, window: bool, said: bool) -> None:
    seen = CommandOutput(
        success=not code, session_id="main", running=False, exit_code=code, output=output,
        window=window,
    )  # fmt: skip
    made = workstation_result(ToolCall(id="c", name="run_command", arguments={}), seen, 10_000, 0.1)
    assert ("[resource limit: file size." in made.text) is said
    assert f"exit code {code}" in made.text or window
