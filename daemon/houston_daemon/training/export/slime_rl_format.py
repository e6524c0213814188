"""The format of slime's reinforcement learning: a line is one of its samples (`Sample.to_dict`).

slime takes the end of a sample's tokens as its response, with a mask and log-probabilities as long
as that. It makes advantages of rewards by itself, and for groups of one row each; the export
brings functions for two of slime's hooks (`training/loaders/slime_rows.py`) that hand in the rows,
and the advantages as they are.
"""

import math

from houston_daemon.training.credit.policy_gradient_rows import policy_gradient_row
from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import (
    ExportFormat,
    ExportLine,
    RunRow,
    no_remarks,
    row_provenance,
)
from houston_daemon.training.loaders import support_module


def slime_rl_lines(row: RunRow) -> list[ExportLine]:
    """One line a row; none where nothing of it is trained."""
    cut = policy_gradient_row(row.credited)
    if cut is None:
        return []
    trained_advantages = {
        value for value, trained in zip(cut.advantages, cut.mask, strict=True) if trained
    }
    return [
        {
            "group_index": row.group_number,
            "rollout_id": row.rollout_number,
            "prompt": "",
            "response": "",
            "label": None,
            "tokens": cut.prompt + cut.completion,
            "response_length": len(cut.completion),
            "loss_mask": cut.mask,
            "rollout_log_probs": export_format.logprobs_of_trained(cut),
            "reward": row.credit.reward,
            "status": "completed",
            "weight_versions": export_format.trained_policies(row.credited.row),
            "metadata": {
                **row_provenance(row.credited.row),
                "update": row.credit.update,
                "group": row.credit.group,
                "advantages": sorted(trained_advantages),
            },
        }
    ]


def slime_rl_problem(line: ExportLine) -> str:
    """What slime would train otherwise than we mean it."""
    mask, length = line["loss_mask"], line["response_length"]
    if not len(mask) == len(line["rollout_log_probs"]) == length:
        return "its response, mask and log-probabilities have different lengths"
    if not 0 < length < len(line["tokens"]):
        return "it has no prompt, or no response"
    if problem := export_format.credit_problem(mask, line["rollout_log_probs"]):
        return problem
    advantages = line["metadata"]["advantages"]
    if len(advantages) != 1:
        return "its steps have different advantages, and slime gives a sample one"
    if not all(map(math.isfinite, (line["reward"], *advantages))):
        return "a reward or an advantage is no number"
    return ""


SLIME_RL = ExportFormat(
    name="slime-rl",
    description="slime's RL, with --run: its samples with tokens, loss_mask, rollout_log_probs,"
    " reward and group, and the functions for its hooks",
    unit="ids",
    lines=slime_rl_lines,
    line_problem=slime_rl_problem,
    remarks=no_remarks,
    credited=True,
    support_files=support_module("slime_rows.py"),
    warnings=(
        "With DIR on PYTHONPATH: --rollout-function-path slime_rows.generate_rollout"
        " --custom-reward-post-process-path slime_rows.keep_advantages --advantage-estimator grpo."
        " Without the second flag, slime normalises rewards again, over rows instead of rollouts.",
        "Updates have different numbers of rows: --use-dynamic-global-batch-size, or slime drops"
        " the rows that do not fill a batch.",
        '--calculate-per-token-loss weighs rollouts as Houston\'s normalization = "token" does;'
        " without it each row weighs alike, or each rollout in a slime that knows rollout_id.",
        "Made after slime's documented Sample and hooks; not run with slime's own code.",
    ),
    columns=(),
    only_lines="slime's samples hold lists in records, which its reader wants as JSON",
)
