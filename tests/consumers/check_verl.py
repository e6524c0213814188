"""verl's own code on our rows: the same ids, the same trained tokens, the same credit."""

from pathlib import Path

import pytest

from houston_daemon.training.export.export_run import ExportRequest, write_export
from houston_daemon.training.rows.row_builder import build_token_rows
from houston_shared.store.store_reader import Reader
from tests.consumers.environments import run_in
from tests.training.export.conftest import Scene
from tests.training.export.test_run_rows import Ran, exported, trained_rows
from tests.training.export.writing import lines

pytestmark = pytest.mark.timeout(1_800)


@pytest.mark.parametrize("parquet", [False, True], ids=["lines", "parquet"])
def test_verls_sft_trainer_trains_what_the_rows_say(
    parquet: bool, scene: Scene, tmp_path: Path
) -> None:
    """Through `data.custom_cls`, verl's collator and verl's loss."""
    scene.stage.judge(scene.short.id, 1, "mask")
    request = ExportRequest(scene.ids, "verl-sft", parquet=parquet)
    folder = write_export(scene.home, request, tmp_path / "out").folder
    expected = lines(write_export(scene.home, ExportRequest(scene.ids, "trl"), tmp_path / "trl")
                     .folder / "data.jsonl")  # fmt: skip
    read = run_in("verl", "read_with_verl.py", folder, "data.parquet" if parquet else "data.jsonl",
                  "sft")  # fmt: skip
    assert [row["ids"] for row in read] == [line["input_ids"] for line in expected]
    assert [row["mask"] for row in read] == [
        [int(label != -100) for label in line["labels"]] for line in expected
    ]
    assert sum(map(sum, (row["mask"] for row in read))) > 0
    for first in range(0, len(read), 2):
        batch = read[first : first + 2]
        flat = [bit for row in batch for bit in row["mask"]]
        # The loss of a token is taken where it is predicted: at the position before it.
        taken = -sum(at for at, bit in enumerate(flat) if bit)
        assert batch[-1]["loss"] == pytest.approx(taken)
        assert batch[-1]["trained_of_batch"] == sum(flat)


@pytest.mark.parametrize("parquet", [False, True], ids=["lines", "parquet"])
def test_verls_batch_of_an_update_is_what_the_run_trains(
    parquet: bool, ran: Ran, tmp_path: Path
) -> None:
    """As a `DataProto`, in the form that verl's engines take, and in verl's own loss."""
    folder = exported(ran, "verl-rl", tmp_path, parquet).folder
    name = "data.parquet" if parquet else "data.jsonl"
    read = run_in("verl", "read_with_verl.py", folder, name, "rl")
    rows = trained_rows(ran)
    assert [row["row"] for row in read] == list(rows)
    with Reader(ran.home) as reader:
        ledger = {
            row.id: row.token_ids.tolist()
            for rollout in ran.kept
            for row in build_token_rows(reader, rollout)
        }
    advantages = 0.0
    for found in read:
        row = rows[found["row"]]
        width = len(row.completion)
        assert found["ids"] == row.prompt + row.completion == ledger[row.id][: row.length]
        assert found["aligned"][:width] == row.completion, "log-probabilities of these tokens"
        assert found["response_mask"][:width] == row.mask
        assert not any(found["response_mask"][width:])
        for at in (at for at, bit in enumerate(row.mask) if bit):
            assert found["rollout_log_probs"][at] == row.sampled_logprobs[at]
            assert found["advantages"][at] == row.advantages[at]
            assert found["returns"][at] == found["score"]
            advantages += row.advantages[at]
        assert (found["uid"], found["update"]) == ("0.0-train-4", 0)
        assert found["score"] == (1.0 if row.rollout == ran.long else -1.0)
    trained = sum(row.trained for row in rows.values())
    assert read[-1]["loss"] == pytest.approx(-advantages / trained, rel=1e-4)
