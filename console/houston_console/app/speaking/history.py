"""What a person said before, to walk through in the composer as in a shell. Pure."""

from collections.abc import Sequence


class History:
    """Messages, the newest last, and where in them the composer stands."""

    def __init__(self, said: Sequence[str] = ()) -> None:
        self._said: list[str] = []
        self._at = 0
        self._draft = ""
        self.take(said)

    def take(self, said: Sequence[str]) -> None:
        """Know these messages; the same text is there once, where it was said last."""
        if not self.walking:
            self._said = list(dict.fromkeys(reversed(said)))[::-1]
            self._at = len(self._said)

    @property
    def walking(self) -> bool:
        """Whether the composer shows a message from before."""
        return self._at < len(self._said)

    def older(self, text: str) -> str | None:
        """The message before; None at the first. text: what the composer holds now."""
        if self._at == 0:
            return None
        if not self.walking:
            self._draft = text
        self._at -= 1
        return self._said[self._at]

    def newer(self) -> str | None:
        """The message after, then what had been typed before walking; None when not walking."""
        if not self.walking:
            return None
        self._at += 1
        return self._said[self._at] if self.walking else self._draft

    def leave(self) -> None:
        """What is shown was changed or sent: it is a text of its own."""
        self._at = len(self._said)
