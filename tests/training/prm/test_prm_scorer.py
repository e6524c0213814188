"""The scorer: every text as if it were alone, whatever is in its batch and however long it is."""

from pathlib import Path

import pytest
import torch

from houston_daemon.training.prm import prm_scorer
from houston_daemon.training.prm.prm_recipe import PrmRecipe
from houston_daemon.training.prm.prm_run_folder import PrmRunFolder
from houston_daemon.training.runs.epoch_training import epoch_arguments
from houston_shared.errors import HoustonError
from tests.support.process_reward import RegressionModel, save_reward_model
from tests.training.sft.tiny import save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reward_model(tmp_path_factory.mktemp("prm"))


def words(first: int, count: int) -> str:
    return " ".join(f"w{2 + (first + 7 * number) % 95}" for number in range(count))


def test_a_text_has_the_same_score_in_any_batch(folder: Path) -> None:
    texts = [words(number, 3 + 11 * number % 50) for number in range(20)]
    scorer = prm_scorer.load_scorer(folder, "cpu")
    apart = RegressionModel(folder).score(texts)
    assert scorer.score(texts) == pytest.approx(apart, abs=1e-5)
    assert scorer.score(texts[::-1]) == pytest.approx(apart[::-1], abs=1e-5)
    assert len({round(score, 3) for score in apart}) > 5
    assert all(0.0 <= score <= 1.0 for score in apart)
    assert scorer.score([]) == []


def test_of_a_text_that_is_too_long_the_end_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prm_scorer, "LONGEST_TEXT", 30)
    scorer = prm_scorer.load_scorer(folder, "cpu")
    end = words(5, 30)
    assert scorer.score([f"{words(40, 25)} {end}"]) == pytest.approx(scorer.score([end]), abs=1e-5)


def test_a_model_that_writes_is_no_process_reward_model(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="2 labels, not one"):
        prm_scorer.load_scorer(save_model(tmp_path / "writer"), "cpu")


@pytest.mark.parametrize(("share", "steps"), [(0.0, 0), (0.05, 10), (1.0, 200)])
def test_the_rate_rises_for_a_share_of_the_steps(tmp_path: Path, share: float, steps: int) -> None:
    arguments = epoch_arguments(
        PrmRunFolder(tmp_path), PrmRecipe(), torch.device("cpu"), warmup=share
    )
    assert arguments.get_warmup_steps(200) == steps
