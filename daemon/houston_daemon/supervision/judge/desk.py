"""An engine at which a judge can be asked: its client, its tokenizer, its dialect, its window."""

import asyncio
import contextlib
import json
import os
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
from houston_daemon.supervision.judge.late import LateEngine
from houston_daemon.supervision.judge.serving import Place
from houston_shared.errors import ConfigurationError

UNKNOWN_WINDOW = 32_768
"""Taken for a chat endpoint whose window nobody says."""


@contextlib.asynccontextmanager
async def at(
    place: Place, policy: str = "", window: int = 0, ask: bool = True
) -> AsyncIterator[Desk]:
    """A desk at an engine: once it answers, or with a child that is started when it is asked.

    window: most tokens that are used of the engine's own; 0 for all. ask: without, nobody is asked
    there and the engine may be down; sizes are what the configuration says. Raises
    EngineUnavailable and ConfigurationError.
    """
    engine: Engine | None = None
    try:
        engine = await asyncio.to_thread(_engine, place, ask)
        if ask:
            await engine.ready()
        yield made(place.name, engine, place.settings, policy, window)
    finally:
        place.left.set()
        if engine is not None:
            await engine.close()


def _engine(place: Place, ask: bool) -> Engine:
    key = str(place.settings.get("api_key_env") or "")
    if key and key not in os.environ:
        raise ConfigurationError(
            f"The variable {key}, which holds the key of engine {place.name!r}, is not set here.",
            "Nothing was judged.",
            f"export {key}=…",
        )
    if not place.child:
        return choose_engine(place.settings, None, place.name)
    if ask and place.running():
        return _client(place)
    return LateEngine(place.name, lambda: _client(place))


def _client(place: Place) -> Engine:
    return choose_engine({**place.settings, "url": place.url()}, None, place.name)


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
        tokens=_tokens(settings) if exact else Characters(),
        dialect=choose_dialect(str(settings.get("dialect") or "chatml-json")) if exact else None,
        policy=policy,
        reasoning=bool(settings.get("reasoning")) and not exact,
    )


def _tokens(settings: Mapping[str, Any]) -> Tokens:
    try:
        return Tokens(tokenizer_file(settings))
    except ConfigurationError as problem:
        raise ConfigurationError(problem.cause, "Nothing was judged.", problem.next) from None


def _configured(settings: Mapping[str, Any]) -> int:
    """The window that the model's own folder says; 0 where there is none."""
    try:
        folder = Path(tokenizer_file(settings)).parent
        found = json.loads((folder / "config.json").read_text()).get("max_position_embeddings")
    except (OSError, ValueError, ConfigurationError):
        return 0
    return found if isinstance(found, int) else 0


def _model(engine: Engine, settings: Mapping[str, Any]) -> str:
    """The model for the cache: as configured, a child's folder, or as the server names it."""
    if configured := settings.get("model"):
        return str(configured)
    if settings.get("kind") in ("embedded", "vllm") and not settings.get("command"):
        return str(model_path())
    return engine.model if isinstance(engine, TokenEngine) else ""
