"""What the package index says beside the version: where the source is, and the README with links
that lead there. Run by hatchling at every build; imported by nothing.

Where the source is, is no fact of the source: HOUSTON_REPOSITORY names it, else the remote `origin`
of the checkout. Where neither is there (a build out of an archive), nothing is invented: the
metadata has no URLs, and links to files are plain words.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A link or a picture whose target is a file of the repository."""


class SourceMetadata(MetadataHookInterface):
    """Fills `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the table `project`."""
        root = Path(self.root)
        repository = find_repository(root)
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, repository),
        }
        metadata["urls"] = source_urls(repository)


def find_repository(root: Path) -> str:
    """The https address of the repository, without user, password and `.git`; empty for none."""
    named = os.environ.get("HOUSTON_REPOSITORY", "")
    if not named and (root / ".git").exists():
        command = ["git", "-C", str(root), "remote", "get-url", "origin"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return ""  # no git here
        named = run.stdout.strip()
    address = re.fullmatch(
        r"(?:https?://|ssh://|git://)?(?:[^@/]*@)?([\w.-]+\.[a-z]+)(?::\d+)?[:/](.+?)(?:\.git)?/?",
        named,
    )
    return f"https://{address[1]}/{address[2]}" if address else ""


def with_absolute_links(text: str, repository: str) -> str:
    """The README as it reads away from its repository."""

    def replace(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if not repository:
            return "" if picture else words
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({repository}/{kind}/HEAD/{target})"

    return LINK.sub(replace, text)


def source_urls(repository: str) -> dict[str, str]:
    """`[project.urls]`, with the labels that package indexes know."""
    if not repository:
        return {}
    return {
        "Source": repository,
        "Issues": f"{repository}/issues",
        "Documentation": f"{repository}/tree/HEAD/docs",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
    }
