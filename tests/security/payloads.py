"""What agents, tools, files and people could write to reach an annotator's terminal.

A payload is a text with a mark of its own (`Q00017Q`) in front, so that a test sees that it was
shown and not left out. Colours in them use parameters, and positions lie, where Houston never has
them: a recogniser can tell them from ours. Shapes of known flaws stand by the number they had.
"""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"
COMMAND = "touch /tmp/owned"
KNOWN = {
    "CVE-2003-0063 title set and reported": f"{ESC}]2;;{COMMAND};{BEL}{ESC}[21t",
    "CVE-2008-2383 DECRQSS echo": f"{ESC}P$q;{COMMAND}\n{ST}",
    "CVE-2019-9535 tmux control mode": f"{ESC}P1000p%begin 1 1 0\n%end 1 1 0\n%output %0 x{ST}",
    "CVE-2021-27135 combining flood": "\u0300" * 400 + "\u5973" + "\u0301" * 400,
    "CVE-2021-33477 rxvt ESC G Q": f"{ESC}GQ;{COMMAND}\n",
    "CVE-2022-4170 rxvt background": f"{ESC}]20;bg;`{COMMAND}`{BEL}",
    "CVE-2022-41322 kitty notification": f"{ESC}]99;i=1:d=0;{COMMAND}{ST}{ESC}]99;i=1:d=1;x{ST}",
    "CVE-2022-45063 font reply": f"{ESC}]50;i;{COMMAND}{BEL}{ESC}]50;?{BEL}",
    "CVE-2022-45872 iTerm2 DECRQSS": f"{ESC}P$q{COMMAND}\x0d{ST}",
    "tmux passthrough": f"{ESC}Ptmux;{ESC}{ESC}]52;c;{'QQ' * 20}{BEL}{ST}",
    "iTerm2 file": f"{ESC}]1337;File=name=b3duZWQ=;size=3;inline=0:eHh4{BEL}",
    "iTerm2 clipboard": f"{ESC}]1337;CopyToClipboard={BEL}{COMMAND}\n{ESC}]1337;EndCopy{BEL}",
    "iTerm2 profile": f"{ESC}]1337;SetProfile=Owned{BEL}{ESC}]50;SetProfile=Owned{BEL}",
    "kitty graphics from a file": f"{ESC}_Ga=T,t=f,f=100;L2V0Yy9wYXNzd2Q={ST}",
    "kitty remote control": f'{ESC}P@kitty-cmd{{"cmd":"launch","version":[0,14,2]}}{ST}',
    "kitty file transfer": f"{ESC}]5113;ac=send;id=x{ST}",
    "sixel": f"{ESC}Pq#0;2;0;0;0#0!9999~-{ST}",
    "ReGIS": f"{ESC}P1pS(E)P[100,100]{ST}",
    "user keys": f"{ESC}P0;1|17/746f756368{ST}",
    "hyperlink": f"{ESC}]8;;file:///etc/passwd{ST}click{ESC}]8;;{ST}",
    "bracketed paste end": f"{ESC}[201~{COMMAND}\n{ESC}[200~",
    "answers typed": f"{ESC}[6n{ESC}[c{ESC}[>c{ESC}[5n{ESC}[x\x05",
    "hidden": f"{ESC}[8m{COMMAND}{ESC}[28m",
    "line rewritten": f"rm -rf /\r{' ' * 9}\rls",
    "overstrike": f"safe{chr(8) * 4}rm -rf /{chr(8) * 8}safe    ",
    "line erased": f"{COMMAND}{ESC}[2K{ESC}[1Gls",
    "no answer to ESC c": f"{ESC}c{ESC}[!p{ESC}#8{ESC}[3J",
    "print to printer": f"{ESC}[5i{COMMAND}{ESC}[4i{ESC}[?5i",
    "alternate screen left": f"{ESC}[?1049l{ESC}[?47l{ESC}[?1000h{ESC}[?2004l",
    "Trojan Source": "access\u202e \u2066// if admin\u2069 \u2066",
    "tag letters": "".join(chr(0xE0000 + ord(one)) for one in "<real_user>obey"),
    "selectors": "a" + "".join(chr(0xFE00 + one % 14) for one in range(60)),
    "invisible": "pass\u200bword\u2060\ufeff\u00ad\u034f\u180e\u3164\u115f",
    "separators": "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven\x1deight\x1enine",
    "huge parameters": f"{ESC}[{'9' * 600}C{ESC}[{';'.join(['9'] * 300)}H",
    "endless string": f"{ESC}]0;{'A' * 600}",
}
MARKUP = (
    "[/]", "[/x]", "[bold]", "[bold red on blue]x[/]", "[@click=app.quit]x[/]", "[link=file:///]x",
    "[@click='app.bell']", "[$primary]", "[[", "]]", "[", "\\[", "[/usr/bin]", "[b][i][u]",
    ":boom:", ":smile:", "[on red]", "[blink]", "[reverse]", "[#ff0000]", "[link='https://a.b']c[/link]",
    "{0}", "{self}", "%s%n", "%(x)s", "$HOME", "`id`", "$(id)", "&lt;script&gt;", "<!--",
    "\\x1b[31m", "\\033]0;x\\007", "\\e[2J", "^[[2J", "[/red][/red]", "[=]", "[@]", "[@click]",
)  # fmt: skip
_OSC = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 19, 21, 22, 23, 30, 46, 50, 51, 52, 60,
        66, 99, 104, 105, 110, 111, 112, 117, 133, 176, 297, 555, 633, 697, 701, 702, 710, 720, 777,
        1337, 3008, 5113, 5522, 7771, 9001)  # fmt: skip
_PARAMETERS = (
    "",
    "999",
    "999;999",
    "?1",
    ">1",
    "?1;2$",
    "8;5;38",
    "=0",
    " ",
    "!",
    "1;999\x00",
    "99999999999",
    "2;1",
    ";;;",
    "<5",
    "?25",
    "200",
)


class Payload(NamedTuple):
    """One text and where to find it again."""

    mark: str
    text: str


def sequences() -> Iterator[str]:
    """Control sequences of every kind, 7 bit and 8 bit, ended and not."""
    for code in [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)]:
        yield chr(code)
        yield f"a{chr(code) * 3}b"
    for final in range(0x30, 0x7F):
        yield f"{ESC}{chr(final)}"
    for between, final in itertools.product(" !\"#$%&'()*+-./", "0ABFGcn8@~"):
        yield f"{ESC}{between}{final}"
    for begin, final, given in itertools.product(
        (f"{ESC}[", "\x9b"), range(0x40, 0x7F), _PARAMETERS
    ):
        if chr(final) == "m" and given in ("", " ", "!", "2;1", ";;;"):
            given = "8"  # never a colour of ours
        yield f"{begin}{given}{chr(final)}"
    for begin, number, end in itertools.product(
        (f"{ESC}]", "\x9d"), _OSC, (BEL, ST, "\x9c", "\n", "")
    ):
        yield f"{begin}{number};c;{'QUJD'}{end}"
        yield f"{begin}{number};?{end}"
        yield f"{begin}{number};{COMMAND}{end}"
    strings = ("$qm", '$q"p', "+q544e", "=1s", "q#1~", "tmux;x", "1000p", "|17/0a", "Ga=q;AA", "{x")
    begins = (f"{ESC}P", f"{ESC}_", f"{ESC}^", f"{ESC}X", "\x90", "\x9f", "\x9e", "\x98")
    for begin, body, end in itertools.product(begins, strings, (ST, "\x9c", BEL, "")):
        yield f"{begin}{body}{end}"


def deceptions() -> Iterator[str]:
    """Characters that hide or reorder what is read, and markup."""
    hidden = [*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF, 0x61C,
              0xAD, 0x34F, 0x180E, 0x115F, 0x3164, 0xFFA0, *range(0xFFF9, 0xFFFC),
              *range(0xE0001, 0xE0080, 5), *range(0xFE00, 0xFE0E)]  # fmt: skip
    for code in hidden:
        yield f"ad{chr(code)}min"
    yield from MARKUP
    for one, other in itertools.permutations(MARKUP[:20], 2):
        yield f"{one}{other}"


def _mixed() -> Iterator[str]:
    """Sequences in disguise: doubled, nested, split by lines and nothing, behind text."""
    known = list(KNOWN.values())
    for text in known:
        yield text
        yield f"{ESC}{text}"
        yield f"{ESC}]0;{text}{BEL}"
        yield text.replace(ESC, f"{ESC}\x00")
        yield text.replace(ESC, f"{ESC}\n")
        yield text.replace(f"{ESC}[", "\x9b").replace(f"{ESC}]", "\x9d").replace(f"{ESC}P", "\x90")
        yield f"[@click=app.quit]{text}[/]"
        yield f"{'x' * 150}{text}"
    short = [text for text in known if len(text) < 60][:16]
    for one, other in itertools.permutations(short, 2):
        yield one[: len(one) // 2] + other


def corpus() -> list[Payload]:
    """Every payload; none of them has a line feed in its first 7 characters, which are its mark."""
    texts = dict.fromkeys((*_mixed(), *deceptions(), *sequences()))
    return [Payload(f"Q{at:05}Q", f"Q{at:05}Q{text}") for at, text in enumerate(texts)]


MARK = re.compile(r"Q\d{5}Q")


def marks(shown: str) -> set[str]:
    """The payloads of which something is seen."""
    return set(MARK.findall(shown))
