"""LLaMA-Factory's own code on our rows: what is masked stays masked."""

from pathlib import Path

import pytest

from houston_daemon.training.export.export_run import ExportRequest, write_export
from houston_daemon.training.export.held_out_split import HeldOutSplit
from tests.consumers.environments import run_in
from tests.training.export.conftest import Scene
from tests.training.export.writing import lines

pytestmark = pytest.mark.timeout(1_800)


def test_its_loader_and_collator_train_what_the_rows_say(scene: Scene, tmp_path: Path) -> None:
    """Through `tokenized_path`, with a masked step and held out tasks."""
    scene.stage.judge(scene.short.id, 1, "mask")
    ((task,),) = scene.stage.rig.query("SELECT task FROM rollouts WHERE id = ?", scene.short.id)
    split = HeldOutSplit(tasks=(task,))
    folder, exact = (
        write_export(scene.home, ExportRequest(scene.ids, name, held_out=split), tmp_path / name)
        .folder
        for name in ("llama-factory", "trl")
    )  # fmt: skip
    read = run_in("llama-factory", "read_with_llama_factory.py", folder)
    assert read.keys() == {"train_dataset", "eval_dataset"}
    for name, file in (("train_dataset", "data.jsonl"), ("eval_dataset", "held_out.jsonl")):
        expected = lines(exact / file)
        assert [row["ids"] for row in read[name]] == [line["input_ids"] for line in expected]
        assert [row["labels"] for row in read[name]] == [line["labels"] for line in expected]
        assert len(expected) > 0
