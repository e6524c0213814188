"""Where a server is told that a policy's adapter lies: a path that says what the adapter is.

A server outlives homes. One that is deleted and built anew, or restored, at the same path counts
its policies from 2 again, and a server that has loaded `policies/policy@2` tells that path for
either. So a link is loaded whose path has the content's hash in it,
`policies/.by-hash/HASH/policy@2` → `../../policy@2`, and the path that the server tells (`root` of
`/v1/models`) says which weights it has. That the folder holds what its hash says is checked
elsewhere.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

BY_HASH = ".by-hash"


@dataclass(frozen=True, slots=True)
class AdapterPlace:
    """One adapter."""

    folder: str
    """Its files, in a folder of the policy's name."""
    content: str = ""
    """Hash of its files; empty where nobody knows: then the folder alone tells adapters apart."""

    @property
    def path(self) -> str:
        """What a server is told to load."""
        if not self._known:
            return self.folder
        folder = Path(self.folder).absolute()
        return str(folder.parent / BY_HASH / self.content / folder.name)

    def made(self) -> str:
        """The same, once it is there. Raises OSError where it cannot be made."""
        link = Path(self.path)
        if self._known and not link.is_symlink():
            folder = Path(self.folder)
            folder.stat()  # no tree of folders for what is not there
            link.parent.parent.mkdir(mode=0o700, exist_ok=True)
            link.parent.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another process was first
                link.symlink_to(Path("../..", folder.name), target_is_directory=True)
        return self.path

    def is_at(self, root: str) -> bool:
        """Whether a server that loaded `root` has these very weights."""
        if not self._known:
            return _same(root, self.folder)
        return Path(root).parts[-3:] == Path(self.path).parts[-3:]

    def was_at(self, root: str) -> bool:
        """Whether `root` is this place with weights that may be others: of an earlier home at the
        same path, or loaded by the folder's own name, which says nothing."""
        told = Path(root)
        if told.parent.parent.name == BY_HASH:
            told = told.parent.parent.parent / told.name
        return _same(told, self.folder)

    @property
    def _known(self) -> bool:
        return self.content.isalnum()  # what becomes a part of a path


def _same(one: str | Path, other: str | Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
