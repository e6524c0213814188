"""`houston task new --from`: every packaged task is a folder that works under another name."""

from pathlib import Path

import pytest

from houston_daemon.commands.task_commands import template_names, write_task_from_template
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import HoustonError
from houston_shared.task import load_task


def test_the_suites_are_among_them() -> None:
    assert {"count-words", "search-qa", "scienceworld", "textworld"} <= set(template_names())


@pytest.mark.parametrize("template", template_names())
def test_a_packaged_task_starts_another(tmp_path: Path, template: str) -> None:
    folder = write_task_from_template("mine", tmp_path, template)
    for file in sorted(folder.glob("*.toml")):
        task = load_task(file)
        check_task_names(task)
        assert task.task.name in ("mine", "mine-test", "mine-flow", "mine-ask")
    assert not list(folder.rglob("__pycache__"))
    with pytest.raises(HoustonError, match="already exists"):
        write_task_from_template("mine", tmp_path, template)
