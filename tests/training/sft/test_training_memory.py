"""Memory is reckoned before the first step, and what will not fit is refused with what will."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.runs import run_progress
from houston_daemon.training.sft import batch_plan, sft_recipe, sft_run_folder, training_memory
from houston_daemon.training.sft.sft_recipe import NOTHING_TRAINED_MESSAGE
from houston_daemon.training.sft.training_memory import PeakMemory
from houston_shared.errors import HoustonError
from tests.training.sft import tiny

LENGTHS = [5, 31, 12, 47, 9, 22, 64, 17]
PEAK = PeakMemory(
    resident_bytes=10_000, trained=1_000, bytes_per_token=100.0, bytes_per_token_squared=0.0,
    input_bytes_per_token=10.0, layers=4, fixed_bytes=500, heap=1.0,
)  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], int, str]] = {
    "smaller passes": (
        {"pack_tokens": 200},
        1_500 + 125 * 70,
        r"--resume run --set pack_tokens=70",
    ),
    "gradient checkpointing": (
        {"pack_tokens": 64},
        1_500 + 100 * 64,
        r"--resume run --set gradient_checkpointing=true$",
    ),
    "both": (
        {"pack_tokens": 200},
        1_500 + 100 * 66,
        r"--resume run --set gradient_checkpointing=true --set pack_tokens=77",
    ),
    "shorter rows": (
        {"pack_tokens": 1, "gradient_checkpointing": True},
        1_500 + 100 * 100,
        r"a new run with shorter rows, --set max_length=\d+",
    ),
    "nothing": ({"full": True}, 1_000, r"an adapter in place of all weights, or a smaller model"),
}


def planned(recipe: sft_recipe.SftRecipe, lengths: list[int]) -> list[batch_plan.OptimizerStep]:
    ones = [1] * len(lengths)
    budget = recipe.pack_tokens
    return batch_plan.plan_steps(lengths, ones, epochs=1, batch=8, budget=budget, seed=0)


def checked(folder: sft_run_folder.RunFolder, free: int, lengths: list[int] = LENGTHS) -> list[str]:
    lines: list[str] = []
    training_memory.refuse_too_large(
        PEAK, folder, lengths, planned(folder.spec.recipe, lengths), free, lines.append
    )
    return lines


@pytest.mark.parametrize("case", CASES)
def test_what_would_fit_is_named_and_fits(tmp_path: Path, case: str) -> None:
    settings, free, advice = CASES[case]
    lengths = [160, 20] if case == "shorter rows" else LENGTHS
    folder = tiny.run_folder(tmp_path, tmp_path, [], **settings)
    with pytest.raises(HoustonError) as refused:
        checked(folder, free, lengths)
    error = refused.value
    assert error.effect == NOTHING_TRAINED_MESSAGE
    assert f"its longest row {max(lengths)}" in error.cause
    assert re.search(advice, error.next), error.next
    keys = [setting.removesuffix(";") for setting in re.findall(r"--set (\S+=\S+)", error.next)]
    if keys:
        recipe = sft_recipe.changed_recipe(folder.spec.recipe, keys)
        folder.write_spec(sft_run_folder.RunSpec(run="run", recipe=recipe))
        checked(folder, free, [min(length, recipe.max_length) for length in lengths])


def test_what_fits_is_said_and_begun(tmp_path: Path) -> None:
    folder = tiny.run_folder(tmp_path, tmp_path, [], pack_tokens=200)
    (line,) = checked(folder, 10**9)
    assert line.startswith("passes of up to 198 tokens will need up to 0.0 GB more memory")


def test_the_check_can_be_left_out(tmp_path: Path) -> None:
    folder = tiny.run_folder(tmp_path, tmp_path, [], check_memory=False)
    assert checked(folder, 1)


@pytest.mark.parametrize("checkpointing", [True, False])
def test_the_longest_pass_is_the_longest_that_fits(checkpointing: bool) -> None:
    for peak in (PEAK, replace(PEAK, bytes_per_token_squared=3.0), replace(PEAK, heap=1.7)):
        for free in (0, 5_000, 123_456):
            longest = peak.longest(free, checkpointing)
            needs = [
                peak.bytes(longest + more, checkpointing) - peak.resident_bytes for more in (0, 1)
            ]
            assert needs[1] > free and (needs[0] <= free or longest == 0)


GROUPS: dict[str, tuple[str, dict[str, str], list[int]]] = {
    "version 2": (
        "0::/a/b\n",
        {
            "a/b/memory.max": "1000",
            "a/b/memory.current": "700",
            "a/b/memory.stat": "anon 600\ninactive_file 50\n",
            "a/memory.max": "max",
            "a/memory.current": "900",
            "a/memory.stat": "inactive_file 0\n",
        },
        [350],
    ),
    "version 1": (
        "9:cpu:/\n4:memory:/job\n0::/\n",
        {
            "memory/job/memory.limit_in_bytes": "1000",
            "memory/job/memory.usage_in_bytes": "700",
            "memory/job/memory.stat": "inactive_file 10\ntotal_inactive_file 100\n",
        },
        [400],
    ),
    "none": ("0::/\n", {}, []),
}


@pytest.mark.parametrize("case", GROUPS)
def test_a_control_groups_limit_counts(tmp_path: Path, case: str) -> None:
    own, files, expected = GROUPS[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(training_memory._cgroup_bytes_left(tmp_path, own)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_reckoning_is_no_less_than_the_run_takes_and_changes_nothing(
    tmp_path: Path, full: bool
) -> None:
    """In a process of its own, with a model whose passes are most of what it takes."""
    base = tiny.save_model(
        tmp_path / "base", hidden_size=256, intermediate_size=1024, num_hidden_layers=6,
        max_position_embeddings=8192,
    )  # fmt: skip
    folder = tiny.run_folder(
        tmp_path, base, tiny.rows((2048,)), full=full, max_length=4096, pack_tokens=4096, epochs=2,
        lora_dropout=0.0 if full else 0.1,
    )  # fmt: skip
    program = (
        "import sys\n"
        "from houston_daemon.training.sft import training_memory, training_run\n"
        "from houston_daemon.training.runs.run_progress import ProgressWriter\n"
        "from houston_daemon.training.sft.sft_run_folder import RunFolder\n"
        "from pathlib import Path\n"
        "check = training_memory.refuse_too_large\n"
        "def checked(peak, *more):\n"
        "    print(peak.bytes(2048, False), flush=True)\n"
        "    check(peak, *more)\n"
        "training_memory.refuse_too_large = checked\n"
        "folder = RunFolder(Path(sys.argv[1]))\n"
        "training_run.train_run(folder, ProgressWriter(folder.path))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, str(folder.path)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    result = folder.result
    assert result is not None
    reckoned = int(process.stdout.split()[0])
    assert result.memory_bytes <= reckoned <= 2.5 * result.memory_bytes
    assert "tokens will need up to" in (folder.path / "log.txt").read_text()


def test_a_run_that_will_not_fit_is_refused_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from houston_daemon.training.sft import training_run

    base = tiny.save_model(tmp_path / "base")
    folder = tiny.run_folder(tmp_path, base, tiny.rows())
    monkeypatch.setattr(training_memory, "free_bytes", lambda device: 1000)
    with pytest.raises(HoustonError, match="Training will need up to"):
        training_run.train_run(folder, run_progress.ProgressWriter(folder.path))
    now = run_progress.read_progress(folder.path)
    assert now is not None and not now.step
    assert not folder.checkpoints.exists() or not list(folder.checkpoints.iterdir())
