"""Shell commands as rules need them: what is run, with which environment, and which files are
written by here-documents.

It reads the shell that agents write, not all of the shell: no expansion, no functions, so that a
rule sees less, never something that is not there. What is a word, `lexing` knows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from houston_daemon.supervision.rules import in_place
from houston_daemon.supervision.rules.lexing import Token, tokens

_ASSIGNMENT = re.compile(r"(?<!\w)([A-Za-z_]\w*)=(.*)", re.S)
_SEPARATORS = frozenset(";&|()\n")
_KEYWORDS = frozenset({"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time"})
_WRAPPERS = frozenset(
    {"nohup", "setsid", "exec", "stdbuf", "nice", "ionice", "timeout", "sudo", "env", "command"}
)
_PROGRAM = re.compile(
    r"(python[\d.]*|bash|sh|zsh|source|\.|torchrun|accelerate|deepspeed|mpirun|srun|uv|poetry|conda"
    r"|ray|ipython)\Z"
)
_SCRIPT = re.compile(r"\.(py|sh)\Z")
_LAUNCHING = ("torch.distributed", "accelerate", "deepspeed")
"""Modules that start a script which is named behind them."""
_VALUE = re.compile(r"[\d.]+[smhd]?\Z")
_SHOW = (
    "awk basename cat cd cmp column comm command curl cut date df diff dirname dmesg du echo egrep"
    " fgrep file find free grep hash head hostname htop jobs journalctl jq less ls lsof man md5sum"
    " more netstat nl nvidia-smi od pgrep printf ps pwd readlink realpath rg sacct seq sha256sum"
    " sort squeue ss stat tac tail tee test top tr tree true type uniq uptime wc which whoami xxd"
    " zcat zgrep [ [["
)
_STEER = "sleep wait for select case done fi esac break continue set shopt unset :"
"""Waiting, and the words of loops and choices: what stands between them says what is done."""
VIEWERS = frozenset([*_SHOW.split(), *_STEER.split()])
"""Programs that only show something, or wait."""
_GIT = (
    "show log diff status blame grep ls-files ls-tree rev-parse rev-list shortlog describe cat-file"
    " whatchanged merge-base reflog"
)
_GIT_SHOWS = frozenset(_GIT.split())
_GIT_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree"})
_JOINS = frozenset({"&&", "||", "|", "&"})
_SHELLS = frozenset({"bash", "sh", "zsh"})
_PARENTHESES = {"(": 1, ")": -1}
_LINE = Token("operator", "\n")
DEEPEST = 8
"""Shells within shells."""
VARIABLES = 100
"""That a command's programs are known to see."""


class Simple(NamedTuple):
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
    apart: bool = False
    """Whether a shell of its own runs it, whose variables and folder end with it: `(…)`, `-c`."""

    @property
    def program(self) -> str:
        """Its name without folders; empty for assignments alone."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def script(self) -> str:
        """The path of the script that it runs; empty where it runs none."""
        if not self.words:
            return ""
        if _SCRIPT.search(self.words[0]):
            return _in(self.folder, self.words[0])
        if not _PROGRAM.match(self.program):
            return ""
        module = ""
        for before, word in zip(self.words, self.words[1:], strict=False):
            if before == "-m" and self.program.startswith("python"):
                if word.startswith(_LAUNCHING):
                    continue
                module = word.replace(".", "/") + ".py"
                break
            if _SCRIPT.search(word):
                return _in(self.folder, word)
        return module

    @property
    def changes(self) -> tuple[str, ...]:
        """Paths of the files that it changes in place."""
        return tuple(_in(self.folder, one) for one in in_place.changed(self.words) or ())

    @property
    def writes(self) -> tuple[str, ...]:
        """Paths of the files that it writes whole."""
        found = [self.output] if self.output else []
        if self.program == "tee" and not {"-a", "--append"} & set(self.words):
            found += [word for word in self.words[1:] if not word.startswith("-")]
        return tuple(_in(self.folder, one) for one in found)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Paths of the files that its output goes to."""
        return (_in(self.folder, self.log),) if self.log else ()

    @property
    def git(self) -> str:
        """The subcommand of git; empty for other programs."""
        if self.program != "git":
            return ""
        rest = iter(self.words[1:])
        for word in rest:
            if word in _GIT_VALUE:
                next(rest, "")
            elif not word.startswith("-"):
                return word
        return ""

    @property
    def views(self) -> bool:
        """Whether it only shows something, waits, or keeps a value."""
        match self.program:
            case "sed":
                return in_place.changed(self.words) is None
            case "git":
                return self.git in _GIT_SHOWS
            case "kill":
                return "-0" in self.words  # it asks whether a process is there
        return not self.words or self.program in VIEWERS

    def of(self, path: str) -> str:
        """A path as this program means it, in the workspace."""
        return _in(self.folder, path)


class Text(NamedTuple):
    """A file that a here-document writes."""

    path: str
    content: str
    appended: bool


class Command(NamedTuple):
    """A whole command line."""

    simple: tuple[Simple, ...]
    texts: tuple[Text, ...]

    @property
    def views(self) -> bool:
        """Whether all of it only shows something."""
        return not self.texts and all(one.views for one in self.simple)


@lru_cache(maxsize=8192)
def read(command: str) -> Command:
    """A command line, or the text of a shell script."""
    return _read(command, {}, "", DEEPEST)


def _read(command: str, exported: Mapping[str, str], folder: str, deeper: int) -> Command:
    """The same where variables and a folder are given.

    deeper: shells within shells that are read; of what is further within, only the shell is seen.
    """
    simple: list[Simple] = []
    texts: list[Text] = []
    around: list[_State] = []
    for words, target, appended, after, body, within in _groups(tokens(command)):
        exported, folder = _within(around, within, (exported, folder))
        one = _simple(words, exported, folder)
        one = one._replace(
            after=after, output="" if appended else target, log=target, apart=bool(around)
        )
        if body and one.program in ("cat", "tee"):
            path = target or next((w for w in one.words[1:] if not w.startswith("-")), "")
            if path:
                texts.append(Text(_in(folder, path), body, appended or "-a" in one.words))
        elif body:
            one = one._replace(inline=body)
        if one.program == "cd" and len(one.words) > 1:
            folder = _in(folder, one.words[1])
        exported = _behind(one, exported)
        if deeper and one.inline and one.program in _SHELLS:
            inner = _read(one.inline, one.environment, one.folder, deeper - 1)
            simple += _joined(inner.simple, one.after)
            texts += inner.texts
        else:
            simple.append(one)
    return Command(tuple(simple), tuple(texts))


def normal(path: str) -> str:
    """A path in the workspace without `./` and without the workspace's own place."""
    path = path.rpartition("/workspace/")[2] if path.startswith("/") else path
    while path.startswith("./"):
        path = path[2:]
    return path


def same(one: str, other: str) -> bool:
    """Whether two paths may be of one file: sessions have folders that are not known. One outside
    of the workspace is only itself.
    """
    one, other = normal(one), normal(other)
    if one.startswith("/") or other.startswith("/"):
        return one == other
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


_State = tuple[Mapping[str, str], str]
"""Variables that are exported, and the folder."""


class _Group(NamedTuple):
    words: list[str]
    target: str
    """The file that its output goes to; empty where it goes to none."""
    appended: bool
    after: str
    body: str
    """Of its here-documents."""
    within: tuple[int, int]
    """Parentheses around it: the fewest since the one before, and now."""


def _groups(read: Iterable[Token]) -> list[_Group]:
    """Words of each simple command, in order."""
    found: list[_Group] = []
    words: list[str] = []
    bodies: list[str] = []
    target, appended, skip = "", False, ""
    least = depth = 0
    for kind, text in (*read, _LINE):
        redirects, skip = skip, ""
        if kind == "heredoc":
            bodies.append(text)
        elif redirects and kind == "word":
            file = "&" not in redirects or redirects.startswith("&>")
            if ">" in redirects and file and not (target and redirects[0] == "2"):
                target, appended = text, redirects.endswith(">>")
        elif kind == "operator" and set(text) <= _SEPARATORS:
            after = _join(text)
            if words or bodies:
                body = "".join(bodies)
                found.append(_Group(words, target, appended, after, body, (least, depth)))
                least = depth
            elif found and after != ";":  # behind a closing parenthesis
                found[-1] = found[-1]._replace(after=after)
            words, bodies, target, appended = [], [], "", False
            depth = max(0, depth + _PARENTHESES.get(text, 0))
            least = min(least, depth)
        elif kind == "operator" and set(text) <= set("<>&|"):
            fd = words.pop() if words and words[-1] in ("1", "2") else ""
            skip = fd + text
        else:
            depth += kind == "operator"  # of a command whose output is a file: `<(`
            words.append(text)
    return found


def _within(around: list[_State], within: tuple[int, int], here: _State) -> _State:
    """What holds where parentheses have closed and opened.

    around: what held before each that is open; it is brought up to here.
    """
    least, depth = within
    if least < len(around):
        here = around[least]
        del around[least:]
    around += [here] * (depth - len(around))
    return here


def _join(operator: str) -> str:
    """How a separator joins two commands."""
    bare = operator.replace("|&", "|")
    return bare if bare in _JOINS else ";"


def _simple(words: list[str], exported: Mapping[str, str], folder: str) -> Simple:
    """Without what stands before the program."""
    own: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if found := _ASSIGNMENT.fullmatch(word):
            own[found[1]] = found[2]
        elif word == "command" and words[at + 1 : at + 2] in (["-v"], ["-V"]):
            break  # it asks whether the program is there
        elif word in _WRAPPERS:
            while at + 1 < len(words) and _of_wrapper(words[at + 1]):
                at += 1
        elif word not in _KEYWORDS:
            break
        at += 1
    words = words[at:]
    inline = ""
    if "-c" in words[1:-1] and _PROGRAM.match(words[0].rpartition("/")[2]):
        inline = words[words.index("-c") + 1]
    return Simple(tuple(words), {**exported, **own} if own else exported, folder, inline)


def _of_wrapper(word: str) -> bool:
    return word.startswith("-") or bool(_VALUE.match(word))


def _behind(one: Simple, exported: Mapping[str, str]) -> Mapping[str, str]:
    """What programs behind a command see. Beyond some variables no further ones are noted: every
    program has all of them.
    """
    if one.program == "unset":
        return {name: value for name, value in exported.items() if name not in one.words}
    if one.words and one.program != "export":
        return exported
    now = {**one.environment, **dict(_assigned(one.words[1:]))}
    return dict(islice(now.items(), VARIABLES)) if len(now) > VARIABLES else now


def _joined(inner: tuple[Simple, ...], after: str) -> list[Simple]:
    """Commands of a shell in its place."""
    apart = [each._replace(apart=True) for each in inner]
    return [*apart[:-1], *(each._replace(after=after) for each in apart[-1:])]


def _assigned(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for word in words:
        if found := _ASSIGNMENT.fullmatch(word):
            yield found[1], found[2]


def _in(folder: str, path: str) -> str:
    """A path that is named after `cd folder`."""
    if path.startswith(("/", "~", "$")) or not folder:
        return normal(path)
    return normal(f"{folder.rstrip('/')}/{path.removeprefix('./')}")
