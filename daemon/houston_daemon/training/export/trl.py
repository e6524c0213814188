"""TRL, exact: ids and labels as `SFTTrainer` takes them, with our weight of every token beside.

Since TRL 1.7 a dataset with `input_ids` and `labels` is trained as it is; other columns are
ignored by TRL and read by `houston train sft`. Nothing is rendered or tokenised again.
"""

from itertools import compress, repeat
from operator import eq

from houston_daemon.training.export.format import Column, Format, Line, nothing, provenance
from houston_daemon.training.rows.row import UNTRAINED, Row


def lines(row: Row) -> list[Line]:
    """One line a row; none where nothing of it is trained: TRL would drop it without a word."""
    if not row.trained:
        return []
    return [
        {
            "input_ids": row.token_ids.tolist(),
            "labels": row.labels().tolist(),
            "weights": row.weights().tolist(),
            **provenance(row),
            "tokens": len(row.token_ids),
            "trained": row.trained,
        }
    ]


def wrong(line: Line) -> str:
    """What plain `SFTTrainer` would train otherwise than we mean it."""
    ids, labels, weights = line["input_ids"], line["labels"], line["weights"]
    if not len(ids) == len(labels) == len(weights):
        return "ids, labels and weights have different lengths"
    if not ids or min(ids) < 0:
        return "it has no ids, or a negative one"
    untrained = labels.count(UNTRAINED)
    if sum(map(eq, ids, labels)) + untrained != len(ids):
        return "a label is neither its id nor -100"
    if untrained == len(ids):
        return "nothing in it is trained; TRL drops such a row"
    if labels[0] != UNTRAINED:
        return "its first token is to be trained, which nothing predicts"
    if weights.count(0.0) + weights.count(1.0) != len(ids):
        return "a weight is neither 0 nor 1; TRL would train it as 1"
    untrained_but_weighed = any(compress(map(eq, labels, repeat(UNTRAINED)), weights))
    if weights.count(0.0) != untrained or untrained_but_weighed:
        return "weights and labels do not agree"
    if line["tokens"] != len(ids) or line["trained"] != len(ids) - untrained:
        return "its counts are not those of its tokens"
    return ""


TRL = Format(
    name="trl",
    says="TRL's SFTTrainer and houston train sft: token ids with labels, trained as they are",
    of="ids",
    lines=lines,
    wrong=wrong,
    remarks=nothing,
    traps=(
        "SFTConfig.max_length is 1024 unless it is set, and cuts the end of longer rows without a"
        " word: set it to the longest row, or to None.",
        "packing_strategy='bfd' cuts rows longer than max_length, too; without attention that"
        " knows where rows end, packed rows see each other.",
        "A mean over tokens weighs rows by their trained tokens, however a rollout was split.",
    ),
    columns=(
        Column("input_ids", "ids"),
        Column("labels", "ids"),
        Column("weights", "weights"),
        Column("row", "text"),
        Column("rollout", "text"),
        Column("task", "text"),
        Column("kind", "text"),
        Column("provenance", "text"),
        Column("tokens", "number"),
        Column("trained", "number"),
    ),
    card=True,
)
