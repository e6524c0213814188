"""docs/actions.md has every action; `tests/unit/test_conventions.py` compares it with the types."""

from pathlib import Path

from houston_daemon.environments.workstation_actions import ACTIONS

PAGE = Path(__file__).parents[3] / "docs" / "actions.md"


def test_every_action_is_on_it() -> None:
    text = PAGE.read_text()
    assert all(f"### {name}\n" in text for name in ACTIONS)
