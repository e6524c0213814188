"""The seven parse actions: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments

Source = Annotated[
    str, Meta(min_length=1, max_length=300, description="File inside the workspace.")
]
Target = Annotated[
    str,
    Meta(min_length=1, max_length=300, description="Where the text is written, in the workspace."),
]
Task = Annotated[
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
    task: Task


class ParseVideo(ParseAction, frozen=True, kw_only=True):
    """Ask about a video, by frames at a distance."""

    name: ClassVar[str] = "parse_video"
    task: Task
    frame_interval: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Every how many frames one is looked at.")
    ] = 30


PARSE_ACTIONS: tuple[type[ParseAction], ...] = (
    ParsePdf,
    ParseDocx,
    ParseLatex,
    ParsePptx,
    ParseAudio,
    ParseImage,
    ParseVideo,
)
