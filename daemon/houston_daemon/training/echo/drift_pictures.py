"""Three pictures of a run with a critic: how useful the critic was, scores before and after
refinement, and where the failures of each phase lie (ECHO, figures 3 to 5).

It draws figures that are given to it; it reads no store and asks no model.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.training.echo.failure_drift import PHASES, vectors_of
from houston_daemon.training.rl.update_figures import CriticFigures
from houston_shared.plotting import import_pyplot

COLOURS = {"early": "#3b7dd8", "intermediate": "#c98a1b", "late": "#c2453b"}
_GREY, _UP, _DOWN = "#8a93a1", "#2f8f5b", "#c2453b"
CONTOUR_SHARES = (0.25, 0.5, 0.8)
"""Of a phase's failures that lie within each line."""
LEAST_FOR_CONTOURS = 8
"""Failures, at unlike places, below which a density says nothing."""
PERPLEXITY = 30.0
_GRID = 80


class RefinedScores(NamedTuple):
    """A refinement and its attempt; scores as shares of the full one."""

    update: int
    before: float
    after: float


def draw_usefulness(figures: Sequence[CriticFigures], title: str, file: Path) -> None:
    """Gain of a critique, scores with and without the critic, and the shares that rose and fell,
    each by update. Raises ImportError without matplotlib, and OSError."""
    pyplot = import_pyplot()
    updates = range(1, len(figures) + 1)
    figure, (gain, score, share) = pyplot.subplots(1, 3, figsize=(10.5, 3.2))
    gain.axhline(0, color=_GREY, linewidth=0.8)
    gain.plot(updates, [each.gain for each in figures], color=COLOURS["early"])
    gain.set_title("mean gain of a critique", fontsize=9)
    score.plot(updates, [each.before_refined for each in figures], color=_GREY, label="attempts")
    score.plot(updates, [each.after for each in figures], color=_UP, label="told a critique")
    score.set_title("score of what was criticised", fontsize=9)
    score.set_ylim(0, 1)
    score.legend(fontsize=8, frameon=False)
    share.plot(updates, [each.improved for each in figures], color=_UP, label="raised the score")
    share.plot(updates, [each.worsened for each in figures], color=_DOWN, label="lowered it")
    share.set_title("share of critiques", fontsize=9)
    share.set_ylim(0, 1)
    share.legend(fontsize=8, frameon=False)
    for axes in (gain, score, share):
        axes.set_xlabel("update")
        axes.spines[["top", "right"]].set_visible(False)
    _save(pyplot, figure, title, file)


def draw_densities(scores: Sequence[RefinedScores], title: str, file: Path) -> None:
    """By third of the run, how often each score before came with each after: a dot's area is its
    share. Above the line a critique helped. Raises ImportError without matplotlib, and OSError."""
    pyplot = import_pyplot()
    updates = sorted({each.update for each in scores})
    figure, panes = pyplot.subplots(1, len(PHASES), figsize=(10.5, 3.7), sharey=True)
    for number, (phase, axes) in enumerate(zip(PHASES, panes, strict=True)):
        part = updates[number * len(updates) // 3 : (number + 1) * len(updates) // 3]
        own = [each for each in scores if each.update in part]
        counts = Counter((round(each.before, 2), round(each.after, 2)) for each in own)
        axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=0.8)
        axes.scatter(
            [before for before, _ in counts],
            [after for _, after in counts],
            s=[2_400 * count / len(own) for count in counts.values()],
            c=[_colour_of(before, after) for before, after in counts],
            alpha=0.75,
        )
        raised = sum(each.after > each.before for each in own) / max(1, len(own))
        axes.set_title(f"{phase}: {len(own)} refinements, {raised:.0%} raised", fontsize=9)
        axes.set(xlabel="score of the attempt", xlim=(-0.1, 1.1), ylim=(-0.1, 1.1))
        axes.spines[["top", "right"]].set_visible(False)
    panes[0].set_ylabel("score of the refinement")
    _save(pyplot, figure, title, file)


def draw_drift(diagnoses: Sequence[Mapping[str, str]], title: str, file: Path) -> None:
    """Every diagnosis as a dot, near those that say alike (t-SNE, van der Maaten and Hinton, 2008),
    with lines around the densest quarter, half and four fifths of each phase.

    Raises ImportError without matplotlib or scikit-learn, and OSError.
    """
    from sklearn.manifold import TSNE

    pyplot = import_pyplot()
    vectors = vectors_of([each["text"] for each in diagnoses])
    perplexity = min(PERPLEXITY, max(2.0, (len(vectors) - 1) / 4))
    places = TSNE(perplexity=perplexity, random_state=0, init="pca").fit_transform(vectors)
    figure, axes = pyplot.subplots(figsize=(6.4, 5.4))
    margin = 0.08 * (places.max(axis=0) - places.min(axis=0))
    corners = (places.min(axis=0) - margin, places.max(axis=0) + margin)
    for phase in PHASES:
        own = places[[number for number, each in enumerate(diagnoses) if each["phase"] == phase]]
        label = f"{phase}: {len(own)}"
        axes.scatter(own[:, 0], own[:, 1], s=9, alpha=0.5, color=COLOURS[phase], label=label)
        _draw_contours(axes, own, corners, COLOURS[phase])
    axes.set(xticks=[], yticks=[])
    axes.legend(fontsize=8, frameon=False, title="failures", title_fontsize=8)
    axes.spines[["top", "right", "left", "bottom"]].set_color(_GREY)
    _save(pyplot, figure, title, file)


def _draw_contours(axes: Any, places: Any, corners: Any, colour: str) -> None:
    """Lines of equal density; none where too few failures lie at unlike places."""
    import numpy
    from scipy.stats import gaussian_kde

    if len(numpy.unique(places.round(1), axis=0)) < LEAST_FOR_CONTOURS:
        return
    density = gaussian_kde(places.T)
    (left, low), (right, high) = corners
    across, up = numpy.meshgrid(
        numpy.linspace(left, right, _GRID), numpy.linspace(low, high, _GRID)
    )
    heights = density(numpy.vstack([across.ravel(), up.ravel()])).reshape(across.shape)
    at_failures = numpy.sort(density(places.T))[::-1]
    levels = sorted({at_failures[int(share * (len(at_failures) - 1))] for share in CONTOUR_SHARES})
    axes.contour(across, up, heights, levels=levels, colors=colour, linewidths=1.1)


def _colour_of(before: float, after: float) -> str:
    return _UP if after > before else _DOWN if after < before else _GREY


def _save(pyplot: Any, figure: Any, title: str, file: Path) -> None:
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=130)
    pyplot.close(figure)
