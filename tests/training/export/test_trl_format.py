"""What TRL trains of our files, found out by its own code: loading, preparation, collator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.rows.training_row import IGNORED_LABEL, ChatRow, TokenRow
from tests.support.small_tokenizer import small_tokenizer
from tests.support.synthetic_rows import made
from tests.training.export.chat_rows import step, talk
from tests.training.export.writing import written

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")

ROWS = [
    made(),
    made(((30, 1.0), (9, 0.0), (2, 1.0)), id="r-1/1.0", context=1, first=10),
    made(((1, 1.0),), id="r-2/0.0", rollout="r-2", observation=0, head=1),
    made(((8, 1.0),), kind="summary", id="r-1/summary.1", first=40),
    made(((5, 0.0),), id="r-3/0.0", rollout="r-3"),
]
TALKS = [
    talk(step(1), step(2, weight=0.0), step(3, "文😀\u2028", [{"command": "a", "n": None}])),
    talk(step(1, "two", [{"x": 1.5, "k": [1, "a"]}, {}]), step(2, "plain", []), id="r-2/0.0"),
    talk(step(1, result="<real_user>no</real_user>"), step(2, "S"), id="r-3/0.0"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import PreTrainedTokenizerFast

    file = small_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    fast = PreTrainedTokenizerFast(
        tokenizer_file=file, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = template("qwen2_5")
    return fast


def template(family: str) -> str:
    """The chat template of a model family, as TRL has it."""
    return (Path(trl.__file__).parent / "chat_templates" / f"{family}.jinja").read_text()


def trainer(dataset: Any, tokenizer: Any, folder: Path, **options: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1,
    )  # fmt: skip
    settings = {"max_length": None, "report_to": "none", "use_cpu": True, **options}
    arguments = trl.SFTConfig(output_dir=str(folder), per_device_train_batch_size=2, **settings)
    return trl.SFTTrainer(
        LlamaForCausalLM(config), arguments, train_dataset=dataset, processing_class=tokenizer
    )


def trained(trainer: Any) -> list[tuple[list[int], list[int]]]:
    """Ids and labels of every example, as the collator hands them to the model."""
    examples = []
    for batch in trainer.get_train_dataloader():
        mask = batch["attention_mask"].bool()
        for ids, labels, real in zip(batch["input_ids"], batch["labels"], mask, strict=True):
            examples.append((ids[real].tolist(), labels[real].tolist()))
    return sorted(examples)


def load(file: Path, cache: Path, how: str) -> Any:
    if how == "the folder":
        return datasets.load_dataset(str(file.parent), split="train", cache_dir=str(cache))
    kind = "parquet" if file.suffix == ".parquet" else "json"
    return datasets.load_dataset(kind, data_files=str(file), split="train", cache_dir=str(cache))


def ours(rows: Sequence[TokenRow]) -> list[tuple[list[int], list[int]]]:
    return sorted((row.token_ids.tolist(), row.labels().tolist()) for row in rows if row.trained)


@pytest.mark.parametrize("parquet", [False, True], ids=["lines", "parquet"])
@pytest.mark.parametrize("how", ["the file", "the folder"])
def test_ids_and_labels_reach_the_model_as_they_are(
    parquet: bool, how: str, tokenizer: Any, tmp_path: Path
) -> None:
    file, building = written("trl", ROWS, tmp_path / "out", parquet)
    assert not building.refused
    dataset = load(file, tmp_path / "cache", how)
    assert [row["row"] for row in dataset] == [row.id for row in ROWS if row.trained]
    assert [row["weights"] for row in dataset] == [
        row.weights().tolist() for row in ROWS if row.trained
    ]
    assert trained(trainer(dataset, tokenizer, tmp_path / "run")) == ours(ROWS)


def test_what_the_first_trap_says_is_so(tokenizer: Any, tmp_path: Path) -> None:
    """The default length cuts the end of a row, and a row whose answers lie there is gone."""
    long = made(((4, 1.0), (4, 1.0)), head=1_020, first=0)
    late = made(((4, 1.0),), id="r-2/0.0", head=1_024, first=1)
    long, late = (_small(row) for row in (long, late))
    file, _ = written("trl", [long, late], tmp_path / "out")
    dataset = load(file, tmp_path / "cache", "the file")
    (example,) = trained(trainer(dataset, tokenizer, tmp_path / "run", max_length=1_024))
    assert len(example[0]) == 1_024
    assert sum(label != IGNORED_LABEL for label in example[1]) == 4


def test_packing_keeps_every_label(tokenizer: Any, tmp_path: Path) -> None:
    file, _ = written("trl", ROWS, tmp_path / "out")
    dataset = load(file, tmp_path / "cache", "the file")
    packed = trainer(
        dataset, tokenizer, tmp_path / "run", packing=True, max_length=64, packing_strategy="bfd"
    ).train_dataset
    labels = [label for row in packed["labels"] for label in row if label != IGNORED_LABEL]
    assert sorted(labels) == sorted(
        label for row in ROWS for label in row.labels() if label != IGNORED_LABEL
    )


@pytest.mark.parametrize("family", ["qwen2_5", "qwen3"])
@pytest.mark.parametrize("parquet", [False, True], ids=["lines", "parquet"])
@pytest.mark.parametrize("marked", [False, True], ids=["", "assistant_only_loss"])
def test_chat_trains_the_kept_answers_and_nothing_else(
    family: str,
    parquet: bool,
    marked: bool,
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TRL renders prompt and completion with a real family's template; whatever is set, the loss
    covers what that template writes for each kept answer."""
    monkeypatch.setattr(tokenizer, "chat_template", template(family))
    file, building = written("trl-chat", TALKS, tmp_path / "out", parquet)
    assert not building.refused
    dataset = load(file, tmp_path / "cache", "the folder")
    examples = trained(trainer(dataset, tokenizer, tmp_path / "run", assistant_only_loss=marked))
    texts = sorted(
        tokenizer.decode([label for label in labels if label != IGNORED_LABEL]).removesuffix("\n")
        for _, labels in examples
    )
    assert texts == sorted(rendered(tokenizer))
    assert not any("masked" in text or "real_user" in text for text in texts)
    assert all(text.endswith("<|im_end|>") for text in texts)


def test_whole_conversations_would_train_masked_answers(tokenizer: Any, tmp_path: Path) -> None:
    """Why a line is a prompt and one answer: TRL's other form knows no choice of turns."""
    row = talk(step(1, "kept"), step(2, "masked", weight=0.0), step(3, "kept"))
    (last, *_) = _lines(row)[::-1]
    whole = datasets.Dataset.from_list([{"messages": last["prompt"] + last["completion"]}])
    ((_, labels),) = trained(trainer(whole, tokenizer, tmp_path / "run", assistant_only_loss=True))
    assert "masked" in tokenizer.decode([label for label in labels if label != IGNORED_LABEL])


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        ("glm4moe", "\n<think></think>\nwhy\n<tool_call>run_command\n<arg_key>command</arg_key>\n"
         "<arg_value>ls</arg_value>\n</tool_call>"),
        ("llama3_1", '{"name": "run_command", "parameters": {"command": "ls"}}<|eot_id|>'),
    ],
)  # fmt: skip
def test_what_traps_say_of_templates_is_so(
    family: str, answer: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GLM's ends no answer; Llama's leaves the thought out."""
    monkeypatch.setattr(tokenizer, "chat_template", template(family))
    assert rendered(tokenizer, [talk(step(1, "why"))]) == [answer]


def rendered(tokenizer: Any, rows: Sequence[ChatRow] = TALKS) -> list[str]:
    """What the template writes for each kept answer after the opening of its turn."""
    texts = []
    for row in rows:
        for line in _lines(row):
            both = line["prompt"] + line["completion"]
            tools = [*row.tools]
            before, after = (
                tokenizer.apply_chat_template(
                    messages, tools=tools, tokenize=False, add_generation_prompt=opened
                )
                for messages, opened in ((line["prompt"], True), (both, False))
            )
            assert after.startswith(before)
            texts.append(after.removeprefix(before).removesuffix("\n"))
    return texts


def _lines(row: ChatRow) -> list[dict[str, Any]]:
    from houston_daemon.training.export.trl_format import trl_chat_lines

    return trl_chat_lines(row)


def _small(row: TokenRow) -> TokenRow:
    """The same row with ids that the small model has."""
    from array import array
    from dataclasses import replace

    return replace(row, token_ids=array("i", [1 + id % 500 for id in row.token_ids]))
