"""What the folder of a training run says of its curves, data and held-out loss, whatever state it
is in. The files are written by what trainers write them with."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_console.commands import policy_report
from houston_daemon.training.rl.rl_run_folder import RlRunFolder
from houston_daemon.training.rl.update_figures import (
    CriticFigures,
    LossFigures,
    SamplingFigures,
    UpdateFigures,
    ValidationFigures,
)
from houston_daemon.training.runs.run_progress import ProgressWriter
from houston_shared.training_figures import (
    METRICS_NAME,
    Curve,
    HeldOutBefore,
    HeldOutLoss,
    RunFigures,
    StepMetrics,
    figures_of_metrics,
    read_run_figures,
)


def train(folder: Path, *losses: tuple[int, float]) -> None:
    """A trainer that makes these steps."""
    writer = ProgressWriter(folder)
    writer.begin_steps(step=0, steps=9, tokens=0, total=900)
    for step, loss in losses:
        writer.step_done(
            step=step, tokens=100 * step, epoch=0.1, loss=loss, lr=1e-4, grad_norm=0.5, memory=1
        )


def curve_of(figures: RunFigures, name: str) -> Curve:
    (found,) = [curve for curve in figures.curves if curve.name == name]
    return found


def test_a_folder_without_a_word_has_no_figures(tmp_path: Path) -> None:
    assert read_run_figures(tmp_path) == RunFigures()
    assert read_run_figures(tmp_path / "gone") == RunFigures()


def test_the_loss_of_each_step_is_a_curve_that_grows(tmp_path: Path) -> None:
    train(tmp_path, (1, 2.5), (2, 2.25))
    assert curve_of(read_run_figures(tmp_path), "loss").points == ((1, 2.5), (2, 2.25))
    train(tmp_path, (3, 2.0))
    assert curve_of(read_run_figures(tmp_path), "loss").points[-1] == (3, 2.0)


def test_a_run_that_goes_on_from_a_checkpoint_says_a_step_once(tmp_path: Path) -> None:
    train(tmp_path, (1, 2.5), (2, 2.25), (3, 2.0))
    file = tmp_path / METRICS_NAME
    os.truncate(file, file.stat().st_size - 7)  # as a kill in the middle of the write leaves it
    assert len(curve_of(read_run_figures(tmp_path), "loss").points) == 2
    train(tmp_path, (2, 2.125), (3, 1.5))
    points = curve_of(read_run_figures(tmp_path), "loss").points
    assert points == ((1, 2.5), (2, 2.125), (3, 1.5))
    whole = msgspec.json.decode(file.read_bytes().splitlines()[-1], type=StepMetrics)
    assert (whole.lr, whole.grad_norm, whole.tokens) == (1e-4, 0.5, 300)


def test_held_out_loss_is_known_before_and_then_after(tmp_path: Path) -> None:
    train(tmp_path, (1, 2.5), (2, 2.0))
    before = msgspec.json.encode(HeldOutBefore(loss=2.75, rows=40))
    (tmp_path / "held_out_before.json").write_bytes(before)
    running = read_run_figures(tmp_path)
    assert running.held_out == HeldOutLoss(2.75, None, 40)
    assert [curve.name for curve in running.curves] == ["loss"]
    metrics: dict[str, Any] = {
        "held_out_before": 2.75, "held_out_after": 1.5, "held_out_rows": 40, "steps": 2
    }  # fmt: skip
    (tmp_path / "result.json").write_bytes(msgspec.json.encode(metrics))
    ended = read_run_figures(tmp_path)
    assert ended.held_out == HeldOutLoss(2.75, 1.5, 40)
    assert curve_of(ended, "held-out loss").points == ((0, 2.75), (2, 1.5))


def test_a_policy_keeps_its_figures_when_the_folder_of_its_run_is_gone() -> None:
    metrics = {"rows": 12, "trained": 900, "held_out_before": 2.75, "held_out_after": 1.5}
    figures = figures_of_metrics(metrics)
    assert figures.held_out == HeldOutLoss(2.75, 1.5, 0)
    assert figures.data is not None
    assert (figures.data.rows, figures.data.trained) == (12, 900)
    assert figures_of_metrics({"held_out": {"mae": 0.1}}) == RunFigures()
    assert figures_of_metrics({"rows": "many"}) == RunFigures()


def test_rows_are_those_of_the_manifest_that_the_run_kept(tmp_path: Path) -> None:
    manifest = {
        "rows": 312,
        "counts": {"unit": "tokens", "trained": 900, "unjudged": 90, "untrained": {"mask": 7}},
        "sources": [{"rollout": "a", "held_out": False}, {"rollout": "b", "held_out": True}],
    }
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    data = read_run_figures(tmp_path).data
    assert data is not None
    assert (data.rows, data.rollouts, data.trained, data.unjudged) == (312, 1, 900, 90)
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode({**manifest, "rows": 300}))
    kept = read_run_figures(tmp_path).data
    assert kept is not None
    assert kept.rows == 300, "what was exported may have been replaced since"


def update(number: int, reward: float, **fields: Any) -> UpdateFigures:
    zeros = dict.fromkeys(SamplingFigures.__struct_fields__, 0)
    sampling = msgspec.convert(
        {**zeros, "recovered_at": {}, "rollouts": 16, "reward": reward, "tokens": 60.0 + number},
        SamplingFigures,
    )
    return UpdateFigures(
        update=number, policy="base", sampling=sampling, loss=LossFigures(), trained_tokens=100,
        gap_mean=0, gap_largest=0, gap_tokens=0, gap_truncated=0, seconds={}, **fields,
    )  # fmt: skip


def critic(gain: float) -> CriticFigures:
    zeros = dict.fromkeys(CriticFigures.__struct_fields__, 0)
    fields = {
        **zeros,
        "policy": "c@2",
        "attempts": 1,
        "gain": gain,
        "improved": 0.5,
        "seconds": {},
        "loss": {},
    }
    return msgspec.convert(fields, CriticFigures)


STALE = {
    "it holds": ([0.4] * 12, False),
    "it falls below half of its best": ([0.4] * 8 + [0.05] * 3, True),
    "it comes back": ([0.4] * 8 + [0.05] * 5 + [0.3] * 5, False),
    "it never helped": ([0.01] * 6 + [-0.3] * 6, False),
    "too few updates": ([0.4, -0.4], False),
}


@pytest.mark.parametrize("name", STALE)
def test_a_critic_that_has_become_stale_is_told_of(name: str, tmp_path: Path) -> None:
    gains, told = STALE[name]
    folder = RlRunFolder(tmp_path)
    for number, gain in enumerate(gains):
        folder.keep_update(update(number, 0.5, critic=critic(gain)))
    # Nothing is criticised where every attempt has the full score: that is no sign of age.
    for number in range(len(gains), len(gains) + 3):
        full = msgspec.structs.replace(critic(0.0), full=1)
        folder.keep_update(update(number, 0.5, critic=full))
    figures = read_run_figures(tmp_path)
    lines = [line.text for line in policy_report.stale_critic_lines(figures)]
    assert bool(lines) == told and all("+0.40 at best" in line for line in lines)
    assert (policy_report.figures_json(figures)["stale_critic"] or "") == "".join(lines)


def test_updates_are_curves_of_reward_length_failures_and_of_a_critic(tmp_path: Path) -> None:
    folder = RlRunFolder(tmp_path)
    folder.keep_update(update(0, -0.5, validation=ValidationFigures(
        tasks=8, solved=0.25, tool_failures=1, steps=4)))  # fmt: skip
    folder.keep_update(update(1, 0.5, critic=critic(0.125)))
    figures = read_run_figures(tmp_path)
    reward = curve_of(figures, "reward")
    assert (reward.points, reward.unit, reward.falls) == (((0, -0.5), (1, 0.5)), "update", False)
    assert curve_of(figures, "tokens a rollout").falls is None
    assert curve_of(figures, "failed calls a rollout").falls is True
    assert curve_of(figures, "solved, validation").points == ((0, 0.25),)
    assert curve_of(figures, "critic: gain").points == ((1, 0.125),)
    assert not [curve for curve in figures.curves if curve.name == "process reward"]
    assert figures.data is not None
    assert (figures.data.rollouts, figures.data.trained) == (32, 200)
