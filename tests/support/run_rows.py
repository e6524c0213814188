"""Synthetic rows with credit, as an export of a run has them."""

from houston_daemon.training.credit.credited_rows import RolloutCredit, credit_rollout
from houston_daemon.training.export.export_format import RunRow
from houston_daemon.training.rows.training_row import TokenRow


def credit(rollout: str = "r-1", *, advantage: float = 0.75, update: int = 2) -> RolloutCredit:
    return RolloutCredit(
        rollout=rollout,
        reward=1.0,
        advantage=advantage,
        masked="",
        update=update,
        group=f"{update}.0-train-7",
    )


def run_row(row: TokenRow, given: RolloutCredit | None = None) -> RunRow:
    given = given or credit(row.rollout)
    (credited,) = credit_rollout([row], given)
    return RunRow(credited, given, rollout_number=3, group_number=1)
