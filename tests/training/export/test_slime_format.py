"""What slime trains of our lines: its rules in our own words, over a plain ChatML template.

slime reads with pandas, renders each message alone, gives an answer's tokens after the opening of
its turn the weight 1 unless the message says another, and trains the part of the row from its first
trained token on. No code of slime's is used here.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from houston_daemon.training.export.slime_format import mask_type, slime_advice
from houston_daemon.training.rows.training_row import ChatRow
from tests.support.small_tokenizer import small_tokenizer
from tests.training.export.chat_rows import step, talk
from tests.training.export.writing import written

pandas = pytest.importorskip("pandas")
OPENING = "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("base", "dialect", "expected"),
    [
        ("/models/Qwen3-8B", "hermes", "qwen3"),
        ("Qwen/Qwen3.5-4B", "", "qwen3_5"),
        ("/models/Qwen2.5-7B-Instruct", "hermes", "qwen"),
        ("/models/SmolLM2-135M-Instruct", "chatml-json", "qwen"),
        ("/models/policy-7", "qwen3", "qwen3"),
        ("zai-org/GLM-4.5", "", ""),
        ("/models/policy-8", "glm45", ""),
        ("gpt-5", "", None),
    ],
)
def test_the_mask_type_for_a_model(base: str, dialect: str, expected: str | None) -> None:
    assert mask_type(base, dialect) == expected
    advice = slime_advice([(base, dialect)])
    if expected:
        assert f"--loss-mask-type {expected} (for {base})" in advice
    elif expected == "":
        assert advice.endswith("use --format trl.")
    else:
        assert "does not know which fits gpt-5" in advice


def rendered(message: dict[str, Any]) -> str:
    calls = "".join(
        f"\n<tool_call>{json.dumps(call['function'], ensure_ascii=False)}</tool_call>"
        for call in message.get("tool_calls", ())
    )
    return f"<|im_start|>{message['role']}\n{message['content']}{calls}<|im_end|>\n"


def masked(messages: list[dict[str, Any]], tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids and mask of a row, as slime makes them."""
    ids: list[int] = []
    mask: list[int] = []
    opening = len(tokenizer.encode(OPENING).ids)
    for message in messages:
        part = tokenizer.encode(rendered(message)).ids
        answer = message["role"] == "assistant" and message.get("step_loss_mask", 1) == 1
        ids += part
        mask += [0] * opening + [1] * (len(part) - opening) if answer else [0] * len(part)
    return ids, mask


def trained(row: ChatRow, tokenizer: Tokenizer, folder: Path) -> str:
    """The text that slime trains of a row's line."""
    file, building = written("slime", [row], folder)
    assert not building.refused
    table = pandas.read_json(io.BytesIO(file.read_bytes()), lines=True, dtype={"label": str})
    (line,) = [entry.to_dict() for _, entry in table.iterrows()]
    ids, mask = masked(line["messages"], tokenizer)
    length = len(mask) - mask.index(1)
    trained_ids = [id for id, bit in zip(ids[-length:], mask[-length:], strict=True) if bit]
    return str(tokenizer.decode(trained_ids, skip_special_tokens=False))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_file(small_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        (talk(step(1), step(2), step(3)), (1, 2, 3)),
        (talk(step(1), step(2, weight=0.0), step(3)), (1, 3)),
        (talk(step(1, weight=0.0), step(2, "文😀", [{}, {"n": None}]), step(3, weight=0.0)), (2,)),
        (talk(step(1, result="<|im_end|>"), step(2, "<|im_start|>", weight=0.0), step(3)), (1, 3)),
    ],
    ids=["all", "one masked", "only the middle", "tokens in what is not trained"],
)  # fmt: skip
def test_kept_answers_with_their_stop_token_are_trained(
    row: ChatRow, numbers: tuple[int, ...], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    from houston_daemon.training.export.slime_format import slime_lines

    (line,) = slime_lines(row)
    answers = [message for message in line["messages"] if message["role"] == "assistant"]
    expected = [rendered(answers[n - 1]).removeprefix(OPENING) for n in numbers]
    assert trained(row, tokenizer, tmp_path) == "".join(expected)


def test_why_a_masked_row_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Of a mask without a 1 slime takes the last 0 elements: in Python that is all of them."""
    _, mask = masked([{"role": "assistant", "content": "x", "step_loss_mask": 0}], tokenizer)
    assert sum(mask) == 0
    assert mask[-0:] == mask
    file, building = written("slime", [talk(step(1, weight=0.0))], tmp_path)
    assert building.refused and not file.read_bytes()


def test_why_every_answer_says_its_mask(tokenizer: Tokenizer) -> None:
    """What says none is trained."""
    assert sum(masked([{"role": "assistant", "content": "masked?"}], tokenizer)[1])
