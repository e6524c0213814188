"""The worker of a recorded rollout: sends its worker's messages again, through the same sockets.

`python -m houston_daemon.demo.recording_player --endpoint E --rollout R --lease N`. It resumes
where the journal ends, like any worker: messages stored before are answered as duplicates. Guidance
goes over `control`, under the recorded author's name, which is therefore marked unverified.
"""

import argparse
import itertools
import os
from pathlib import Path
from typing import Any

import msgspec
import zmq

from houston_daemon.demo.rollout_recording import read_recording
from houston_shared import wire
from houston_shared.records import ForkBody, SampleBody

_ANSWER_SECONDS = 60


class RequestSocket:
    """A DEALER that asks and waits for the answer to that question."""

    def __init__(self, endpoint: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self._ids = itertools.count(1)

    def ask(self, message: wire.WireMessage) -> bytes:
        """The body of the answer; raises TimeoutError when none comes."""
        request = next(self._ids).to_bytes(8, "big")
        self._socket.send_multipart([request, wire.encode_message(message)])
        while self._socket.poll(_ANSWER_SECONDS * 1000):
            frames = self._socket.recv_multipart()
            if frames[0] == request:
                return bytes(frames[1])
        raise TimeoutError(f"no answer within {_ANSWER_SECONDS} s")


class RecordingPlayer:
    """Plays one recording into one rollout."""

    def __init__(self, endpoint: str, rollout: str, lease: int) -> None:
        self._ingest = RequestSocket(endpoint)
        self._control = RequestSocket(endpoint.replace("ingest.sock", "control.sock"))
        self._place: dict[str, Any] = {"rollout": rollout, "lease": lease}
        self._seqs: dict[int, int] = {}
        self._spoken = itertools.count(1)

    def play(self) -> None:
        """Say hello, then every message of the recording that the spec names."""
        welcome = self._tell(wire.Hello(**self._place, pid=os.getpid()))
        if not isinstance(welcome, wire.Welcome):
            raise SystemExit(f"not welcome: {welcome}")
        recording = Path(str(welcome.spec.engine_settings["path"]))
        for line in read_recording(recording):
            if isinstance(line.message, wire.Guide):
                self._speak(line.message)
            else:
                self._seqs[line.seq] = self._store(line.message)
        self._tell(wire.StoreState(**self._place, state="finished", reason="recorded sample"))

    def _speak(self, guide: wire.Guide) -> None:
        rollout = str(self._place["rollout"])
        id = f"{rollout}-recorded-{next(self._spoken)}"
        self._control.ask(msgspec.structs.replace(guide, id=id, rollout=rollout))

    def _store(self, message: Any) -> int:
        changes: dict[str, Any] = dict(self._place)
        match message:
            case wire.StoreSample(sample=SampleBody(parent_seq=int(parent)) as sample):
                changes["sample"] = msgspec.structs.replace(sample, parent_seq=self._seqs[parent])
            case wire.StoreFork(fork=ForkBody(sample_seq=int(seq)) as fork):
                changes["fork"] = msgspec.structs.replace(fork, sample_seq=self._seqs[seq])
        answer = self._tell(msgspec.structs.replace(message, **changes))
        if not isinstance(answer, wire.Ack):
            raise SystemExit(f"{type(message).__name__} was refused: {answer}")
        return answer.seq

    def _tell(self, message: wire.FromWorker) -> wire.IngestReply:
        answer: wire.IngestReply = wire.ingest_reply_decoder.decode(self._ingest.ask(message))
        return answer


def main() -> None:
    """Play the recording of the rollout named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--rollout", required=True)
    parser.add_argument("--lease", type=int, required=True)
    arguments, _ = parser.parse_known_args()
    RecordingPlayer(arguments.endpoint, arguments.rollout, arguments.lease).play()


if __name__ == "__main__":
    main()
