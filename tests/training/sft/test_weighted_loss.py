"""The loss: plain SFTTrainer's where every weight is 1, and what the weights say elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    TrainerCallback,
)
from trl import SFTConfig, SFTTrainer

from houston_daemon.training.sft import batch_plan, sft_dataset, sft_model
from houston_daemon.training.sft.sft_model import probe_model
from houston_daemon.training.sft.sft_trainer import WeightedTrainer
from houston_daemon.training.sft.weighted_loss import WeightedLossHead, loss_from_logits
from tests.training.sft import tiny


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("base"))


class Losses(TrainerCallback):
    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **rest: Any) -> None:
        if "loss" in logs:
            self.found.append((logs["loss"], logs["grad_norm"]))


def arguments(folder: Path, **more: Any) -> SFTConfig:
    plain = {
        "output_dir": str(folder),
        "learning_rate": 1e-2,
        "lr_scheduler_type": "linear",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "max_length": None,
        "remove_unused_columns": False,
        "seed": 3,
    }
    return SFTConfig(**(plain | more))


def load(base: Path, **more: Any) -> Any:
    sft_model.register_rows_attention()
    kind = {"dtype": torch.float32, "attn_implementation": sft_model.ROWS_ATTENTION} | more
    return AutoModelForCausalLM.from_pretrained(base, **kind)


def prepared(
    tmp_path: Path, examples: list[dict[str, Any]], longest: int = 512
) -> sft_dataset.MappedRows:
    source = tiny.write(tmp_path / "data", examples) / "data.jsonl"
    sft_dataset.prepare_rows(source, tmp_path / "rows.arrow", longest)
    return sft_dataset.load_rows(tmp_path / "rows.arrow")


def ours(
    tmp_path: Path, base: Path, examples: list[dict[str, Any]], *, budget: int, batch: int = 4
) -> tuple[list[tuple[float, float]], Any]:
    """Losses, gradient norms and the model after an epoch of full training, in the rows' order."""
    rows = prepared(tmp_path, examples)
    steps = in_order(rows.lengths, batch, budget)
    losses = Losses()
    trainer = WeightedTrainer(
        model=load(base),
        args=arguments(
            tmp_path / "ours",
            max_steps=len(steps),
            per_device_train_batch_size=1,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        passes=sft_dataset.PassDataset(rows, steps, row_lengths=True),
        processing_class=AutoTokenizer.from_pretrained(base),
        callbacks=[losses],
        fused=True,
        keep=2,
    )
    trainer.train()
    return losses.found, trainer.model


def in_order(lengths: list[int], batch: int, budget: int) -> list[batch_plan.OptimizerStep]:
    """Steps of the rows as they stand there."""
    steps = []
    for start in range(0, len(lengths), batch):
        chosen = list(range(len(lengths)))[start : start + batch]
        packs = tuple(batch_plan.pack_rows(chosen, lengths, budget))
        steps.append(batch_plan.OptimizerStep((packs,), sum(lengths[row] for row in chosen), 1.0))
    return steps


def plain(
    tmp_path: Path, base: Path, examples: list[dict[str, Any]], *, micro: int, batch: int = 4
) -> tuple[list[tuple[float, float]], Any]:
    """The same with SFTTrainer as it comes."""
    losses = Losses()

    class InOrder(SFTTrainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    trainer = InOrder(
        model=load(base, attn_implementation="sdpa"),
        args=arguments(
            tmp_path / "plain",
            num_train_epochs=1,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=batch // micro,
            remove_unused_columns=True,
        ),
        train_dataset=Dataset.from_list(
            [{name: example[name] for name in ("input_ids", "labels")} for example in examples]
        ),
        processing_class=AutoTokenizer.from_pretrained(base),
        callbacks=[losses],
    )
    trainer.train()
    return losses.found, trainer.model


@pytest.mark.parametrize(
    ("micro", "budget"),
    [(4, 0), (2, 48), (1, 10_000)],
    ids=["a row a pass, batches of four", "passes of 48 tokens", "all of a step in one pass"],
)
def test_with_weights_of_one_it_is_plain_sft(
    tmp_path: Path, base: Path, micro: int, budget: int
) -> None:
    """Loss, gradient and weights, over ten rows in three steps, the last with two rows."""
    examples = tiny.rows()
    theirs, their_model = plain(tmp_path, base, examples, micro=micro)
    mine, my_model = ours(tmp_path, base, examples, budget=budget)
    assert len(mine) == len(theirs) == 3
    assert mine == pytest.approx([pytest.approx(figures, rel=2e-5) for figures in theirs])
    began = load(base).state_dict()
    theirs_moved, mine_moved = (
        torch.cat([(state[name] - began[name]).flatten() for name in began])
        for state in (their_model.state_dict(), my_model.state_dict())
    )
    assert (mine_moved - theirs_moved).norm() <= 1e-3 * theirs_moved.norm()


def gradient(model: Any, passes: list[dict[str, Any]], whole: float) -> dict[str, torch.Tensor]:
    head = WeightedLossHead(model)
    model.zero_grad()
    for inputs in passes:
        about = {name: inputs.pop(name) for name in ("predicts", "targets", "weights")}
        with head.computing_loss(**about):
            (model(**inputs, use_cache=False).logits.sum() / whole).backward()
    head.remove()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def weighed(tmp_path: Path) -> sft_dataset.MappedRows:
    """Rows whose weights differ from token to token and from row to row."""
    examples = tiny.rows()
    for number, example in enumerate(examples):
        example["weights"] = [
            weight * (1 + 0.25 * (place % 5) + number)
            for place, weight in enumerate(example["weights"])
        ]
    return prepared(tmp_path, examples)


def by_hand(model: Any, rows: sft_dataset.MappedRows) -> tuple[float, dict[str, torch.Tensor]]:
    """Σ weight × cross entropy / Σ weights, each row alone, from the definition."""
    model.zero_grad()
    total, whole = torch.zeros((), dtype=torch.float64), 0.0
    for row in range(len(rows.lengths)):
        ids, weights = rows.ids(row), rows.weights(row).double()
        scores = model(ids[None], use_cache=False).logits[0, :-1].log_softmax(-1)
        total = total - (scores.gather(1, ids[1:, None])[:, 0] * weights[1:]).sum()
        whole += float(weights[1:].sum())
    (total / whole).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return float(total.detach()) / whole, gradients


@pytest.mark.parametrize("budget", [0, 64, 10_000])
@pytest.mark.parametrize("tied", [True, False])
def test_packed_or_not_loss_and_gradient_are_those_of_each_row_alone(
    tmp_path: Path, budget: int, tied: bool
) -> None:
    """In float64, to 1e-5: weights that are not 0 or 1 too."""
    torch.manual_seed(1)
    sft_model.register_rows_attention()
    model = LlamaForCausalLM(tiny.config(tie_word_embeddings=tied)).double()
    rows = weighed(tmp_path)
    _, expected = by_hand(model, rows)
    model.set_attn_implementation(sft_model.ROWS_ATTENTION)
    (step,) = in_order(rows.lengths, 100, budget)
    passes = sft_dataset.PassDataset(rows, [step], row_lengths=True).item(0)["passes"]
    whole = sum(float(inputs["weights"].double().sum()) for inputs in passes)
    gradients = gradient(model, passes, whole)
    for name, slope in expected.items():
        assert (gradients[name] - slope).norm() <= 1e-5 * slope.norm(), name


def test_a_row_sees_nothing_of_the_rows_beside_it(tmp_path: Path, base: Path) -> None:
    """Bit for bit: other neighbours, the same loss."""
    model = load(base)
    head = WeightedLossHead(model)
    examples = tiny.rows((40, 40, 40))
    others = [examples[0], *tiny.rows((40, 40), seed=9)]
    losses = []
    for number, rows in enumerate((examples, others)):
        mapped = prepared(tmp_path / str(number), rows)
        (step,) = in_order(mapped.lengths, 3, 10_000)
        (inputs,) = sft_dataset.PassDataset(mapped, [step], row_lengths=True).item(0)["passes"]
        about = {name: inputs.pop(name) for name in ("predicts", "targets", "weights")}
        about["weights"] = torch.where(about["predicts"] < 40, about["weights"], 0.0)
        with torch.no_grad(), head.computing_loss(**about):
            losses.append(float(model(**inputs, use_cache=False).logits))
    assert losses[0] == losses[1]


SMALL: dict[str, Any] = {
    "vocab_size": tiny.WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def models() -> Iterator[Any]:
    yield pytest.param(lambda: LlamaForCausalLM(tiny.config()), True, True, id="llama")
    yield pytest.param(
        lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=8.0)),
        True,
        False,
        id="granite scales its logits",
    )
    yield pytest.param(
        lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6)),
        True,
        True,
        id="mistral sees six tokens back",
    )
    yield pytest.param(
        lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
        ),
        True,
        True,
        id="qwen3 with experts",
    )
    yield pytest.param(
        lambda: Gemma2ForCausalLM(
            Gemma2Config(**SMALL, final_logit_softcapping=0.5, attn_logit_softcapping=None)
        ),
        True,
        False,
        id="gemma2 caps its logits",
    )
    yield pytest.param(
        lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, attn_logit_softcapping=0.5)),
        False,
        False,
        id="gemma2 caps its attention",
    )
    yield pytest.param(
        lambda: GptOssForCausalLM(GptOssConfig(**SMALL, num_local_experts=4)),
        False,
        True,
        id="gpt-oss has sinks",
    )


@pytest.mark.parametrize(("make", "packing", "fused"), list(models()))
def test_what_a_model_can_do_is_tried_and_not_assumed(
    make: Any, packing: bool, fused: bool
) -> None:
    """The verdict is right for models of other kinds; each is compared with its own attention."""
    torch.manual_seed(2)
    sft_model.register_rows_attention()
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3) if parameter.dim() > 1 else None
    rows = [torch.randint(tiny.WORDS, (length,)) for length in (9, 17)]
    own = [model(row[None], use_cache=False).logits[0] for row in rows]
    before = model.config._attn_implementation
    assert probe_model(model) == (packing, fused)
    if not packing:
        assert model.config._attn_implementation == before
        alone = [model(row[None], use_cache=False).logits[0] for row in rows]
        torch.testing.assert_close(torch.cat(alone), torch.cat(own))
        return
    places = torch.cat([torch.arange(len(row)) for row in rows])[None]
    together = model(
        torch.cat(rows)[None], position_ids=places, row_lengths=[9, 17], use_cache=False
    )
    torch.testing.assert_close(together.logits[0], torch.cat(own), rtol=1e-3, atol=1e-3)


def test_a_model_that_mixes_the_rows_is_found_out() -> None:
    """Attention that ignores where rows end: they get a pass each."""
    torch.manual_seed(2)
    model = LlamaForCausalLM(tiny.config())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3) if parameter.dim() > 1 else None
    model.set_attn_implementation("eager")
    model.model.forward = _without_row_lengths(model.model.forward)
    assert probe_model(model) == (False, True)


def _without_row_lengths(forward: Any) -> Any:
    def mixed(*args: Any, **more: Any) -> Any:
        more.pop("row_lengths", None)
        size = more["input_ids"].shape[1]
        more["attention_mask"] = torch.ones(1, size, dtype=torch.long)
        return forward(*args, **more)

    return mixed


def test_no_logits_where_nothing_weighs(base: Path) -> None:
    """The head multiplies the positions that predict a trained token, and no other."""
    model = load(base)
    head = WeightedLossHead(model)
    positions = []
    real = torch.nn.functional.linear

    def counted(hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
        out = real(hidden, *rest)
        if out.shape[-1] == tiny.WORDS:
            positions.append(out.shape[0])
        return out

    ids = torch.randint(tiny.WORDS, (1, 200))
    predicts = torch.tensor([3, 17, 150])
    torch.nn.functional.linear = counted
    try:
        with head.computing_loss(predicts, ids[0, predicts + 1], torch.ones(3)):
            loss = model(input_ids=ids, use_cache=False).logits.sum()
            loss.backward()
    finally:
        torch.nn.functional.linear = real
    assert positions == [3]
    expected = loss_from_logits(
        load(base)(input_ids=ids).logits[0, predicts], ids[0, predicts + 1], torch.ones(3)
    )
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_slices_of_the_head_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seven positions at a time, or all."""
    torch.manual_seed(1)
    sft_model.register_rows_attention()
    model = LlamaForCausalLM(tiny.config()).double()
    model.set_attn_implementation(sft_model.ROWS_ATTENTION)
    rows = weighed(tmp_path)
    gradients = []
    for size in (4 * tiny.WORDS * 7, 10**9):
        monkeypatch.setattr("houston_daemon.training.sft.weighted_loss.SLICE_BYTES", size)
        (step,) = in_order(rows.lengths, 100, 100)
        passes = sft_dataset.PassDataset(rows, [step], row_lengths=True).item(0)["passes"]
        gradients.append(gradient(model, passes, 1.0))
    for name, slope in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], slope, rtol=1e-9, atol=1e-12)
