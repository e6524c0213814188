"""A straight line through points, and how far the worst point lies from it."""

from typing import Any


def fit(points: list[tuple[int, int]]) -> dict[str, Any]:
    """Least squares over (steps, bytes): MB of 1,000 steps, and the largest residual.

    `worst_residual` is a part of the growth over all points: 0.01 is one percent of it.
    """
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    worst = max(abs(y - (mean_y + slope * (x - mean_x))) for x, y in points)
    grown = slope * (points[-1][0] - points[0][0])
    return {
        "steps": points[-1][0],
        "mb_per_1000_steps": round(1000 * slope / 1e6, 2),
        "worst_residual": round(worst / grown, 4),
        "mb": [[x, round(y / 1e6, 2)] for x, y in points],
    }
