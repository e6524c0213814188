"""Which actions search_qa offers for one task, and what the task must name for it."""

from houston_daemon.environments.arguments import Arguments, Catalog
from houston_daemon.environments.questions.answering import check_questions
from houston_daemon.environments.search_qa.actions import SEARCH_QA_ACTIONS
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task

_ANSWER = "answer"


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError when the task cannot be run by search_qa."""
    actions: dict[str, type[Arguments]] = {one.name: one for one in SEARCH_QA_ACTIONS}
    for name in task.tools:
        if name not in actions:
            raise ConfigurationError(
                f"Task {task.name}: `tools` names {name!r}; search_qa has {', '.join(actions)}."
            )
    if task.tools and _ANSWER not in task.tools:
        raise ConfigurationError(f"Task {task.name}: `tools` leaves out {_ANSWER!r}.")
    for key, value in (
        ("search.corpus", task.search.corpus),
        ("questions.file", task.questions.file),
    ):
        if not value:
            raise ConfigurationError(f"Task {task.name}: search_qa needs the key `{key}`.")
    return Catalog({n: one for n, one in actions.items() if not task.tools or n in task.tools})


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would end every rollout of the task at once."""
    catalog(task.task)
    check_questions(task)
