"""Files that people write: what is wrong is named with file, key and what is allowed."""

from pathlib import Path

import pytest

from houston_shared.config import load_configuration
from houston_shared.config_reload import WatchedPaths, find_place
from houston_shared.errors import ConfigurationError
from houston_shared.home import IPC_PATH_LIMIT, Home
from houston_shared.task import load_task

WRONG_CONFIGURATIONS = {
    "a wait without an end": ("[daemon]\ndrain_seconds = inf\n", ["drain_seconds", "86400"]),
    "an unknown key": ("[daemon]\nmax_rolouts = 1", ["daemon.max_rolouts", "max_rollouts"]),
    "an unknown section": ("[deamon]\n", ["deamon", "daemon"]),
    "a wrong type": ('[daemon]\nmax_rollouts = "many"', ["daemon.max_rollouts", "'many'"]),
    "a value below its bound": ("[daemon]\nmax_rollouts = 0", ["daemon.max_rollouts", "1"]),
    "an unknown kind": (
        '[engines.near]\nkind = "chat"\n[engines.far]\nkind = "chatt"',
        ["`engines.far.kind` is 'chatt'; allowed: embedded, vllm, token, chat, script, recorded."],
    ),
    "a missing key": ("[engines.x]\nport = 1", ["lacks the key `engines.x.kind`"]),
    "an unknown key of an engine": (
        '[engines.x]\nkind = "chat"\nurll = "u"',
        ["unknown key `engines.x.urll`", "window"],
    ),
    "a wrong type of an engine": (
        '[engines.x]\nkind = "chat"\nport = "80"',
        ["`engines.x.port`", "int", "got '80'"],
    ),
    "a wrong variable of an engine": (
        '[engines.x]\nkind = "vllm"\nenvironment = { A = "1", B = 2 }',
        ["`engines.x.environment.B`", "got 2"],
    ),
    "a wrong word in a list": (
        '[engines.x]\nkind = "vllm"\ncommand = ["vllm", 3]',
        ["`engines.x.command[1]`"],
    ),
    "an unknown theme": (
        '[console]\ntheme = "dark"',
        ["`console.theme` is 'dark'; allowed: houston-dark, houston-light, ", "nord"],
    ),
    "no name of a host": (
        '[hosts."a.b"]\nssh = "x"\n[hosts.c]\nssh = "y"',
        ["`hosts` cannot have a key 'a.b'"],
    ),
    "an unknown key of a host": ('[hosts.c]\nssk = "x"', ["unknown key `hosts.c.ssk`"]),
    "no URL of a store": ('[artifacts]\nurl = "bucket/x"', ["`artifacts.url`"]),
    "no TOML": ("[daemon", ["houston.toml"]),
}


@pytest.mark.parametrize("name", WRONG_CONFIGURATIONS)
def test_a_wrong_configuration_is_named(name: str, tmp_path: Path) -> None:
    text, names = WRONG_CONFIGURATIONS[name]
    (tmp_path / "houston.toml").write_text(text)
    with pytest.raises(ConfigurationError) as problem:
        load_configuration(home=str(tmp_path), environment={})
    assert str(tmp_path / "houston.toml") in problem.value.cause
    for part in names:
        assert part in problem.value.cause


def test_a_wrong_name_shows_nothing_of_what_stands_under_it(tmp_path: Path) -> None:
    """The whole file was repeated, keys of engines included."""
    (tmp_path / "houston.toml").write_text(
        '[hosts.A]\nssh = "secret-1"\n[engines.x]\nkind = { secret-2 = 1 }\n'
    )
    with pytest.raises(ConfigurationError) as problem:
        load_configuration(home=str(tmp_path), environment={})
    assert "secret" not in problem.value.cause


def test_a_login_in_the_url_of_a_store_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "houston.toml").write_text('[artifacts]\nurl = "s3://key:secret-3@bucket/x"\n')
    with pytest.raises(ConfigurationError, match=r"artifacts\.url") as problem:
        load_configuration(home=str(tmp_path), environment={})
    assert "secret-3" not in str(problem.value)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "houston.toml").write_text("[daemon]\nmax_rollouts = 3\n")
    variables = {"HOUSTON_HOME": str(tmp_path), "HOUSTON__DAEMON__MAX_ROLLOUTS": "7"}
    assert load_configuration(environment=variables).config.daemon.max_rollouts == 7
    assert (
        load_configuration(environment={"HOUSTON_HOME": str(tmp_path)}).config.daemon.max_rollouts
        == 3
    )
    with pytest.raises(ConfigurationError, match="HOUSTON__"):
        load_configuration(environment={**variables, "HOUSTON__DAEMON__MAX_ROLLOUTS": "none"})


def test_flags_win_over_the_environment(tmp_path: Path) -> None:
    loaded = load_configuration(
        home=str(tmp_path / "a"), environment={"HOUSTON_HOME": str(tmp_path / "b")}
    )
    assert loaded.home.path == tmp_path / "a"


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_home_under_the_users_folder_has_its_own_file_read(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell expands the `~` of `--home=~/runs`: the home was found, its file was not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / "runs"
    home.mkdir()
    (home / "houston.toml").write_text("[daemon]\nmax_rollouts = 3\n")
    environment = {"HOUSTON_HOME": "~/runs"} if way == "variable" else {}
    loaded = load_configuration("~/runs" if way == "flag" else None, environment=environment)
    assert (loaded.home.path, loaded.source) == (home, str(home / "houston.toml"))
    assert loaded.config.daemon.max_rollouts == 3


def test_a_home_of_nobody_is_named() -> None:
    with pytest.raises(ConfigurationError, match="~nobody-has-this-name/runs"):
        load_configuration("~nobody-has-this-name/runs", environment={})


def test_an_unknown_engine_names_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "houston.toml").write_text('[engines.big]\nkind = "vllm"\n')
    loaded = load_configuration(home=str(tmp_path), environment={})
    assert loaded.engine("big").kind == "vllm"
    assert loaded.engine("embedded").kind == "embedded"
    assert loaded.engine("script:x.jsonl").path.endswith("/x.jsonl")
    with pytest.raises(ConfigurationError, match=r"big, embedded"):
        loaded.engine("small")


def test_a_long_home_keeps_its_sockets_within_the_limit() -> None:
    for length in (10, 60, 90, 120, 200):
        home = Home(Path("/" + "h" * length))
        endpoint = home.socket("control").removeprefix("ipc://")
        assert len(endpoint) <= IPC_PATH_LIMIT


WRONG_TASKS = {
    "an unknown key": ('name = "a"\ninstructions = "b"\nsteps = 3', ["steps", "budget"]),
    "a bad name": ('name = "A b"\ninstructions = "b"', ["name", "A b"]),
    "no instructions": ('name = "a"', ["instructions", "instructions_file"]),
    "a missing file": ('name = "a"\ninstructions_file = "no.md"', ["no.md"]),
    "a missing source": (
        'name = "a"\ninstructions = "b"\n[workspace]\nsource = "ws"', ["workspace.source", "ws"],
    ),
    "a source elsewhere": (
        'name = "a"\ninstructions = "b"\n[workspace]\nsource = "/tmp"', ["workspace.source"],
    ),
    "a source above": (
        'name = "a"\ninstructions = "b"\n[workspace]\nsource = "x/../.."', ["workspace.source"],
    ),
    "instructions that are no text": (
        'name = "a"\ninstructions_file = "bytes.md"', ["instructions_file", "bytes.md", "UTF-8"],
    ),
    "a negative budget": ('name = "a"\ninstructions = "b"\n[budget]\nsteps = -1', ["budget.steps"]),
    "an unknown sandbox": (
        'name = "a"\ninstructions = "b"\nsandbox = "jail"',
        ["`sandbox` is 'jail'; allowed: bubblewrap, none."],
    ),
    "an unknown key of the sandbox": (
        'name = "a"\ninstructions = "b"\nsandbox = { kindd = "none" }',
        ["`sandbox.kindd`", "kind, network"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_TASKS)
def test_a_wrong_task_is_named(name: str, tmp_path: Path) -> None:
    text, names = WRONG_TASKS[name]
    (tmp_path / "task.toml").write_text(text)
    (tmp_path / "x").mkdir()
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError) as problem:
        load_task(tmp_path / "task.toml")
    assert str(tmp_path / "task.toml") in problem.value.cause
    for part in names:
        assert part in problem.value.cause


def test_a_sandbox_is_a_word_or_a_table(tmp_path: Path) -> None:
    base = 'name = "a"\ninstructions = "b"\n'
    (tmp_path / "task.toml").write_text(base + 'sandbox = "none"\n')
    assert load_task(tmp_path).task.mapped.kind == "none"
    (tmp_path / "task.toml").write_text(base + '[sandbox]\nread = ["/models"]\n')
    mapped = load_task(tmp_path).task.mapped
    assert (mapped.kind, mapped.read) == ("bubblewrap", ("/models",))


AWAITED = {
    "the file itself": ("home/houston.toml", True),
    "its folder": ("home", True),
    "a folder of files that is made later": ("home/recipes", True),
    "whatever lies in that": ("home/recipes/any.toml", True),
    "a link": ("linked/houston.toml", True),
    "what its link leads to": ("real/houston.toml", True),
    "a link beside a link, which may be of its way": ("linked/..data", True),
    "the database beside it": ("home/houston.db", False),
    "its log": ("home/houston.db-wal", False),
    "what an editor writes before it takes its place": ("home/.houston.toml.swp", False),
    "something below its folder": ("home/logs/daemon.log", False),
}
"""What happened → where, and whether one of the files may have changed."""


@pytest.mark.parametrize(("where", "counts"), AWAITED.values(), ids=AWAITED)
def test_only_what_may_be_an_edit_wakes_who_waits_for_one(
    tmp_path: Path, where: str, counts: bool
) -> None:
    for folder in ("home", "linked", "real"):
        (tmp_path / folder).mkdir()
    (tmp_path / "real" / "houston.toml").touch()
    (tmp_path / "linked" / "houston.toml").symlink_to(tmp_path / "real" / "houston.toml")
    files = ("home/houston.toml", "home/recipes/*.toml", "linked/houston.toml")
    awaited = WatchedPaths(find_place(tmp_path / file) for file in files)
    assert (str(tmp_path / where) in awaited) == counts
