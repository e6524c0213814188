"""The doctor tells an operator what agents would otherwise be told."""

from pathlib import Path

import pytest

from houston_daemon.service.configuration_checks import check_search_provider
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ToolSettings, WebSearchSettings
from houston_shared.home import Home

CASES = [
    ({}, "ok", "no provider"),
    ({"provider": "altavista"}, "fail", "no provider 'altavista'"),
    ({"provider": "searxng"}, "fail", "no address"),
    ({"provider": "searxng", "url": "http://127.0.0.1:1"}, "ok", "searxng"),
    ({"provider": "serper"}, "fail", "no key"),
    ({"provider": "serper", "api_key_env": "UNSET_KEY"}, "warn", "UNSET_KEY is not set"),
    ({"provider": "tavily", "api_key_env": "SET_KEY"}, "ok", "the key in SET_KEY"),
    ({"provider": "tavily", "api_key_env": "FILE_KEY"}, "fail", "what FILE_KEY holds is no key"),
    ({"provider": "corpus"}, "fail", "no corpus is named"),
    ({"corpus": "/nowhere/at/all"}, "fail", "there is no /nowhere/at/all"),
    ({"corpus": "/usr/share"}, "ok", "the corpus /usr/share"),
]


@pytest.mark.parametrize(("settings", "state", "words"), CASES)
def test_the_search_provider(
    settings: dict[str, str],
    state: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FILE_KEY", "sk-0123456789\n")
    monkeypatch.setenv("SET_KEY", "sk-0123456789")
    config = Configuration(tools=ToolSettings(search=WebSearchSettings(**settings)))  # type: ignore[arg-type]
    (finding,) = check_search_provider(LoadedConfiguration(config, Home(tmp_path), "houston.toml"))
    assert (finding.state, words in finding.text) == (state, True), finding
    assert bool(finding.next) == (state != "ok")
    assert "sk-0123456789" not in repr(finding)
