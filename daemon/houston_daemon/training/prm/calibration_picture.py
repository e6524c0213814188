"""Draws how well a model is calibrated: for each tenth of the scale, the mean score it gives and
the score it should give.
"""

from pathlib import Path

from houston_daemon.training.prm.prm_figures import AgreementFigures
from houston_shared.plotting import import_pyplot


def draw_calibration(figures: AgreementFigures, title: str, file: Path) -> None:
    """Write the picture; a dot lies on the line where scores are what decisions are worth, and is
    as large as many decisions have such scores. Raises ImportError without matplotlib, and OSError.
    """
    pyplot = import_pyplot()
    filled = [each for each in figures.calibration if each.count]
    most = max((each.count for each in filled), default=1)
    figure, axes = pyplot.subplots(figsize=(4.2, 4.2))
    axes.plot([0, 1], [0, 1], color="#b0b7c3", linestyle="--")
    axes.scatter(
        [each.score for each in filled],
        [each.label for each in filled],
        s=[30 + 270 * each.count / most for each in filled],
        color="#2f6db5",
        alpha=0.8,
    )
    for each in filled:
        place = (each.score, each.label)
        axes.annotate(str(each.count), place, fontsize=7, ha="center", va="center")
    axes.set(xlabel="score", ylabel="mean label", xlim=(-0.05, 1.05), ylim=(-0.05, 1.05))
    order = figures.rank_correlation
    correlation = "none" if order is None else f"{order:.2f}"
    axes.set_title(
        f"{title}: {figures.labels} labels, rank correlation {correlation}\n"
        f"off by {figures.mae:.3f}, the mean alone by {figures.mean_predictor_mae:.3f}",
        fontsize=8,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
