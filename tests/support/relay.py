"""A TCP relay between a worker and the recorder that goes wrong on order.

Bytes pass as they come. `cut` ends every connection and lets nobody in until `heal`; `hang` keeps
them and passes nothing on, as a tunnel whose far end is gone; `harm` does one of the two below to
the next piece of a worker that is large, or of the recorder.
"""

import contextlib
import socket
import threading
from typing import Literal

Harm = Literal["", "half", "flip"]
"""half: half of a piece passes, then the connection ends. flip: one bit of it is another."""
LARGE = 500
"""Bytes of a piece that is more than a handshake or a heartbeat."""


class Relay:
    """Listens on the loopback in front of `port`."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._passing = threading.Event()
        self._passing.set()
        self._hanging: list[threading.Event] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._harm: Harm = ""
        self._harms_answers = False
        self._harmed = threading.Event()
        self.connections = 0
        """How many were made through it so far."""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()
        self._end_all()

    def heal(self) -> None:
        self._open.set()

    def hang(self) -> None:
        """Those that are there pass nothing any more; later ones do."""
        self._passing.clear()
        self._hanging.append(self._passing)
        self._passing = threading.Event()
        self._passing.set()

    def release(self) -> None:
        """What hung passes what it was given."""
        for each in self._hanging:
            each.set()

    def harm(self, how: Harm, answers: bool = False) -> threading.Event:
        """Harm the next large piece of a worker, or the recorder's next; set when it was."""
        self._harmed = threading.Event()
        self._harm, self._harms_answers = how, answers
        return self._harmed

    def close(self) -> None:
        self._listener.close()
        self._end_all()
        self.release()

    def _end_all(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                front, _ = self._listener.accept()
                if not self._open.is_set():
                    front.close()
                    continue
                with contextlib.suppress(ConnectionRefusedError):
                    self._join(front, socket.create_connection(("127.0.0.1", self._behind)))
                    continue
                front.close()

    def _join(self, front: socket.socket, back: socket.socket) -> None:
        self.connections += 1
        with self._lock:
            self._sockets += [front, back]
        passing = self._passing
        for ends in ((front, back, False), (back, front, True)):
            threading.Thread(target=self._pump, args=(*ends, passing), daemon=True).start()

    def _pump(
        self, source: socket.socket, target: socket.socket, answers: bool, passing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                passing.wait()
                meant = answers if self._harms_answers else not answers and len(piece) > LARGE
                harm = self._harm if meant else ""
                if harm:
                    self._harm = ""
                    middle = len(piece) // 2
                    if harm == "flip":
                        piece = piece[:middle] + bytes([piece[middle] ^ 1]) + piece[middle + 1 :]
                    else:
                        piece = piece[:middle]
                target.sendall(piece)
                if harm:
                    self._harmed.set()
                    if harm == "half":
                        break
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
