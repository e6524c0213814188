"""Typed observations as text: one function, from the type alone."""

from dataclasses import dataclass
from functools import singledispatch

from houston_daemon.environments.workstation import observations as seen


@dataclass(frozen=True, slots=True)
class Text:
    """An observation in words, not yet through the door."""

    head: str
    """One or a few lines that are never cut."""
    body: str = ""
    """What may be cut."""
    how: str = ""
    """How to see what a cut left out."""


@singledispatch
def render(observation: seen.Observation) -> Text:
    """The observation in words. Every type has its own form below."""
    raise TypeError(f"no text for {type(observation).__name__}")


@render.register
def _(one: seen.Failed) -> Text:
    return Text(f"Error: {one.error}")


@render.register
def _(one: seen.Interrupted) -> Text:
    head = (
        f"Interrupted: {one.error} It was not run again. Whether it had its effect is unknown; "
        "look before you repeat it."
    )
    return Text(head, one.now, "get_session_output or open_file shows more")


@render.register
def _(one: seen.Output) -> Text:
    how = f"get_session_output(session_id={one.session_id!r}, start_lines, end_lines) shows them"
    body = one.output if one.output.strip() else "(no output)"
    return Text(_output_state(one), body, how)


def _output_state(one: seen.Output) -> str:
    where = f"[session {one.session_id}"
    if one.running:
        state = f"{where}: still running{_waited(one)}]"
    elif one.exit_code is None:
        state = f"{where}: {f'dead, {one.end}' if one.end else 'nothing ran yet'}]"
    else:
        state = f"{where}: exit code {one.exit_code}{_waited(one)}]"
    return f"{state} {one.note}".rstrip()


def _waited(one: seen.Output) -> str:
    if one.window:
        return ""
    ended = {
        "": "",
        "limit": "; it goes on, look with get_session_output, or sleep",
        "wake": "; the waiting ended because a person spoke, the command goes on",
        "interrupt": "; the waiting was interrupted by a person, the command goes on",
        "budget": "; the waiting ended because the time budget is spent, the command goes on",
        "asked": "; started without waiting, look with get_session_output",
    }[one.ended_by]
    return f" after {one.execution_time:.1f} s{ended}"


@render.register
def _(one: seen.Sessions) -> Text:
    if not one.sessions:
        return Text("No sessions. run_command opens one.")
    lines = [f"{entry.session_id}: {_entry_state(entry)}" for entry in one.sessions]
    return Text(f"Sessions ({len(lines)}):", "\n".join(lines))


def _entry_state(entry: seen.SessionEntry) -> str:
    if not entry.is_alive:
        return f"dead, {entry.end}"
    if entry.running:
        return f"running {entry.command!r}"
    if entry.exit_code is None:
        return "idle"
    return f"idle, last exit code {entry.exit_code} of {entry.command!r}"


@render.register
def _(one: seen.Session) -> Text:
    if one.closed or not one.session_id:
        return Text(f"Closed: {', '.join(one.closed) or 'there was no session'}.")
    said = {
        "created": "is open",
        "found": "was open already",
        "cleared": "shows only new output from now on",
        "closed": "is closed",
    }[one.change]
    return Text(f"Session {one.session_id} {said}.")


@render.register
def _(one: seen.Status) -> Text:
    runs = f"running {one.command!r}" if one.running else "idle"
    state = f"alive, {runs}" if one.is_alive else f"dead, {one.end}"
    code = f", last exit code {one.exit_code}" if one.exit_code is not None else ""
    quiet = "no output yet"
    if one.silent_seconds is not None:
        quiet = f"last output {one.silent_seconds:.0f} s ago"
    return Text(f"Session {one.session_id}: {state}{code}; {quiet}.")


@render.register
def _(one: seen.Idle) -> Text:
    state = "is idle" if one.is_idle else f"is busy with {one.command!r}"
    return Text(f"Session {one.session_id} {state}.")


@render.register
def _(one: seen.Killed) -> Text:
    names = ", ".join(one.killed_processes) or "nothing was running"
    still = "; the command still runs, use force=true" if one.running else ""
    return Text(f"Session {one.session_id}: sent {one.signal_used} to: {names}{still}.")


@render.register
def _(one: seen.FileWindow) -> Text:
    done = {"created": "Created ", "replaced": "Replaced ", "edited": "Edited "}.get(one.change, "")
    if one.binary:
        return Text(f"{done}{one.path}: binary, {one.size} bytes; not shown. {one.note}".rstrip())
    total = "?" if one.total_lines is None else str(one.total_lines)
    span = f"lines {one.first_line}-{one.last_line} of {total}"
    if one.total_lines == 0:
        span = "empty"
    flaw = " Bytes that are not UTF-8 are shown as \ufffd." if one.invalid_utf8 else ""
    head = f"[{done}{one.path}: {span}, {one.size} bytes]{flaw} {one.note}".rstrip()
    return Text(head, one.content, "file_goto_line shows any line")


@render.register
def _(one: seen.Listing) -> Text:
    more = one.total - len(one.entries)
    tail = f", {more} more not listed" if more else ""
    hidden = f", {one.hidden} hidden" if one.hidden else ""
    noun = "entry" if one.total == 1 else "entries"
    head = f"{one.path}: {one.total} {noun}{hidden}{tail}"
    how = "list a folder below, or find_file with a pattern"
    return Text(head, "\n".join(map(_entry, one.entries)), how)


def _entry(entry: seen.Entry) -> str:
    if entry.type == "folder":
        return f"{entry.name}/"
    if entry.type == "link":
        return f"{entry.name} -> {entry.target}"
    return f"{entry.name}  {entry.size}" if entry.type == "file" else f"{entry.name}  (special)"


@render.register
def _(one: seen.Matches) -> Text:
    lines = [f"{match.path}:{match.line}: {match.text}" for match in one.matches]
    head = f"{_count(one.total_results, one.complete, 'line')} with {one.query!r} in {one.path}"
    more = one.total_results - len(lines)
    tail = f"; the first {len(lines)}:" if more else ":" if lines else "."
    note = f" {one.note}" if one.note else ""
    return Text(head + tail + note, "\n".join(lines), "search a smaller folder")


@render.register
def _(one: seen.Found) -> Text:
    head = f"{_count(one.total_results, one.complete, 'file')} named {one.query!r} in {one.path}"
    tail = f"; the first {len(one.paths)}:" if one.total_results > len(one.paths) else ":"
    return Text(head + (tail if one.paths else "."), "\n".join(one.paths), "use a narrower pattern")


def _count(number: int, complete: bool, noun: str) -> str:
    least = "" if complete else "At least "
    return f"{least}{number or 'no'} {noun}{'' if number == 1 else 's'}".capitalize()


@render.register
def _(one: seen.Info) -> Text:
    if not one.path:
        return Text("No file is open.")
    total = "?" if one.total_lines is None else one.total_lines
    shown = f"lines {one.first_line}-{one.last_line} of {total} were shown last"
    return Text(f"Open: {one.path}, {one.size} bytes; {shown}.")


@render.register
def _(one: seen.Thought) -> Text:
    return Text("Noted.")


@render.register
def _(one: seen.Slept) -> Text:
    why = {
        "time": "",
        "wake": "; it ended because a person spoke",
        "interrupt": "; it was interrupted by a person",
        "budget": "; it ended because the time budget is spent",
    }[one.ended_by]
    away = " The daemon was away for part of it." if one.away else ""
    return Text(f"Slept {one.slept:.1f} of {one.asked:.0f} s{why}.{away}")


@render.register
def _(one: seen.Scored) -> Text:
    left = f"{one.left} submission{'' if one.left == 1 else 's'} left"
    if one.state != "scored":
        return Text(f"Error: {one.error} No submission was used; {left}.")
    lines = [f"{name}: {value}" for name, value in one.metrics.items()]
    return Text(f"overall_score: {one.overall_score:g} of 100 ({left})", "\n".join(lines))


@render.register
def _(one: seen.Finish) -> Text:
    return Text("Finished." if one.finished else f"Error: {one.error}")
