"""docs/actions.md is what the types say."""

from pathlib import Path

from houston_daemon.environments.workstation.actions_reference import reference
from houston_daemon.environments.workstation_actions import ACTIONS

PAGE = Path(__file__).parents[3] / "docs" / "actions.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), (
        "run: python -m houston_daemon.environments.workstation.actions_reference docs/actions.md"
    )


def test_every_action_is_on_it() -> None:
    text = reference()
    assert all(f"### {name}\n" in text for name in ACTIONS)
