"""The command line as a whole: examples that parse, `--json`, words that are one, slips that are
understood, exit codes, and completion in real shells."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from houston_shared import command_parser
from houston_shared.command import main
from houston_shared.command_table import COMMANDS, SECTIONS, CommandSpec
from houston_shared.completion_command import KINDS, build_whole_parser
from houston_shared.errors import EXIT_CODE_MEANINGS, ExitCode
from tests.support.written_home import WrittenHome, sample

ROOT = Path(__file__).parents[3]
every_command = pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command.words)
)
WITHOUT_EXAMPLE = {("host-serve",): "another node starts it; nobody types it"}
WITHOUT_JSON = {
    ("demo",): "a tour for people",
    ("console",): "a screen",
    ("completion",): "prints a script for a shell",
    ("daemon", "install-service"): "prints a unit of systemd",
    ("mcp", "serve"): "speaks MCP on its standard output",
    ("env", "serve"): "answers over HTTP until Ctrl-C",
    ("host-serve",): "speaks with another node on its standard output",
}
OTHER_WORDS_FOR_OUT = {"--output", "--into", "--dir", "--dest", "--to", "--file", "--folder"}


def flags_of(command: CommandSpec) -> dict[str, argparse.Action]:
    """Its flags, each with what argparse knows of it."""
    actions = command_parser.build_parser(command)._actions
    return {flag: action for action in actions for flag in action.option_strings}


@every_command
def test_help_ends_with_an_example_that_the_command_understands(command: CommandSpec) -> None:
    assert bool(command.example) is (command.words not in WITHOUT_EXAMPLE)
    parser = command_parser.build_parser(command)
    if command.example:
        parser.parse_args(shlex.split(command.example.partition(" > ")[0]))
        line = f"houston {' '.join(command.words)} {command.example}"
        assert parser.format_help().endswith(f"\nexample:\n  {line}\n")


@every_command
def test_commands_give_data_but_those_that_print_something_else(command: CommandSpec) -> None:
    assert ("--json" in flags_of(command)) is (command.words not in WITHOUT_JSON)


@every_command
def test_where_something_is_written_is_called_out(command: CommandSpec) -> None:
    flags = flags_of(command)
    # `--to` is also the end of a range, which begins at `--from`.
    others = OTHER_WORDS_FOR_OUT - ({"--to"} if "--from" in flags else set())
    assert not others & flags.keys()


SLIPS = {
    "a group": ("rolout list", "houston rollout list"),
    "a verb of a group": ("rollout strt x.toml", "houston rollout start"),
    "a verb": ("stesp k3f9", "houston steps"),
    "a verb behind a group that is not its own": ("rollout export", "houston export"),
    "a verb without its group": ("pause k3f9", "houston rollout pause"),
    "a group, without more": ("polciy", "houston policy"),
    "a flag before the command": ("--hoem x steps k3f9", "houston --home"),
    "a flag": ("steps k3f9 --jsn", "did you mean --json?"),
    "a flag with a value": ("steps k3f9 --form=3", "did you mean --from"),
    "a flag's beginning": ("rollout clean --ended 3d", "did you mean --ended-before?"),
    "a value": ("rollout list --state runing", "did you mean running?"),
    "what two commands do": ("restore --help", "houston rollout restore, or houston backup"),
    "a word inside help texts": ("of", "houston --help"),
    "a word that means nothing": ("the", "houston --help"),
    "a verb that a help text has inside": ("run", "houston suite run, or houston --help"),
    "a suite": ("evaluate word-erands", "did you mean word-errands"),
    "a suite's beginning": ("evaluate word-world", "did you mean word-worlds or "),
    "questions for a suite": ("suite run a.jsonl", "houston evaluate a.jsonl"),
    "a task for a suite": ("suite run lab/task.toml", "houston rollout start lab/task.toml"),
    "no suite": ("train dapo --engine tiny", "houston train dapo --suite SUITE"),
    "a setting": ("train dapo --suite word-worlds --set updatez=3", "did you mean updates?"),
}
SLIP_CODES = {
    "a suite": ExitCode.NOT_FOUND,
    "a suite's beginning": ExitCode.NOT_FOUND,
    "a setting": ExitCode.CONFIGURATION,
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_answered_with_what_was_meant(
    slip: str, capsys: pytest.CaptureFixture[str]
) -> None:
    typed, meant = SLIPS[slip]
    try:
        code = main(shlex.split(typed))
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == SLIP_CODES.get(slip, ExitCode.USAGE)
    assert f"next: {meant}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("count-wrods", "did you mean {}/count-words/task.toml?"), ("zzz", "houston task new NAME")],
)
def test_a_slip_in_a_task_is_answered_with_the_one_that_is_there(
    typed: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "count-words").mkdir()
    (tmp_path / "count-words" / "task.toml").touch()
    assert main(["task", "validate", f"{tmp_path}/{typed}/task.toml"]) == ExitCode.NOT_FOUND
    assert f"next: {meant.format(tmp_path)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "command", "meant", "code"),
    [
        pytest.param("[engins.local]\n", "engine check", "engines", 78, id="a table"),
        pytest.param(
            "[engines.a]\nkind = 'vllm'\nmodell = 'x'\n", "engine check", "model", 78, id="key"
        ),
        pytest.param("[review]\n", "engine check embeded", "embedded", 66, id="an engine's name"),
    ],
)
def test_a_slip_in_the_configuration_is_answered_with_what_was_meant(
    text: str,
    command: str,
    meant: str,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "houston.toml").write_text(text)
    typed = [*shlex.split(command), "--config", str(tmp_path / "houston.toml")]
    assert main([*typed, "--home", str(tmp_path)]) == code
    assert f"next: did you mean {meant}?" in capsys.readouterr().err


def test_what_is_like_nothing_is_answered_with_help_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["qqqqqq"]) == ExitCode.USAGE
    assert capsys.readouterr().err.endswith("  next: houston --help\n")


def test_help_is_by_subject_and_names_every_command_and_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    headings = re.findall(r"^([a-z].*):$", text, flags=re.MULTILINE)
    assert headings == list(SECTIONS)
    for command in COMMANDS:
        assert re.search(rf"^  {' '.join(command.words)} +{re.escape(command.help)}$", text, re.M)
    for code in ExitCode:
        assert f"{code.value} {EXIT_CODE_MEANINGS[code]}" in text


def test_the_design_lists_the_same_exit_codes() -> None:
    table = (ROOT / "docs" / "design.md").read_text()
    for code, meaning in EXIT_CODE_MEANINGS.items():
        assert f"| {code.value} | {meaning} |" in table


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a home of two rollouts, two policies, a result and two engines beside the
    embedded one, a broken configuration, and `houston` with its completion for each shell."""
    folder = tmp_path_factory.mktemp("completion")
    home = WrittenHome(folder / "home")
    for rollout in ("words-aaaa", "words-bbbb"):
        home.rollout(rollout)
        home.step(rollout, 1, sample("x"))
    for number in (1, 2):
        home.insert(
            "policies", name=f"policy@{number}", family="policy", number=number, kind="lora",
            base="/m", base_hash="b", hash=f"h{number}", folder="", parent="", run="", manifest="",
            seq=1, created_at=1,
        )  # fmt: skip
    home.close()
    (folder / "home" / "suites" / "word-worlds").mkdir(parents=True)
    (folder / "home" / "suites" / "word-worlds" / "night.json").touch()
    (folder / "home" / "houston.toml").write_text(
        '[engines.big]\nkind = "chat"\nurl = "http://x/v1"\nmodel = "x"\n'
        '[engines."$(touch harmed)"]\nkind = "embedded"\n'
    )
    (folder / "broken.toml").write_text("[engines\n")
    houston = folder / "bin" / "houston"
    houston.parent.mkdir()
    houston.write_text(f'#!/bin/sh\nexec {sys.executable} -m houston_shared.command "$@"\n')
    houston.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        script = subprocess.run(
            [houston, "completion", shell], capture_output=True, check=True, timeout=60
        )
        (folder / f"houston.{shell}").write_bytes(script.stdout)
    return folder


COMPLETIONS = {
    "a command": ("houston rollout s", {"start", "show"}),
    "a flag": ("houston rollout list --sta", {"--state"}),
    "a value": ("houston rollout list --state r", {"running"}),
    "a rollout": ("houston guide w", {"words-aaaa", "words-bbbb"}),
    "two rollouts": ("houston rollout compare words-aaaa words-b", {"words-bbbb"}),
    "a task": ("houston rollout list --task c", {"count-words"}),
    "an engine": ("houston engine check ", {"embedded", "big"}),
    "an engine of a start": ("houston rollout start x.toml --engine b", {"big"}),
    "a policy": ("houston policy show pol", {"policy@1", "policy@2"}),
    "a policy, half written": ("houston policy show policy@", {"policy@1", "policy@2"}),
    "a policy of a suite": ("houston suite run word-worlds --policy policy@2", {"policy@2"}),
    "a result": ("houston label --suite-run word", {"word-worlds/night"}),
    "a suite": ("houston train dapo --suite word-e", {"word-errands"}),
    "a recipe": ("houston train echo --recipe echo", {"echo", "echo_small"}),
    "a recipe of SFT": ("houston train sft --recipe a", {"apollo"}),
    "a dialect": ("houston export --dialect llama", {"llama-3"}),
}
DRIVERS = {
    "bash": """
        source houston.bash
        # As bash calls it: words are broken at @, too.
        COMP_WORDS=(${LINE_TYPED//@/ @ }) COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        COMP_LINE="$LINE_TYPED" COMP_POINT=${#LINE_TYPED}
        last=${LINE_TYPED##* } replaced=${LINE_TYPED##* }
        [[ "$last" == *@* ]] && replaced="@${last##*@}"  # as readline has it
        _houston houston "$replaced"; printf "${last%"$replaced"}%s\\n" "${COMPREPLY[@]}"
    """,
    "fish": "source houston.fish; complete -C $LINE_TYPED | string replace -r '\\t.*' ''",
}


@pytest.mark.parametrize("typed", COMPLETIONS)
@pytest.mark.parametrize("shell", DRIVERS)
def test_a_shell_completes(shell: str, typed: str, completed: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    line, expected = COMPLETIONS[typed]
    run = subprocess.run(
        [shell, "-c", DRIVERS[shell]],
        cwd=completed,
        env={
            "PATH": f"{completed / 'bin'}:{os.environ['PATH']}",
            "HOUSTON_HOME": str(completed / "home"),
            "HOME": str(completed),
            "LINE_TYPED": line,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(run.stdout.split()) == expected, run.stderr
    assert not (completed / "harmed").exists(), "names are words, and no shell runs them"


@pytest.mark.parametrize("shell", DRIVERS)
@pytest.mark.parametrize("variable", ["HOUSTON_CONFIG", "HOUSTON_HOME"])
def test_where_nothing_can_be_read_nothing_is_completed_and_said(
    variable: str, shell: str, completed: Path
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    place = "broken.toml" if variable == "HOUSTON_CONFIG" else "nowhere"
    run = subprocess.run(
        [shell, "-c", DRIVERS[shell]],
        cwd=completed,
        env={
            "PATH": f"{completed / 'bin'}:{os.environ['PATH']}",
            "HOME": str(completed),
            "LINE_TYPED": "houston policy show ",
            variable: str(completed / place),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout.strip(), run.stderr) == ("", "")


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS.values()))
def test_names_come_without_what_only_other_commands_need(kind: str, completed: Path) -> None:
    code = (
        "import sys\nfrom houston_shared.command import main\n"
        f"assert main(['completion', '--names', '{kind}']) == 0\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOUSTON_HOME": str(completed / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not {"asyncio", "difflib", "rich", "shtab", "zmq", "houston_daemon"} & {
        module.partition(".")[0] for module in run.stderr.split()
    }


def test_zsh_reads_its_script(completed: Path) -> None:
    script = completed / "houston.zsh"
    assert script.read_text().startswith("#compdef houston")
    if not shutil.which("zsh"):
        pytest.skip("there is no zsh here")
    subprocess.run(["zsh", "-n", script], check=True, timeout=60)


def test_the_parser_of_all_commands_has_all_commands() -> None:
    parser = build_whole_parser()
    for command in COMMANDS:
        with pytest.raises(SystemExit) as end:
            parser.parse_args([*command.words, "--help"])
        assert end.value.code == 0
