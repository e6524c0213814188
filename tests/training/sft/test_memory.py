"""What is advised where memory ran out: only what needs less, and what the run takes."""

import re
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.runs import run_progress, trainer_process
from houston_daemon.training.sft import __main__ as program
from houston_daemon.training.sft import batch_plan, sft_recipe, training_memory
from houston_shared.errors import HoustonError
from tests.training.sft import tiny

LENGTHS = [5, 31, 12, 47, 9, 22, 64, 17]
CASES: dict[str, tuple[dict[str, Any], bool, set[str], str]] = {
    "passes of several rows": (
        {"pack_tokens": 200},
        True,
        {"pack_tokens", "gradient_checkpointing"},
        "max_length=32",
    ),
    "the longest row alone": ({"pack_tokens": 64}, True, {"gradient_checkpointing"}, "fsdp"),
    "rows longer than a pass": ({"pack_tokens": 9}, True, {"gradient_checkpointing"}, "fsdp"),
    "each row alone": ({"packing": False}, True, {"gradient_checkpointing"}, "fsdp"),
    "nothing that this run could change": (
        {"pack_tokens": 9, "gradient_checkpointing": True},
        True,
        set(),
        "a new run with shorter rows",
    ),
    "without gradients": ({"pack_tokens": 200}, False, {"pack_tokens"}, "fsdp"),
}


def planned(recipe: sft_recipe.SftRecipe) -> list[batch_plan.OptimizerStep]:
    budget = recipe.pack_tokens if recipe.packing else 0
    ones = [1] * len(LENGTHS)
    return batch_plan.plan_steps(LENGTHS, ones, epochs=1, batch=8, budget=budget, seed=0)


def largest(steps: list[batch_plan.OptimizerStep]) -> int:
    packs = [pack for step in steps for share in step.passes_per_process for pack in share]
    return max(sum(LENGTHS[row] for row in pack) for pack in packs)


@pytest.mark.parametrize("case", CASES)
def test_only_what_needs_less_is_advised(tmp_path: Path, case: str) -> None:
    settings, training, keys, other = CASES[case]
    folder = tiny.run_folder(tmp_path, tmp_path, [], **settings)
    recipe = folder.spec.recipe
    steps = planned(recipe)
    with (
        pytest.raises(HoustonError) as refused,
        training_memory.explain_out_of_memory(folder, LENGTHS, steps, training=training),
    ):
        raise RuntimeError("CUDA out of memory. Tried to allocate 3 GiB")
    error = refused.value
    assert f"passes of up to {largest(steps)} tokens; the longest row has 64." in error.cause
    advised = re.findall(r"--set (\w+=\w+)", error.next.partition(";")[0]) if keys else []
    assert {setting.partition("=")[0] for setting in advised} == keys
    assert other in error.next and ("--resume" in error.next) == bool(keys)
    if "pack_tokens" in keys:
        assert largest(planned(sft_recipe.changed_recipe(recipe, advised))) < largest(steps)


def test_another_error_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tiny.run_folder(tmp_path, tmp_path, [])
    with (
        pytest.raises(RuntimeError, match="shapes"),
        training_memory.explain_out_of_memory(folder, [1], [], training=True),
    ):
        raise RuntimeError("shapes cannot be multiplied")


@pytest.mark.parametrize("full", [True, False])
def test_where_the_model_alone_is_too_large_no_pass_is_blamed(tmp_path: Path, full: bool) -> None:
    folder = tiny.run_folder(tmp_path, tmp_path, [], full=full)
    run_progress.ProgressWriter(folder.path).set_state("running", "loading the model")
    trainer_process.report_failure(folder, program.explained(folder, MemoryError()))
    progress = run_progress.read_progress(folder.path)
    assert progress is not None and progress.state == "failed"
    assert progress.message.startswith("Memory ran out loading the model.")
    assert "pack_tokens" not in progress.message and "--accelerate fsdp" in progress.message
    assert ("an adapter in place of all weights" in progress.message) == full
