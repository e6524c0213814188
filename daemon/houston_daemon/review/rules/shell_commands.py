"""Shell commands as rules need them: what is run, with which environment, and which files are
written.

`parse_command` reads a command line or a script into simple commands (one program with its words)
and the files that here-documents write; it also knows which files `sed` and `perl` change in
place. It reads the shell that agents write, not all of it: no expansion and no functions, so that
a rule may see less, never something that is not there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from houston_daemon.review.rules.shell_lexer import ShellToken, shell_tokens


class _InPlaceOptions(NamedTuple):
    """Letters of one program's options."""

    script: str
    """Their value is the script, or a file with it: attached, or the next word."""
    value: str
    """Their value is something else: attached, or the next word."""
    attached: str
    """What follows in the same word is their value."""


_IN_PLACE_PROGRAMS = {
    "sed": _InPlaceOptions("ef", "l", "i"),
    "perl": _InPlaceOptions("eE", "", "iMmIFCDdxV"),
}
_LONG_OPTIONS = frozenset({"--expression", "--file"})


def files_changed_in_place(words: Sequence[str]) -> list[str] | None:
    """Paths as they are written; None where the words change nothing in place.

    words: a program and its arguments.
    """
    tool = _IN_PLACE_PROGRAMS.get(name_of_path(words[0])) if words else None
    if tool is None:
        return None
    place = scripted = False
    plain: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            plain += rest
        elif word.startswith("--"):
            name, equals, _ = word.partition("=")
            place |= name == "--in-place"
            if name in _LONG_OPTIONS:
                scripted = True
                _ = equals or next(rest, "")
        elif word.startswith("-") and word != "-":
            decides, value = _option_with_value(word[1:], tool)
            place |= decides == "i"
            scripted |= bool(decides) and decides in tool.script
            _ = value or decides not in {*tool.script, *tool.value} or next(rest, "")
        elif word:  # an empty one is the suffix that BSD's sed wants
            plain.append(word)
    return (plain if scripted else plain[1:]) if place else None


def _option_with_value(letters: str, tool: _InPlaceOptions) -> tuple[str, str]:
    """The letter of a group that takes a value, and what of the value is attached; empty where
    there is none.
    """
    takes = {*tool.script, *tool.value, *tool.attached}
    for at, letter in enumerate(letters, 1):
        if letter in takes:
            return letter, letters[at:]
    return "", ""


_ASSIGNMENT = re.compile(r"(?<!\w)([A-Za-z_]\w*)=(.*)", re.S)
_SEPARATORS = frozenset(";&|()\n")
_KEYWORDS = frozenset({"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time"})
_WRAPPERS = frozenset(
    {"nohup", "setsid", "exec", "stdbuf", "nice", "ionice", "timeout", "sudo", "env", "command"}
)
_INTERPRETERS = re.compile(
    r"(python[\d.]*|bash|sh|zsh|source|\.|torchrun|accelerate|deepspeed|mpirun|srun|uv|poetry|conda"
    r"|ray|ipython)\Z"
)
_SCRIPT_ENDING = re.compile(r"\.(py|sh)\Z")
_LAUNCHER_MODULES = ("torch.distributed", "accelerate", "deepspeed")
"""Modules that start a script which is named behind them."""
_NUMBER_OR_DURATION = re.compile(r"[\d.]+[smhd]?\Z")
_SHOWING_PROGRAMS = (
    "awk basename cat cd cmp column comm command curl cut date df diff dirname dmesg du echo egrep"
    " fgrep file find free grep hash head hostname htop jobs journalctl jq less ls lsof man md5sum"
    " more netstat nl nvidia-smi od pgrep printf ps pwd readlink realpath rg sacct seq sha256sum"
    " sort squeue ss stat tac tail tee test top tr tree true type uniq uptime wc which whoami xxd"
    " zcat zgrep [ [["
)
_CONTROL_WORDS = "sleep wait for select case done fi esac break continue set shopt unset :"
"""Waiting, and the words of loops and choices: what stands between them says what is done."""
VIEWERS = frozenset([*_SHOWING_PROGRAMS.split(), *_CONTROL_WORDS.split()])
"""Programs that only show something, or wait."""
_GIT_SHOWING = (
    "show log diff status blame grep ls-files ls-tree rev-parse rev-list shortlog describe cat-file"
    " whatchanged merge-base reflog"
)
_GIT_SHOWS = frozenset(_GIT_SHOWING.split())
_GIT_VALUE_OPTIONS = frozenset({"-C", "-c", "--git-dir", "--work-tree"})
_JOIN_OPERATORS = frozenset({"&&", "||", "|", "&"})
_SHELL_PROGRAMS = frozenset({"bash", "sh", "zsh"})
_PARENTHESES = {"(": 1, ")": -1}
_NEWLINE_TOKEN = ShellToken("operator", "\n")
MAX_SHELL_DEPTH = 8
"""Shells within shells."""
MAX_VARIABLES = 100
"""That a command's programs are known to see."""


class SimpleCommand(NamedTuple):
    """One program with its words, without assignments before it, wrappers and redirections."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    """Assigned before it, or exported earlier in the same command."""
    folder: str
    """Where `cd` in the same command led; empty where there was none."""
    inline: str = ""
    """A program's text that is given with it: `-c`, or a here-document."""
    after: str = ";"
    """What joins it to the next: `&&`, `||`, `|`, `&`, or `;` for everything else."""
    output: str = ""
    """The file that its output takes the place of; empty where it goes to none, or is appended."""
    log: str = ""
    """The file that its output goes to, also where it is appended."""
    in_subshell: bool = False
    """Whether a shell of its own runs it, whose variables and folder end with it: `(…)`, `-c`."""

    @property
    def program(self) -> str:
        """Its name without folders; empty for assignments alone."""
        return name_of_path(self.words[0]) if self.words else ""

    @property
    def script(self) -> str:
        """The path of the script that it runs; empty where it runs none."""
        if not self.words:
            return ""
        if _SCRIPT_ENDING.search(self.words[0]):
            return _path_in_folder(self.folder, self.words[0])
        if not _INTERPRETERS.match(self.program):
            return ""
        module = ""
        for before, word in pairwise(self.words):
            if before == "-m" and self.program.startswith("python"):
                if word.startswith(_LAUNCHER_MODULES):
                    continue
                module = word.replace(".", "/") + ".py"
                break
            if _SCRIPT_ENDING.search(word):
                return _path_in_folder(self.folder, word)
        return module

    @property
    def changes(self) -> tuple[str, ...]:
        """Paths of the files that it changes in place."""
        return tuple(
            _path_in_folder(self.folder, path) for path in files_changed_in_place(self.words) or ()
        )

    @property
    def writes(self) -> tuple[str, ...]:
        """Paths of the files that it writes whole."""
        paths = [self.output] if self.output else []
        if self.program == "tee" and not {"-a", "--append"} & set(self.words):
            paths += [word for word in self.words[1:] if not word.startswith("-")]
        return tuple(_path_in_folder(self.folder, path) for path in paths)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Paths of the files that its output goes to."""
        return (_path_in_folder(self.folder, self.log),) if self.log else ()

    @property
    def git(self) -> str:
        """The subcommand of git; empty for other programs."""
        if self.program != "git":
            return ""
        rest = iter(self.words[1:])
        for word in rest:
            if word in _GIT_VALUE_OPTIONS:
                next(rest, "")
            elif not word.startswith("-"):
                return word
        return ""

    @property
    def views(self) -> bool:
        """Whether it only shows something, waits, or keeps a value."""
        match self.program:
            case "sed":
                return files_changed_in_place(self.words) is None
            case "git":
                return self.git in _GIT_SHOWS
            case "kill":
                return "-0" in self.words  # it asks whether a process is there
        return not self.words or self.program in VIEWERS

    def path_in_folder(self, path: str) -> str:
        """A path as this program means it, in the workspace."""
        return _path_in_folder(self.folder, path)


class HeredocFile(NamedTuple):
    """A file that a here-document writes."""

    path: str
    content: str
    appended: bool


class ShellCommand(NamedTuple):
    """A whole command line."""

    simple: tuple[SimpleCommand, ...]
    texts: tuple[HeredocFile, ...]

    @property
    def views(self) -> bool:
        """Whether all of it only shows something."""
        return not self.texts and all(program.views for program in self.simple)


@lru_cache(maxsize=8192)
def parse_command(command: str) -> ShellCommand:
    """A command line, or the text of a shell script."""
    return _parse_within(command, {}, "", MAX_SHELL_DEPTH)


def _parse_within(
    command: str, exported: Mapping[str, str], folder: str, deeper: int
) -> ShellCommand:
    """The same where variables and a folder are given.

    deeper: shells within shells that are read; of what is further within, only the shell is seen.
    """
    simple: list[SimpleCommand] = []
    texts: list[HeredocFile] = []
    around: list[_ShellState] = []
    for words, target, appended, after, body, within in _word_groups(shell_tokens(command)):
        exported, folder = _state_after_parentheses(around, within, (exported, folder))
        program = _simple_commands(words, exported, folder)
        program = program._replace(
            after=after, output="" if appended else target, log=target, in_subshell=bool(around)
        )
        if body and program.program in ("cat", "tee"):
            path = target or next((w for w in program.words[1:] if not w.startswith("-")), "")
            if path:
                appended = appended or "-a" in program.words
                texts.append(HeredocFile(_path_in_folder(folder, path), body, appended))
        elif body:
            program = program._replace(inline=body)
        if program.program == "cd" and len(program.words) > 1:
            folder = _path_in_folder(folder, program.words[1])
        exported = _state_after_command(program, exported)
        if deeper and program.inline and program.program in _SHELL_PROGRAMS:
            inner = _parse_within(program.inline, program.environment, program.folder, deeper - 1)
            simple += _inlined_commands(inner.simple, program.after)
            texts += inner.texts
        else:
            simple.append(program)
    return ShellCommand(tuple(simple), tuple(texts))


def name_of_path(path: str) -> str:
    """A path's last part."""
    return path.rpartition("/")[2]


def normal_path(path: str) -> str:
    """A path in the workspace without `./` and without the workspace's own place."""
    path = path.rpartition("/workspace/")[2] if path.startswith("/") else path
    while path.startswith("./"):
        path = path[2:]
    return path


def same_path(path: str, other_path: str) -> bool:
    """Whether two paths may name the same file: the folders of sessions are not known. A path
    outside the workspace only matches itself.
    """
    path, other_path = normal_path(path), normal_path(other_path)
    if path.startswith("/") or other_path.startswith("/"):
        return path == other_path
    return path == other_path or path.endswith(f"/{other_path}") or other_path.endswith(f"/{path}")


_ShellState = tuple[Mapping[str, str], str]
"""Variables that are exported, and the folder."""


class _WordGroup(NamedTuple):
    words: list[str]
    target: str
    """The file that its output goes to; empty where it goes to none."""
    appended: bool
    after: str
    body: str
    """Of its here-documents."""
    within: tuple[int, int]
    """Parentheses around it: the fewest since the one before, and now."""


def _word_groups(tokens: Iterable[ShellToken]) -> list[_WordGroup]:
    """Words of each simple command, in order."""
    groups: list[_WordGroup] = []
    words: list[str] = []
    bodies: list[str] = []
    target, appended, skip = "", False, ""
    least = depth = 0
    for kind, text in (*tokens, _NEWLINE_TOKEN):
        redirects, skip = skip, ""
        if kind == "heredoc":
            bodies.append(text)
        elif redirects and kind == "word":
            file = "&" not in redirects or redirects.startswith("&>")
            if ">" in redirects and file and not (target and redirects[0] == "2"):
                target, appended = text, redirects.endswith(">>")
        elif kind == "operator" and set(text) <= _SEPARATORS:
            after = _join_kind(text)
            if words or bodies:
                body = "".join(bodies)
                groups.append(_WordGroup(words, target, appended, after, body, (least, depth)))
                least = depth
            elif groups and after != ";":  # behind a closing parenthesis
                groups[-1] = groups[-1]._replace(after=after)
            words, bodies, target, appended = [], [], "", False
            depth = max(0, depth + _PARENTHESES.get(text, 0))
            least = min(least, depth)
        elif kind == "operator" and set(text) <= set("<>&|"):
            fd = words.pop() if words and words[-1] in ("1", "2") else ""
            skip = fd + text
        else:
            depth += kind == "operator"  # of a command whose output is a file: `<(`
            words.append(text)
    return groups


def _state_after_parentheses(
    around: list[_ShellState], within: tuple[int, int], state: _ShellState
) -> _ShellState:
    """What holds where parentheses have closed and opened.

    around: what held before each that is open; it is brought up to here.
    """
    least, depth = within
    if least < len(around):
        state = around[least]
        del around[least:]
    around += [state] * (depth - len(around))
    return state


def _join_kind(operator: str) -> str:
    """How a separator joins two commands."""
    bare = operator.replace("|&", "|")
    return bare if bare in _JOIN_OPERATORS else ";"


def _simple_commands(words: list[str], exported: Mapping[str, str], folder: str) -> SimpleCommand:
    """Without what stands before the program."""
    own: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if assignment := _ASSIGNMENT.fullmatch(word):
            own[assignment[1]] = assignment[2]
        elif word == "command" and words[at + 1 : at + 2] in (["-v"], ["-V"]):
            break  # it asks whether the program is there
        elif word in _WRAPPERS:
            while at + 1 < len(words) and _is_wrapper_word(words[at + 1]):
                at += 1
        elif word not in _KEYWORDS:
            break
        at += 1
    words = words[at:]
    inline = ""
    if "-c" in words[1:-1] and _INTERPRETERS.match(name_of_path(words[0])):
        inline = words[words.index("-c") + 1]
    return SimpleCommand(tuple(words), {**exported, **own} if own else exported, folder, inline)


def _is_wrapper_word(word: str) -> bool:
    return word.startswith("-") or bool(_NUMBER_OR_DURATION.match(word))


def _state_after_command(simple: SimpleCommand, exported: Mapping[str, str]) -> Mapping[str, str]:
    """What programs behind a command see. Beyond some variables no further ones are noted: every
    program has all of them.
    """
    if simple.program == "unset":
        return {name: value for name, value in exported.items() if name not in simple.words}
    if simple.words and simple.program != "export":
        return exported
    now = {**simple.environment, **dict(_assignments(simple.words[1:]))}
    return dict(islice(now.items(), MAX_VARIABLES)) if len(now) > MAX_VARIABLES else now


def _inlined_commands(inner: tuple[SimpleCommand, ...], after: str) -> list[SimpleCommand]:
    """Commands of a shell in its place."""
    apart = [command._replace(in_subshell=True) for command in inner]
    return [*apart[:-1], *(command._replace(after=after) for command in apart[-1:])]


def _assignments(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for word in words:
        if match := _ASSIGNMENT.fullmatch(word):
            yield match[1], match[2]


def _path_in_folder(folder: str, path: str) -> str:
    """A path that is named after `cd folder`."""
    if path.startswith(("/", "~", "$")) or not folder:
        return normal_path(path)
    return normal_path(f"{folder.rstrip('/')}/{path.removeprefix('./')}")
