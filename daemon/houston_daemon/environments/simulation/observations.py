"""What a simulated world showed, typed, and how it reads. Scores are for people and training."""

from typing import ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Acted(Observation, frozen=True, kw_only=True):
    """A turn that changed no score."""

    kind: ClassVar[str] = "act"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    overall_score: float
    """0 to 100, of the world as it is now."""
    reward: float
    """By how much the turn changed it."""
    outcome: str
    """`won` or `lost` when the world is over."""
    turns: int
    finished: bool
    """Whether it ends the rollout."""
    text: str


class Scored(Acted, frozen=True, kw_only=True):
    """A turn that changed the score, or ended the world: an evaluation of the rollout."""

    kind: ClassVar[str] = "eval"
    state: str = "scored"
    counted: bool
    """Whether it is the rollout's last."""
    seconds: float = 0.0


class Looked(Observation, frozen=True, kw_only=True):
    """A look that took no turn."""

    kind: ClassVar[str] = "look"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    text: str


class Possible(Observation, frozen=True, kw_only=True):
    """Commands that the world understands now."""

    kind: ClassVar[str] = "actions"
    bulk: ClassVar[tuple[str, ...]] = ("actions",)
    containing: str
    total: int
    actions: tuple[str, ...]


@render.register
def _(one: Acted) -> Text:
    end = {"won": "[The task is done.]", "lost": "[The task has failed and is over.]", "": ""}
    return Text(end[one.outcome], one.text)


@render.register
def _(one: Looked) -> Text:
    return Text("", one.text)


@render.register
def _(one: Possible) -> Text:
    of = f" with {one.containing!r}" if one.containing else ""
    if not one.actions:
        return Text(f"No command{of} is understood here.")
    more = one.total - len(one.actions)
    cut = f", the first {len(one.actions)}; narrow them with `containing`" if more else ""
    return Text(f"{one.total} commands{of}{cut}:", "\n".join(one.actions), "use `containing`")
