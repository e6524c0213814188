"""Settings become the engine they describe, or one sentence that says what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from houston_daemon.engines.chat_engine import ChatEngine
from houston_daemon.engines.engine_protocol import EngineUnavailable
from houston_daemon.engines.engine_registry import choose_engine
from houston_daemon.engines.script_engine import ScriptEngine
from houston_daemon.engines.token_engine import TokenEngine
from houston_shared.errors import ConfigurationError

URL = "http://127.0.0.1:1/v1"
KINDS: dict[str, tuple[dict[str, Any], type, bool]] = {
    "embedded": ({"kind": "embedded", "url": URL, "model": ""}, TokenEngine, True),
    "vllm": ({"kind": "vllm", "url": URL, "window": 0}, TokenEngine, True),
    "token": ({"kind": "token", "url": URL, "model": "m", "window": 4096}, TokenEngine, True),
    "chat": ({"kind": "chat", "url": URL, "model": "m"}, ChatEngine, False),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_is_chosen(kind: str) -> None:
    settings, expected, ids = KINDS[kind]
    engine = choose_engine(settings, None, "named")
    assert isinstance(engine, expected)
    assert (engine.name, engine.token_ids) == ("named", ids)
    assert engine.window == (settings.get("window") or None)
    await engine.close()


def test_a_script_wins_over_settings(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"thought": "hello"}\n')
    assert isinstance(choose_engine({"kind": "chat"}, str(tmp_path / "s.jsonl")), ScriptEngine)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown kind": ({"kind": "magic"}, "no engine kind 'magic'"),
    "no url": ({"kind": "token"}, "needs the key 'url'"),
    "no model": ({"kind": "chat", "url": URL}, "needs the key 'model'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_named(case: str) -> None:
    settings, said = WRONG[case]
    with pytest.raises(ConfigurationError, match=said):
        choose_engine(settings)


def test_a_missing_key_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"kind": "token", "url": URL, "api_key_env": "NO_SUCH_VARIABLE_HERE"}
    with pytest.raises(EngineUnavailable, match="export NO_SUCH_VARIABLE_HERE=…"):
        choose_engine(settings)
    monkeypatch.setenv("NO_SUCH_VARIABLE_HERE", "key")
    assert isinstance(choose_engine(settings), TokenEngine)
