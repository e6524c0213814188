"""matplotlib as pictures here need it: without a screen, and the same figures give the same file.

It is imported when something is drawn: it takes a second, and only the extra `train` brings it.
"""

from typing import Any


def import_pyplot() -> Any:
    """The module `matplotlib.pyplot`. Raises ImportError where it is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "houston"
    from matplotlib import pyplot

    return pyplot
