"""Made `addition.eval` and `theory-of-mind.json` here: FOLDER. Two examples of inspect_ai's own
documentation, run by `inspect_ai` with its `mockllm/model`: a tool that adds, and its packaged data
set `theory_of_mind` under `chain_of_thought`.

Run again only to make logs of a newer version; the tests read what lies here.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample, example_dataset
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.model._model import ModelAPI
from inspect_ai.scorer import includes
from inspect_ai.solver import chain_of_thought, generate, system_message, use_tools
from inspect_ai.tool import tool

MODEL = "mockllm/model"


@tool
def add() -> Callable[[int, int], Awaitable[int]]:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: First number to add.
            y: Second number to add.
        """
        return x + y

    return execute


@task
def addition() -> Task:
    return Task(
        dataset=[Sample("What is 1 + 1?", target="2"), Sample("What is 2 + 3?", target="5")],
        solver=[system_message("Add with the tool."), use_tools(add()), generate()],
        scorer=includes(),
    )


@task
def theory_of_mind() -> Task:
    return Task(
        dataset=example_dataset("theory_of_mind")[:2],
        solver=[chain_of_thought(), generate()],
        scorer=includes(),
    )


ANSWERS = {
    "addition.eval": [
        ModelOutput.for_tool_call(MODEL, "add", {"x": 1, "y": 1}),
        ModelOutput.from_content(MODEL, "It is 2."),
        ModelOutput.for_tool_call(MODEL, "add", {"x": 2, "y": 3}),
        ModelOutput.from_content(MODEL, "It is 6."),
    ],
    "theory-of-mind.json": [
        ModelOutput.from_content(MODEL, "He looks where he left it.\n\nANSWER: bathtub"),
        ModelOutput.from_content(MODEL, "Nobody told her.\n\nANSWER: pantry"),
    ],
}


async def count_words(self: ModelAPI, text: str) -> int:
    """In place of an encoding that is fetched over the network."""
    return len(text.split())


def main(folder: Path) -> None:
    ModelAPI.count_text_tokens = count_words  # type: ignore[method-assign]
    for (name, answers), which in zip(ANSWERS.items(), (addition, theory_of_mind), strict=True):
        model = get_model(MODEL, custom_outputs=answers, memoize=False)
        (log,) = eval(which(), model=model, log_dir=str(folder / "made"), max_samples=1)
        assert log.status == "success", log.error
        log = read_eval_log(log.location, resolve_attachments=True)
        log.eval.model_args = {}
        write_eval_log(log, str(folder / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
