"""The judge's defaults, as `houston.toml` has them: `[judge]`."""

from typing import Annotated

import msgspec

from houston_shared.toml_file import Settings

Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Judge(Settings, frozen=True):
    """How `houston judge` asks a model; its flags win."""

    engine: str = ""
    """Engine that judges; empty for `default_engine`. Of any kind but files that are played."""
    template: str = ""
    """File with the judge's words, from the folder of this file; empty for the packaged ones, which
    `houston judge --print-template` writes out to be edited."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 4
    """Windows that are asked about at the same time."""
    window: Annotated[int, msgspec.Meta(ge=0, le=10**7)] = 0
    """Most tokens of prompt and answer together; 0 for the engine's own window."""
    tries: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    """How often a window is asked about while the answer cannot be used; then what was not decided
    stays undecided."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    """0 takes the likeliest token, so that the same window is judged alike."""
    price_prompt: Price = 0.0
    """Price of a million prompt tokens, for the cost that is shown; 0 shows none."""
    price_sampled: Price = 0.0
    """Price of a million sampled tokens."""
    currency: str = "USD"
    """What the prices are in."""
