"""What the actions of agents use on a node besides hosts, as `houston.toml` has it: `[tools]`."""

from typing import Annotated

import msgspec

from houston_shared.toml_file import Settings


class SearchTool(Settings, frozen=True):
    """Where `web_search` looks; without a provider it says that none is configured."""

    provider: str = ""
    """`serper`, `tavily`, `bing`, `searxng`, or `corpus` for a local one; empty for the corpus of
    the task or of this section, if there is one."""
    url: str = ""
    """Address of the provider; empty for its public one (`searxng` has none and needs it)."""
    api_key_env: str = ""
    """Environment variable that holds the provider's key; the key itself is never stored."""
    cache_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 86_400.0
    """How old a kept answer may be that is given again to any rollout of this host; 0 keeps
    none."""
    cache_mb: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 256
    """Largest size of the kept answers, in MB of 1,048,576 bytes; the oldest make room."""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    """Longest time that one search may take, with its repetitions."""
    corpus: str = ""
    """Folder of text, Markdown and HTML files, or a JSON Lines file, from the folder of this file;
    a task's own `[search] corpus` comes first."""


class BrowseTool(Settings, frozen=True):
    """Limits of `web_browse`."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    """Longest time that one page may take, with its redirects."""
    megabytes: Annotated[float, msgspec.Meta(gt=0, le=1_024)] = 10.0
    """Most of a page that is read, in MB of 1,048,576 bytes; the rest is left and said so."""
    cache_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 3_600.0
    """How old a kept page may be that is shown again; 0 keeps none."""
    cache_mb: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 256
    """Largest size of the kept pages, in MB of 1,048,576 bytes; the oldest make room."""
    proxy_env: str = ""
    """Environment variable that holds the address of a proxy, such as `HTTPS_PROXY`; empty goes
    straight, whatever the environment says. A proxy resolves names itself: its operator decides
    which private addresses can be reached through it."""
    user_agent: str = ""
    """What the request says of itself; empty for Houston's own name."""


class MultimodalTool(Settings, frozen=True):
    """The OpenAI-compatible endpoint that reads images, audio and video; without a `url` those
    actions say that none is configured."""

    url: str = ""
    """Base address, e.g. `http://127.0.0.1:8000/v1`."""
    model: str = ""
    """Model that reads images and the frames of videos (`/chat/completions`)."""
    audio_model: str = "whisper-1"
    """Model that writes down speech (`/audio/transcriptions`)."""
    api_key_env: str = ""
    """Environment variable that holds the key; the key itself is never stored."""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 120.0
    """Longest time that one request may take."""


class Tools(Settings, frozen=True):
    """What the actions of agents use on this node besides hosts."""

    search: SearchTool = SearchTool()
    browse: BrowseTool = BrowseTool()
    multimodal: MultimodalTool = MultimodalTool()
