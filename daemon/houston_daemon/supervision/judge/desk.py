"""An engine at which a judge can be asked: its client, its tokenizer, its dialect, its window."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from houston_daemon.dialects.choose import choose_dialect
from houston_daemon.engines.choose import choose_engine
from houston_daemon.engines.model import model_path
from houston_daemon.engines.protocol import Engine
from houston_daemon.engines.token import TokenEngine
from houston_daemon.rollout.begin import tokenizer_file
from houston_daemon.rollout.tokens import Characters, Tokens
from houston_daemon.supervision.judge.asking import Desk

UNKNOWN_WINDOW = 32_768
"""Taken for a chat endpoint whose window nobody says."""

NOWHERE = "http://127.0.0.1:9"
"""Stands for the address of a child that does not run."""


@contextlib.asynccontextmanager
async def at(
    name: str, settings: Mapping[str, Any], policy: str = "", window: int = 0, ask: bool = True
) -> AsyncIterator[Desk]:
    """A desk at the engine that `settings` describe, once it answers.

    window: most tokens that are used of the engine's own; 0 for all. ask: without, nobody is asked
    there and the engine may be down; sizes are what the configuration says. Raises
    EngineUnavailable and ConfigurationError.
    """
    url = settings.get("url") or NOWHERE
    engine = choose_engine({**settings, "url": url}, None, name)
    try:
        if ask:
            await engine.ready()
        yield made(name, engine, settings, policy, window)
    finally:
        await engine.close()


def made(
    name: str, engine: Engine, settings: Mapping[str, Any], policy: str = "", window: int = 0
) -> Desk:
    """The desk at an engine. Raises ConfigurationError where its tokenizer is not known."""
    own = engine.window or int(settings.get("window") or 0)
    own = own or _configured(settings) or UNKNOWN_WINDOW
    exact = engine.token_ids
    return Desk(
        name=name,
        engine=engine,
        model=_model(engine, settings),
        window=min(own, window) if window else own,
        tokens=Tokens(tokenizer_file(settings)) if exact else Characters(),
        dialect=choose_dialect(str(settings.get("dialect") or "chatml-json")) if exact else None,
        policy=policy,
        reasoning=bool(settings.get("reasoning")) and not exact,
    )


def _configured(settings: Mapping[str, Any]) -> int:
    """The window that the model's own folder says; 0 where there is none."""
    try:
        folder = Path(tokenizer_file(settings)).parent
        found = json.loads((folder / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError):
        return 0
    return found if isinstance(found, int) else 0


def _model(engine: Engine, settings: Mapping[str, Any]) -> str:
    """The model for the cache: as configured, a child's folder, or as the server names it."""
    if configured := settings.get("model"):
        return str(configured)
    if settings.get("kind") in ("embedded", "vllm") and not settings.get("command"):
        return str(model_path())
    return engine.model if isinstance(engine, TokenEngine) else ""
