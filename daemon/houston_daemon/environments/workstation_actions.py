"""Every action of the workstation as a type: its arguments, and whether it can change files.

Rules and the agent's loop import this to learn what a call can do, so it imports nothing heavy.
"""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.retrieval.retrieval_protocol import MAX_HITS, MAX_QUERY_CHARACTERS
from houston_daemon.environments.tool_arguments import Arguments

MAIN = "main"
"""The session that commands use when none is named."""

Session = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=24,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,23}$",
        description="Name of the session.",
    ),
]
MAX_WINDOW_LINES = 100_000
Lines = Annotated[int, Meta(ge=0, le=MAX_WINDOW_LINES)]


class CommandAction(Arguments, frozen=True, kw_only=True):
    """Base of the command actions."""

    family: ClassVar[str] = "command"


class CreateSession(CommandAction, frozen=True, kw_only=True):
    """Open a terminal session; run_command also opens one that is new."""

    name: ClassVar[str] = "create_session"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    session_id: Session


class ListSessions(CommandAction, frozen=True, kw_only=True):
    """List sessions and what runs in them."""

    name: ClassVar[str] = "list_sessions"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True


class RunCommand(CommandAction, frozen=True, kw_only=True):
    """Run a shell command; a long one is left running."""

    name: ClassVar[str] = "run_command"
    command: Annotated[
        str, Meta(min_length=1, max_length=2_000, description="Shell command, bash.")
    ]
    session_id: Session = MAIN
    wait_for_completion: Annotated[
        bool, Meta(description="false: return at once and leave it running.")
    ] = True


class InputInSession(CommandAction, frozen=True, kw_only=True):
    """Answer a prompt of the running command; Enter is added."""

    name: ClassVar[str] = "input_in_session"
    input_text: Annotated[str, Meta(max_length=1_000, description="What to type.")]
    session_id: Session = MAIN


class GetSessionOutput(CommandAction, frozen=True, kw_only=True):
    """Show output lines, counted back from the newest."""

    name: ClassVar[str] = "get_session_output"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    session_id: Session = MAIN
    start_lines: Annotated[Lines, Meta(description="First line, counted from the end.")] = 50
    end_lines: Annotated[Lines, Meta(description="Lines left out at the end.")] = 0
    since_timestamp: Annotated[
        int, Meta(ge=0, le=99_999_999_999, description="Unix time; only output after it.")
    ] = 0


class GetSessionRecentOutput(CommandAction, frozen=True, kw_only=True):
    """Show output of the last seconds."""

    name: ClassVar[str] = "get_session_recent_output"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    session_id: Session = MAIN
    seconds: Annotated[int, Meta(ge=1, le=86_400, description="How far back.")] = 10


class GetSessionStatus(CommandAction, frozen=True, kw_only=True):
    """Tell whether a session is alive and busy."""

    name: ClassVar[str] = "get_session_status"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    session_id: Session = MAIN


class CheckSessionIdle(CommandAction, frozen=True, kw_only=True):
    """Tell whether nothing runs in a session."""

    name: ClassVar[str] = "check_session_idle"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    session_id: Session = MAIN


class ClearSessionBuffer(CommandAction, frozen=True, kw_only=True):
    """Hide a session's output so far."""

    name: ClassVar[str] = "clear_session_buffer"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    session_id: Session = MAIN


class CloseSession(CommandAction, frozen=True, kw_only=True):
    """Close a session and end what runs in it."""

    name: ClassVar[str] = "close_session"
    writes: ClassVar[bool] = False
    session_id: Session


class CloseAllSessions(CommandAction, frozen=True, kw_only=True):
    """Close every session."""

    name: ClassVar[str] = "close_all_sessions"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True


class KillSessionProcesses(CommandAction, frozen=True, kw_only=True):
    """End the running command; the session stays."""

    name: ClassVar[str] = "kill_session_processes"
    writes: ClassVar[bool] = False
    session_id: Session = MAIN
    force: Annotated[bool, Meta(description="true: kill at once (SIGKILL).")] = False


COMMAND_ACTIONS = tuple(CommandAction.__subclasses__())


_LINE = 1_000_000_000
FilePath = Annotated[
    str, Meta(min_length=1, max_length=300, description="Path inside the workspace.")
]
Line = Annotated[int, Meta(ge=1, le=_LINE, description="Line number, from 1.")]
Term = Annotated[str, Meta(min_length=1, max_length=200, description="Literal text.")]
Content = Annotated[str, Meta(max_length=8_000, description="The text.")]


class FileAction(Arguments, frozen=True, kw_only=True):
    """Base of the file actions."""

    family: ClassVar[str] = "file"


class OpenFile(FileAction, frozen=True, kw_only=True):
    """Open a file and show numbered lines."""

    name: ClassVar[str] = "open_file"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    path: FilePath
    line_number: Line = 1
    context_lines: Annotated[int, Meta(ge=1, le=1_000, description="Lines to show.")] = 100


class FileGotoLine(FileAction, frozen=True, kw_only=True):
    """Show the open file from a line on."""

    name: ClassVar[str] = "file_goto_line"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    line_number: Line


class FileScrollDown(FileAction, frozen=True, kw_only=True):
    """Show the next lines of the open file."""

    name: ClassVar[str] = "file_scroll_down"
    writes: ClassVar[bool] = False


class FileScrollUp(FileAction, frozen=True, kw_only=True):
    """Show the lines before."""

    name: ClassVar[str] = "file_scroll_up"
    writes: ClassVar[bool] = False


class CreateFile(FileAction, frozen=True, kw_only=True):
    """Write a whole file, with its folders."""

    name: ClassVar[str] = "create_file"
    filename: FilePath
    content: Content


class EditFile(FileAction, frozen=True, kw_only=True):
    """Replace lines start to end; end = start - 1 inserts."""

    name: ClassVar[str] = "edit_file"
    path: FilePath
    start: Annotated[int, Meta(ge=1, le=_LINE, description="First line to replace.")]
    end: Annotated[int, Meta(ge=0, le=_LINE, description="Last line to replace.")]
    content: Content


class SearchDir(FileAction, frozen=True, kw_only=True):
    """Find text in the files of a folder."""

    name: ClassVar[str] = "search_dir"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    search_term: Term
    dir_path: FilePath = "."


class SearchFile(FileAction, frozen=True, kw_only=True):
    """Find text in one file."""

    name: ClassVar[str] = "search_file"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    search_term: Term
    file_path: FilePath


class FindFile(FileAction, frozen=True, kw_only=True):
    """Find files by name; * and ? are wildcards."""

    name: ClassVar[str] = "find_file"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    file_name: Annotated[str, Meta(min_length=1, max_length=200, description="Name or pattern.")]
    dir_path: FilePath = "."


class ListFiles(FileAction, frozen=True, kw_only=True):
    """List one folder."""

    name: ClassVar[str] = "list_files"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    path: FilePath = "."
    show_hidden: Annotated[bool, Meta(description="Also names that begin with a dot.")] = False


class GetFileInfo(FileAction, frozen=True, kw_only=True):
    """Tell which file is open, and where."""

    name: ClassVar[str] = "get_file_info"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True


FILE_ACTIONS = tuple(FileAction.__subclasses__())


Source = Annotated[
    str, Meta(min_length=1, max_length=300, description="File inside the workspace.")
]
Target = Annotated[
    str,
    Meta(min_length=1, max_length=300, description="Where the text is written, in the workspace."),
]
Question = Annotated[
    str, Meta(min_length=1, max_length=4_000, description="What to find out or to describe.")
]


class ParseAction(Arguments, frozen=True, kw_only=True):
    """Base of the parse actions."""

    family: ClassVar[str] = "parse"
    file_path: Source
    save_path: Target


class ParsePdf(ParseAction, frozen=True, kw_only=True):
    """Convert a PDF to text."""

    name: ClassVar[str] = "parse_pdf"


class ParseDocx(ParseAction, frozen=True, kw_only=True):
    """Convert a DOCX to Markdown."""

    name: ClassVar[str] = "parse_docx"


class ParseLatex(ParseAction, frozen=True, kw_only=True):
    """Convert LaTeX to Markdown."""

    name: ClassVar[str] = "parse_latex"


class ParsePptx(ParseAction, frozen=True, kw_only=True):
    """Convert a PPTX to Markdown."""

    name: ClassVar[str] = "parse_pptx"


class ParseAudio(ParseAction, frozen=True, kw_only=True):
    """Write down speech."""

    name: ClassVar[str] = "parse_audio"
    model: Annotated[
        str, Meta(max_length=200, description="Model that listens; empty for the node's own.")
    ] = ""


class ParseImage(ParseAction, frozen=True, kw_only=True):
    """Ask about a picture."""

    name: ClassVar[str] = "parse_image"
    task: Question


class ParseVideo(ParseAction, frozen=True, kw_only=True):
    """Ask about a video, by frames at a distance."""

    name: ClassVar[str] = "parse_video"
    task: Question
    frame_interval: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Every how many frames one is looked at.")
    ] = 30


PARSE_ACTIONS = tuple(ParseAction.__subclasses__())


class SearchAction(Arguments, frozen=True, kw_only=True):
    """Base of the search actions."""

    family: ClassVar[str] = "search"


class WebSearch(SearchAction, frozen=True, kw_only=True):
    """Search the web, best results first; web_browse opens an address."""

    name: ClassVar[str] = "web_search"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    query: Annotated[
        str, Meta(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="What to search for.")
    ]
    top_k: Annotated[int, Meta(ge=1, le=MAX_HITS, description="Most results.")] = 10


SEARCH_ACTIONS = tuple(SearchAction.__subclasses__())


Context = Annotated[
    int, Meta(ge=0, le=100, description="Lines shown before and after the line found.")
]


class BrowseAction(Arguments, frozen=True, kw_only=True):
    """Base of the browse actions."""

    family: ClassVar[str] = "browse"


class WebBrowse(BrowseAction, frozen=True, kw_only=True):
    """Open a web page, PDF or text by its address."""

    name: ClassVar[str] = "web_browse"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    url: Annotated[str, Meta(min_length=1, max_length=2_000, description="Address, http or https.")]
    line_number: Line = 1


class WebPageGotoLine(BrowseAction, frozen=True, kw_only=True):
    """Show the open page from a line on."""

    name: ClassVar[str] = "web_page_goto_line"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    line_number: Line


class WebPageScrollDown(BrowseAction, frozen=True, kw_only=True):
    """Show its next lines."""

    name: ClassVar[str] = "web_page_scroll_down"
    writes: ClassVar[bool] = False


class WebPageScrollUp(BrowseAction, frozen=True, kw_only=True):
    """Show its lines before."""

    name: ClassVar[str] = "web_page_scroll_up"
    writes: ClassVar[bool] = False


class WebPageSearch(BrowseAction, frozen=True, kw_only=True):
    """Find text in the open page."""

    name: ClassVar[str] = "web_page_search"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    keyword: Annotated[
        str,
        Meta(min_length=1, max_length=200, description="Literal text; case does not matter."),
    ]
    context_lines: Context = 5


class WebPageSearchNext(BrowseAction, frozen=True, kw_only=True):
    """Show the next find, or another."""

    name: ClassVar[str] = "web_page_search_next"
    writes: ClassVar[bool] = False
    context_lines: Context = 5
    search_index: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Which find to show, from 1; 0 for the next.")
    ] = 0


class WebPageGetLinks(BrowseAction, frozen=True, kw_only=True):
    """List its links; [n] in the text is link n."""

    name: ClassVar[str] = "web_page_get_links"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    page_size: Annotated[int, Meta(ge=1, le=200, description="Links in one list.")] = 50
    page_number: Annotated[int, Meta(ge=1, le=1_000_000, description="Which list, from 1.")] = 1


BROWSE_ACTIONS = tuple(BrowseAction.__subclasses__())


class SystemAction(Arguments, frozen=True, kw_only=True):
    """Base of the system actions."""

    family: ClassVar[str] = "system"


class Think(SystemAction, frozen=True, kw_only=True):
    """Write a thought down; never twice in a row."""

    name: ClassVar[str] = "think"
    writes: ClassVar[bool] = False
    thought: Annotated[str, Meta(min_length=1, max_length=4_000, description="The thought")]


class Sleep(SystemAction, frozen=True, kw_only=True):
    """Wait while something runs."""

    name: ClassVar[str] = "sleep"
    writes: ClassVar[bool] = False
    sleep_time: Annotated[int, Meta(ge=1, le=86_400, description="Seconds.")]


class Eval(SystemAction, frozen=True, kw_only=True):
    """Score the workspace; submissions are limited."""

    name: ClassVar[str] = "eval"
    writes: ClassVar[bool] = False


class Finish(SystemAction, frozen=True, kw_only=True):
    """End the task when it is done."""

    name: ClassVar[str] = "finish"
    writes: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True


SYSTEM_ACTIONS = tuple(SystemAction.__subclasses__())


ACTIONS: dict[str, type[Arguments]] = {
    action.name: action
    for action in (
        *COMMAND_ACTIONS,
        *FILE_ACTIONS,
        *PARSE_ACTIONS,
        *SEARCH_ACTIONS,
        *BROWSE_ACTIONS,
        *SYSTEM_ACTIONS,
    )
}
"""Every action of the workstation by name."""
SCORE_PRESERVING_ACTIONS = frozenset(("think", "eval", "finish"))
"""Calls after which a score still stands. No others: they take their time, in which what runs in a
terminal can write."""


def is_known_to_write(name: str) -> bool:
    """Whether it is one of our actions, and one that can change files."""
    return name in ACTIONS and ACTIONS[name].writes


def is_known_to_look(name: str) -> bool:
    """Whether it is one of our actions, and one that changes no file."""
    return name in ACTIONS and not ACTIONS[name].writes
