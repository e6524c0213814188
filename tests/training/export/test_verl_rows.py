"""The dataset class that an export brings for verl's `data.custom_cls`; verl itself is not here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.synthetic_rows import made
from tests.training.export.writing import written

pytest.importorskip("torch")
ROWS = [made(), made(((3, 1.0), (2, 0.0)), rollout="r-2")]
TOKENIZER = SimpleNamespace(pad_token_id=9)


def dataset(file: Path, **config: Any) -> Any:
    from houston_daemon.training.loaders import verl_rows

    return verl_rows.TokenRows(str(file), TOKENIZER, config, max_samples=-1)


@pytest.mark.parametrize("parquet", [False, True], ids=["lines", "parquet"])
def test_every_row_has_its_ids_and_trains_its_tokens(parquet: bool, tmp_path: Path) -> None:
    if parquet:
        pytest.importorskip("pyarrow")
    file, _ = written("verl-sft", ROWS, tmp_path, parquet)
    read = dataset(file, pad_mode="no_padding", max_length=99)
    assert len(read) == 2
    for item, row in zip(read, ROWS, strict=False):
        assert item["input_ids"].tolist() == row.token_ids.tolist()
        assert item["loss_mask"].tolist() == [int(weight) for weight in row.weights()]
        assert item["position_ids"].tolist() == list(range(len(row.token_ids)))


def test_padding_trains_nothing(tmp_path: Path) -> None:
    file, _ = written("verl-sft", ROWS, tmp_path)
    item = dataset(file, pad_mode="right", max_length=40)[1]
    length = len(ROWS[1].token_ids)
    assert item["input_ids"].tolist() == [*ROWS[1].token_ids, *[9] * (40 - length)]
    assert item["attention_mask"].tolist() == [1] * length + [0] * (40 - length)
    assert int(item["loss_mask"].sum()) == 3


def test_a_row_that_verl_would_cut_is_refused(tmp_path: Path) -> None:
    file, _ = written("verl-sft", ROWS, tmp_path)
    longest = len(ROWS[0].token_ids)
    with pytest.raises(ValueError, match=f"set data.max_length={longest}"):
        dataset(file, pad_mode="right", max_length=longest - 1)
    with pytest.raises(ValueError, match="pad_mode"):
        dataset(file, pad_mode="left", max_length=longest)
