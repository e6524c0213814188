"""Three pictures of a run with a critic: how useful the critic was, scores before and after
refinement, and a map of the failures in each phase (ECHO, figures 3 to 5).

It draws figures that it is given; it reads no store and asks no model.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from houston_daemon.training.echo.critic_usefulness import PHASES, RefinedScores
from houston_daemon.training.echo.failure_drift import vectors_of
from houston_daemon.training.rl.update_figures import CriticFigures
from houston_shared.plotting import import_pyplot
from houston_shared.stale_critic import WINDOW

COLOURS = {"early": "#3b7dd8", "intermediate": "#c98a1b", "late": "#c2453b"}
_GREY, _UP, _DOWN = "#8a93a1", "#2f8f5b", "#c2453b"
CONTOUR_SHARES = (0.25, 0.5, 0.8)
"""Of a phase's failures that lie within each line."""
GAIN_RANGE = (-0.25, 0.75)
"""Least and most of the axis of gains, so that pictures of several runs can be compared."""
MAX_LISTED_FAILURES = 12
"""Pairs of scores up to which each one's share is written out."""
MIN_CONTOUR_POINTS = 8
"""Unlike diagnoses of a phase below which a density says nothing."""
MIN_MAP_POINTS = 5
"""Unlike diagnoses of a run below which t-SNE has nothing to place."""
MAX_LEGEND_WORDS = 3
"""Diagnoses of a phase that are written beside their dots, where they have few letters."""
LONGEST_LABEL = 24
LABEL_ROOM = (0.35, 0.06)
"""Of the map's width and height, that a label takes."""
PERPLEXITY = 30.0
_GRID = 80


def draw_usefulness(figures: Sequence[CriticFigures], title: str, file: Path) -> None:
    """Gain of a critique, scores with and without the critic, and the shares that rose and fell:
    thin by update, thick the mean of the last `WINDOW` updates. Raises ImportError without
    matplotlib, and OSError."""
    pyplot = import_pyplot()
    figure, (gain, score, share) = pyplot.subplots(1, 3, figsize=(10.5, 3.2))
    gains = [each.gain for each in figures]
    gain.axhline(0, color=_GREY, linewidth=0.8)
    _draw_curve(gain, gains, COLOURS["early"], "")
    gain.set_ylim(min(GAIN_RANGE[0], *gains), max(GAIN_RANGE[1], *gains))
    gain.set_title("mean gain of a critique", fontsize=9)
    _draw_curve(score, [each.before_refined for each in figures], _GREY, "attempts")
    _draw_curve(score, [each.after for each in figures], _UP, "told a critique")
    score.set_title("score of what was criticised", fontsize=9)
    _draw_curve(share, [each.improved for each in figures], _UP, "raised the score")
    _draw_curve(share, [each.worsened for each in figures], _DOWN, "lowered it")
    share.set_title("share of critiques", fontsize=9)
    for axes in (score, share):
        axes.set_ylim(0, 1)
        axes.legend(fontsize=8, frameon=False)
    for axes in (gain, score, share):
        axes.set_xlabel(f"update (thick: mean of {WINDOW})")
        axes.spines[["top", "right"]].set_visible(False)
    _save(pyplot, figure, title, file)


def _draw_curve(axes: Any, values: Sequence[float], colour: str, label: str) -> None:
    updates = range(1, len(values) + 1)
    axes.plot(updates, values, color=colour, linewidth=0.7, alpha=0.45)
    means = [fmean(values[max(0, end - WINDOW) : end]) for end in updates]
    axes.plot(updates, means, color=colour, linewidth=2.0, label=label)


def draw_densities(scores: Mapping[str, Sequence[RefinedScores]], title: str, file: Path) -> None:
    """By phase of the run, how often each score before came with each after: a dot's area is its
    share. Above the line a critique helped. Raises ImportError without matplotlib, and OSError."""
    pyplot = import_pyplot()
    figure, panes = pyplot.subplots(1, len(PHASES), figsize=(10.5, 3.7), sharey=True)
    for phase, axes in zip(PHASES, panes, strict=True):
        own = scores[phase]
        _draw_density(axes, own)
        raised = sum(each.after > each.before for each in own) / max(1, len(own))
        lowered = sum(each.after < each.before for each in own) / max(1, len(own))
        pane_title = f"{phase}: {raised:.0%} of {len(own)} higher, {lowered:.0%} lower"
        axes.set_title(pane_title, fontsize=9)
        axes.set(xlabel="score of the attempt", xlim=(-0.15, 1.15), ylim=(-0.15, 1.15))
        axes.spines[["top", "right"]].set_visible(False)
    panes[0].set_ylabel("score of the refinement")
    _save(pyplot, figure, title, file)


def _draw_density(axes: Any, scores: Sequence[RefinedScores]) -> None:
    """One third; shares are written out where few pairs of scores are possible."""
    counts = Counter((round(each.before, 2), round(each.after, 2)) for each in scores)
    areas = [2_400 * count / len(scores) for count in counts.values()]
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=0.8)
    axes.scatter(
        [before for before, _ in counts],
        [after for _, after in counts],
        s=areas,
        c=[_colour_of(before, after) for before, after in counts],
        alpha=0.75,
    )
    if len(counts) > MAX_LISTED_FAILURES:
        return
    for (place, count), area in zip(counts.items(), areas, strict=True):
        offset = (area**0.5 / 2 + 3, -3)
        share = f"{count / len(scores):.0%}"
        axes.annotate(share, place, offset, textcoords="offset points", fontsize=8)


def draw_drift(diagnoses: Sequence[Mapping[str, str]], title: str, file: Path) -> None:
    """One pane for each phase, all with the same map of diagnoses: similar texts are close together
    (t-SNE, van der Maaten and Hinton, 2008). A dot's area shows how often the phase has the text;
    texts of other phases only are grey. Lines enclose the densest quarter, half and four fifths.

    diagnoses: at least one, with `phase` and `text`. Raises ImportError without matplotlib or
    scikit-learn, and OSError.
    """
    texts = sorted({each["text"] for each in diagnoses})
    places = _map_of(texts)
    pyplot = import_pyplot()
    figure, panes = pyplot.subplots(1, len(PHASES), figsize=(10.5, 3.9), sharex=True, sharey=True)
    for phase, axes in zip(PHASES, panes, strict=True):
        counts = Counter(each["text"] for each in diagnoses if each["phase"] == phase)
        own = [texts.index(text) for text in counts]
        axes.scatter(places[:, 0], places[:, 1], s=4, color=_GREY, alpha=0.4, linewidths=0)
        axes.scatter(
            places[own, 0],
            places[own, 1],
            s=[10 * count for count in counts.values()],
            color=COLOURS[phase],
            alpha=0.6,
            linewidths=0,
        )
        _draw_contours(axes, places, own, list(counts.values()), COLOURS[phase])
        _write_most_said(axes, places, texts, counts)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{phase}: {counts.total()} failures", fontsize=9)
        axes.spines[["top", "right", "left", "bottom"]].set_color(_GREY)
    _save(pyplot, figure, title, file)


def _write_most_said(axes: Any, places: Any, texts: Sequence[str], counts: Counter[str]) -> None:
    """Beside their dots, towards the middle of the map so that they stay inside; none over
    another."""
    low, high = places.min(axis=0), places.max(axis=0)
    written: list[Any] = []
    for text, count in counts.most_common(MAX_LEGEND_WORDS):
        place = places[texts.index(text)]
        over = any((abs(place - other) < (high - low) * LABEL_ROOM).all() for other in written)
        if over or len(text) > LONGEST_LABEL:
            continue
        written.append(place)
        right = place[0] > (low[0] + high[0]) / 2
        axes.annotate(
            f"{text} ×{count}",
            place,
            (-4 if right else 4, 4),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=7,
            parse_math=False,  # a model's words may hold any signs
        )


def _map_of(texts: Sequence[str]) -> Any:
    """A place for each text; beside each other where they are too few for t-SNE."""
    import numpy
    from sklearn.manifold import TSNE

    if len(texts) < MIN_MAP_POINTS:
        return numpy.array([(float(number), 0.0) for number in range(len(texts))])
    perplexity = min(PERPLEXITY, (len(texts) - 1) / 4)
    vectors = vectors_of(texts)
    return TSNE(perplexity=perplexity, random_state=0, init="pca").fit_transform(vectors)


def _draw_contours(
    axes: Any, places: Any, own: Sequence[int], counts: Sequence[int], colour: str
) -> None:
    """Lines of equal density of a phase; none where it says too few things."""
    import numpy
    from scipy.stats import gaussian_kde

    if len(own) < MIN_CONTOUR_POINTS:
        return
    density = gaussian_kde(places[own].T, weights=counts)
    margin = 0.12 * (places.max(axis=0) - places.min(axis=0))
    (left, low), (right, high) = places.min(axis=0) - margin, places.max(axis=0) + margin
    across, up = numpy.meshgrid(
        numpy.linspace(left, right, _GRID), numpy.linspace(low, high, _GRID)
    )
    heights = density(numpy.vstack([across.ravel(), up.ravel()])).reshape(across.shape)
    at_failures = numpy.sort(numpy.repeat(density(places[own].T), counts))[::-1]
    levels = sorted({at_failures[int(share * (len(at_failures) - 1))] for share in CONTOUR_SHARES})
    axes.contour(across, up, heights, levels=levels, colors=colour, linewidths=1.1)


def _colour_of(before: float, after: float) -> str:
    return _UP if after > before else _DOWN if after < before else _GREY


def _save(pyplot: Any, figure: Any, title: str, file: Path) -> None:
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=130)
    pyplot.close(figure)
