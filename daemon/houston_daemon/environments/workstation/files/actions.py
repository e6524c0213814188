"""The eleven file actions: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments

_LINE = 1_000_000_000
Path = Annotated[str, Meta(min_length=1, max_length=300, description="Path inside the workspace.")]
Line = Annotated[int, Meta(ge=1, le=_LINE, description="Line number, from 1.")]
Term = Annotated[str, Meta(min_length=1, max_length=200, description="Literal text.")]
Content = Annotated[str, Meta(max_length=8_000, description="The text.")]


class FileAction(Arguments, frozen=True, kw_only=True):
    """Base of the file actions."""

    family: ClassVar[str] = "file"


class OpenFile(FileAction, frozen=True, kw_only=True):
    """Open a file and show numbered lines."""

    name: ClassVar[str] = "open_file"
    path: Path
    line_number: Line = 1
    context_lines: Annotated[int, Meta(ge=1, le=1_000, description="Lines to show.")] = 100


class FileGotoLine(FileAction, frozen=True, kw_only=True):
    """Show the open file from a line on."""

    name: ClassVar[str] = "file_goto_line"
    line_number: Line


class FileScrollDown(FileAction, frozen=True, kw_only=True):
    """Show the next lines of the open file."""

    name: ClassVar[str] = "file_scroll_down"


class FileScrollUp(FileAction, frozen=True, kw_only=True):
    """Show the lines before."""

    name: ClassVar[str] = "file_scroll_up"


class CreateFile(FileAction, frozen=True, kw_only=True):
    """Write a whole file, with its folders."""

    name: ClassVar[str] = "create_file"
    filename: Path
    content: Content


class EditFile(FileAction, frozen=True, kw_only=True):
    """Replace lines start to end; end = start - 1 inserts."""

    name: ClassVar[str] = "edit_file"
    path: Path
    start: Annotated[int, Meta(ge=1, le=_LINE, description="First line to replace.")]
    end: Annotated[int, Meta(ge=0, le=_LINE, description="Last line to replace.")]
    content: Content


class SearchDir(FileAction, frozen=True, kw_only=True):
    """Find text in the files of a folder."""

    name: ClassVar[str] = "search_dir"
    search_term: Term
    dir_path: Path = "."


class SearchFile(FileAction, frozen=True, kw_only=True):
    """Find text in one file."""

    name: ClassVar[str] = "search_file"
    search_term: Term
    file_path: Path


class FindFile(FileAction, frozen=True, kw_only=True):
    """Find files by name; * and ? are wildcards."""

    name: ClassVar[str] = "find_file"
    file_name: Annotated[str, Meta(min_length=1, max_length=200, description="Name or pattern.")]
    dir_path: Path = "."


class ListFiles(FileAction, frozen=True, kw_only=True):
    """List one folder."""

    name: ClassVar[str] = "list_files"
    path: Path = "."
    show_hidden: Annotated[bool, Meta(description="Also names that begin with a dot.")] = False


class GetFileInfo(FileAction, frozen=True, kw_only=True):
    """Tell which file is open, and where."""

    name: ClassVar[str] = "get_file_info"


FILE_ACTIONS: tuple[type[FileAction], ...] = (
    OpenFile,
    FileGotoLine,
    FileScrollDown,
    FileScrollUp,
    CreateFile,
    EditFile,
    SearchDir,
    SearchFile,
    FindFile,
    ListFiles,
    GetFileInfo,
)
