"""The formats of verl: token ids with the mask of what is trained, for SFT and for RL.

verl's stock SFT dataset takes messages only: it renders them anew and trains every answer. Its
hook `data.custom_cls` takes a dataset class of one's own; the export brings one
(`training/loaders/verl_rows.py`).
"""

import math

from houston_daemon.training.credit.policy_gradient_rows import policy_gradient_row
from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import (
    COUNT_COLUMNS,
    PROVENANCE_COLUMNS,
    ExportColumn,
    ExportFormat,
    ExportLine,
    RunRow,
    no_remarks,
    row_provenance,
)
from houston_daemon.training.loaders import support_module
from houston_daemon.training.rows.training_row import IGNORED_LABEL, TokenRow


def verl_sft_lines(row: TokenRow) -> list[ExportLine]:
    """One line a row; none where nothing of it is trained."""
    if not row.trained:
        return []
    return [
        {
            "input_ids": row.token_ids.tolist(),
            "loss_mask": [int(weight > 0) for weight in row.weights()],
            **row_provenance(row),
            "tokens": len(row.token_ids),
            "trained": row.trained,
        }
    ]


def verl_sft_problem(line: ExportLine) -> str:
    """What verl would train otherwise than we mean it."""
    ids, mask = line["input_ids"], line["loss_mask"]
    if mask.count(0) + mask.count(1) != len(mask):
        return "a mask is neither 0 nor 1"
    pairs = zip(ids, mask, strict=False)
    labels = [id if trained else IGNORED_LABEL for id, trained in pairs]
    if problem := export_format.labels_problem(ids, labels[: len(mask)]):
        return problem
    if len(mask) != len(ids):
        return "its ids and its mask have different lengths"
    if line["tokens"] != len(ids) or line["trained"] != mask.count(1):
        return "its counts are not those of its tokens"
    return ""


VERL_SFT = ExportFormat(
    name="verl-sft",
    description="verl's SFT trainer: token ids with a loss mask, and the dataset class for"
    " data.custom_cls",
    unit="ids",
    lines=verl_sft_lines,
    line_problem=verl_sft_problem,
    remarks=no_remarks,
    support_files=support_module("verl_rows.py"),
    warnings=(
        "Set data.custom_cls.path=DIR/verl_rows.py and data.custom_cls.name=TokenRows: verl's own"
        " dataset wants messages, renders them anew and trains every answer.",
        "data.max_length is 1024 unless it is set; a longer row is refused: set it to the longest.",
        "verl averages over the trained tokens of a batch, however a rollout was split.",
    ),
    columns=(
        ExportColumn("input_ids", "ids"),
        ExportColumn("loss_mask", "ids"),
        *PROVENANCE_COLUMNS,
        *COUNT_COLUMNS,
    ),
)


def verl_rl_lines(row: RunRow) -> list[ExportLine]:
    """One line a row; none where nothing of it is trained."""
    cut = policy_gradient_row(row.credited)
    if cut is None:
        return []
    start, end = len(cut.prompt), cut.length
    return [
        {
            "prompts": cut.prompt,
            "responses": cut.completion,
            "response_mask": cut.mask,
            "rollout_log_probs": export_format.logprobs_of_trained(cut),
            "advantages": [a * m for a, m in zip(cut.advantages, cut.mask, strict=True)],
            "returns": [
                value * trained
                for value, trained in zip(
                    row.credited.returns()[start:end].tolist(), cut.mask, strict=True
                )
            ],
            "reward": row.credit.reward,
            "uid": row.credit.group,
            "update": row.credit.update,
            "policies": ", ".join(export_format.trained_policies(row.credited.row)),
            **row_provenance(row.credited.row),
            "tokens": cut.length,
            "trained": cut.trained,
        }
    ]


_BY_TOKEN = ("response_mask", "rollout_log_probs", "advantages", "returns")


def verl_rl_problem(line: ExportLine) -> str:
    """What verl would train otherwise than we mean it."""
    length, mask = len(line["responses"]), line["response_mask"]
    if any(len(line[name]) != length for name in _BY_TOKEN):
        return f"its responses and one of {', '.join(_BY_TOKEN)} have different lengths"
    if not line["prompts"]:
        return "it has no prompt: verl takes the first log-probability from the prompt's last token"
    if problem := export_format.credit_problem(mask, line["rollout_log_probs"]):
        return problem
    numbers = (*line["advantages"], *line["returns"], line["reward"])
    if not all(map(math.isfinite, numbers)):
        return "a reward or an advantage is no number"
    if line["tokens"] != len(line["prompts"]) + length or line["trained"] != mask.count(1):
        return "its counts are not those of its tokens"
    return ""


VERL_RL = ExportFormat(
    name="verl-rl",
    description="verl's PPO and GRPO, with --run: ids, masks, log-probabilities, advantages and"
    " groups, and a reader that makes a DataProto of each update",
    unit="ids",
    lines=verl_rl_lines,
    line_problem=verl_rl_problem,
    remarks=no_remarks,
    credited=True,
    support_files=support_module("verl_rows.py"),
    warnings=(
        "verl_rows.read_updates(DIR/data.jsonl, pad) gives update and DataProto, for update_actor"
        " of an actor. verl's stock main_ppo samples for itself and reads no rows.",
        "Advantages are those of whole groups. verl's compute_advantage would make them anew, row"
        " by row: a rollout of several rows would count several times in its group.",
        'loss_agg_mode=token-mean weighs rollouts as Houston\'s normalization = "token" does; the'
        " seq-mean modes weigh each row alike, however a rollout was split.",
        "rollout_log_probs are the sampling policy's at temperature 1; 0.0 where nothing is"
        " trained.",
    ),
    columns=(
        ExportColumn("prompts", "ids"),
        ExportColumn("responses", "ids"),
        ExportColumn("response_mask", "ids"),
        ExportColumn("rollout_log_probs", "weights"),
        ExportColumn("advantages", "weights"),
        ExportColumn("returns", "weights"),
        ExportColumn("reward", "real"),
        ExportColumn("uid", "text"),
        ExportColumn("update", "number"),
        ExportColumn("policies", "text"),
        *PROVENANCE_COLUMNS,
        *COUNT_COLUMNS,
    ),
)
