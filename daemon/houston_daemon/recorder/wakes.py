"""Ending the recorder's sleep from another thread: a pipe that its polls listen to."""

import contextlib
import os


class Wakes:
    """Written from any thread, read by the recorder's."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the sleep; from any thread."""
        try:
            os.write(self._end, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wakes already

    def hear(self) -> None:
        """Take in every wake so far."""
        with contextlib.suppress(BlockingIOError):  # a message or the clock woke us, nobody else
            os.read(self.descriptor, 65_536)

    def close(self) -> None:
        """Nobody may wake afterwards."""
        os.close(self.descriptor)
        os.close(self._end)
