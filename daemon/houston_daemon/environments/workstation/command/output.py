"""Windows on a terminal's log: whatever its size, only what can be shown is read."""

from typing import NamedTuple

from houston_daemon.hosts.protocol import Terminal

_FIRST_BLOCK = 1 << 16
_MOST_BYTES = 1 << 20
"""How far back `newest` reads for its lines: far more than is shown, decoded in milliseconds."""


class Printed(NamedTuple):
    """Output as lines."""

    text: str
    cut_bytes: int
    """Bytes between head and tail that were not read; the text says so."""


async def printed(terminal: Terminal, start: int, end: int, characters: int) -> Printed:
    """The log of [start, end) within `characters`: whole, or head and tail with a notice."""
    part = max(4_000, characters * 2)
    if end - start <= 2 * part:
        return Printed("\n".join(await terminal.lines(start, end)), 0)
    head = "\n".join(await terminal.lines(start, start + part))
    tail = "\n".join((await terminal.lines(end - part, end))[1:])
    room = max(100, characters - 400)
    head, tail = _first_lines(head, room * 2 // 3), _last_lines(tail, room // 3)
    missing = end - start - len(head.encode()) - len(tail.encode())
    notice = (
        f"[… about {missing} bytes between are not shown; get_session_output(session_id="
        f"{terminal.name!r}, start_lines, end_lines) shows lines counted from the end …]"
    )
    return Printed(f"{head}\n{notice}\n{tail}", missing)


async def newest(terminal: Terminal, begin: int, end: int, count: int) -> tuple[list[str], bool]:
    """The last `count` lines of [begin, end), and whether there are earlier ones.

    Of a line longer than what is read there is its end.
    """
    if not count:
        return [], end > begin
    block = _FIRST_BLOCK
    while True:
        start = max(begin, end - block)
        lines = await terminal.lines(start, end)
        whole = lines if start == begin else lines[1:] or lines[-1:]
        if start == begin or len(whole) >= count or block >= _MOST_BYTES:
            return whole[-count:], start > begin or len(whole) > count
        block *= 4


def _first_lines(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    at = text.rfind("\n", max(0, room - 400), room)
    return text[: at if at > 0 else room]


def _last_lines(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    at = text.find("\n", len(text) - room, len(text) - room + 400)
    return text[at + 1 if at > 0 else len(text) - room :]
