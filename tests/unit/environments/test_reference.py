"""docs/actions.md, which `tests/unit/test_rooms.py` holds against the types, has every action."""

from pathlib import Path

from houston_daemon.environments.workstation_actions import ACTIONS

PAGE = Path(__file__).parents[3] / "docs" / "actions.md"


def test_every_action_is_on_it() -> None:
    text = PAGE.read_text()
    assert all(f"### {name}\n" in text for name in ACTIONS)
