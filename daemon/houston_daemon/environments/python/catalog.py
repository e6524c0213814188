"""Which actions python offers for one task, and what the task and this machine must have for it."""

from houston_daemon.environments import interpreter
from houston_daemon.environments.arguments import Arguments, Catalog
from houston_daemon.environments.python.actions import PYTHON_ACTIONS
from houston_daemon.environments.python.running import MISSING
from houston_daemon.environments.questions.answering import check_questions
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError when the task cannot be run by python."""
    actions: dict[str, type[Arguments]] = {one.name: one for one in PYTHON_ACTIONS}
    for name in task.tools:
        if name not in actions:
            raise ConfigurationError(
                f"Task {task.name}: `tools` names {name!r}; python has {', '.join(actions)}."
            )
    if task.evaluate.command:
        raise ConfigurationError(
            f"Task {task.name}: python runs no evaluator; `[questions] file` gives it questions "
            "with answers."
        )
    return Catalog({n: one for n, one in actions.items() if not task.tools or n in task.tools})


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would end every rollout of the task at once."""
    catalog(task.task)
    if absent := interpreter.missing(task.task.python.packages):
        raise ConfigurationError(
            f"{task.file}: `python.packages` names {absent[0]!r}, which is not installed here.",
            next=MISSING,
        )
    if task.task.questions.file:
        check_questions(task)
