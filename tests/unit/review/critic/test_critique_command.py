"""`houston critique` where no daemon runs: what it can say without one it says."""

from pathlib import Path

import pytest

from houston_shared.command import main
from houston_shared.errors import ExitCode
from tests.support.written_home import WrittenHome


@pytest.mark.parametrize(
    ("score", "code", "says"),
    [
        (100.0, ExitCode.DONE, "r has the full score: there is nothing to criticise."),
        (50.0, ExitCode.DAEMON_NOT_RUNNING, "No daemon runs"),
    ],
)
def test_an_attempt_with_the_full_score_needs_no_daemon_to_say_so(
    score: float, code: ExitCode, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = WrittenHome(tmp_path / "home")
    written.rollout("r", state="finished", last_score=score)
    written.step("r", 1)
    written.close()
    assert main(["critique", "r", "--refine", "--home", str(tmp_path / "home")]) == code
    captured = capsys.readouterr()
    assert says in captured.out + captured.err
