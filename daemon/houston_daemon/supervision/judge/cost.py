"""What judging cost: requests, kept answers, tokens, seconds, and a price where one is known.

Prices are the operator's own words in `[judge]`; nothing here knows a provider.
"""

from dataclasses import dataclass
from typing import Any

from houston_shared.config_judge import Judge
from houston_shared.plural import many

MILLION = 1_000_000


@dataclass(slots=True)
class Cost:
    """Sums over windows; added to from one event loop."""

    windows: int = 0
    cached: int = 0
    """Windows whose answer was kept from before."""
    requests: int = 0
    """Samples that were asked for, repetitions included."""
    unusable: int = 0
    """Answers that could not be used as they were."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    about: bool = False
    """Whether tokens are reckoned from bytes: a chat endpoint does not say them."""
    seconds: float = 0.0
    """Of all requests together; several run at once."""
    unkept: str = ""
    """Why answers could not be kept for the next time; empty when they were."""

    def add(self, other: "Cost") -> None:
        """Add another's sums."""
        self.windows += other.windows
        self.cached += other.cached
        self.requests += other.requests
        self.unusable += other.unusable
        self.prompt_tokens += other.prompt_tokens
        self.sampled_tokens += other.sampled_tokens
        self.about |= other.about
        self.seconds += other.seconds
        self.unkept = self.unkept or other.unkept

    def price(self, settings: Judge) -> float | None:
        """What the requests cost; None where no price is named."""
        if not (settings.price_prompt or settings.price_sampled):
            return None
        prompt = self.prompt_tokens * settings.price_prompt
        return (prompt + self.sampled_tokens * settings.price_sampled) / MILLION

    def as_json(self, settings: Judge) -> dict[str, Any]:
        """The same as an object, for `--json`."""
        return {
            "windows": self.windows,
            "cached": self.cached,
            "requests": self.requests,
            "unusable": self.unusable,
            "prompt_tokens": self.prompt_tokens,
            "sampled_tokens": self.sampled_tokens,
            "tokens_reckoned": self.about,
            "seconds": round(self.seconds, 3),
            "price": self.price(settings),
            "currency": settings.currency if self.price(settings) is not None else None,
        }

    def words(self, settings: Judge) -> str:
        """The same in one line."""
        about = "about " if self.about else ""
        said = (
            f"{many(self.windows, 'window')}, {self.cached} of them from the cache; "
            f"{many(self.requests, 'request')}, {many(self.unusable, 'answer')} of no use, with "
            f"{about}{self.prompt_tokens:,} prompt and "
            f"{self.sampled_tokens:,} sampled tokens in {self.seconds:.1f} s"
        )
        price = self.price(settings)
        if price is not None:
            said += f"; {price:.4f} {settings.currency}"
        return f"{said}; answers were not kept: {self.unkept}" if self.unkept else said
