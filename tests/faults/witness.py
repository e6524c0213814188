"""What workers say and hear, written down by themselves and read back as a history.

`attend` wraps the worker's line to the recorder and its questions to the engine; nothing of what
it writes comes from the database.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from houston_daemon.agent import recorder_client, sample_requests
from houston_daemon.recorder.handlers.ingest_handlers import find_event_slot
from houston_shared import wire
from tests.faults.history import Acked, Heard, History, Key, Prompt


def words(record: object) -> str:
    """Hash of a record as it is encoded."""
    return hashlib.sha256(wire.encode_message(record)).hexdigest()[:24]


def attend(file: str) -> None:
    """From now on every worker of this process writes to `file`."""
    ask, sample = recorder_client.IngestSocket.ask, sample_requests.PolicySampler.sample

    def say(**fields: Any) -> None:
        # A line cut by a kill spoils only itself: each begins with its own line feed.
        data = ("\n" + json.dumps(fields)).encode()
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, data)
        os.close(descriptor)

    async def asked(self: Any, message: Any, kind: Any) -> Any:
        place = find_event_slot(message)
        if place is None:
            return await ask(self, message, kind)
        what = {"key": list(place.key), "words": words(place.worker_record)}
        say(sent=what, pid=os.getpid(), lease=message.lease)
        reply = await ask(self, message, kind)
        heard = [[one.id, one.text] for one in reply.guidance]
        say(acked=what, seq=reply.seq, duplicate=reply.duplicate, heard=heard, pid=os.getpid())
        return reply

    async def sampled(self: Any, request: Any, interruptible: bool = True) -> Any:
        if request.role == "policy":
            ids = request.prompt_ids
            prompt = words([list(request.messages), None if ids is None else list(ids)])
            say(prompt=[self.line.rollout, request.step, prompt], pid=os.getpid())
        return await sample(self, request, interruptible)

    recorder_client.IngestSocket.ask = asked  # type: ignore[method-assign]
    sample_requests.PolicySampler.sample = sampled  # type: ignore[method-assign]


def read(file: Path, history: History) -> set[int]:
    """Add what workers wrote to a history; returns their process ids."""
    pids = set()
    for text in file.read_text(encoding="utf-8").split("\n") if file.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:  # the empty first line, and one that a kill cut
            continue
        pids.add(line["pid"])
        if "sent" in line:
            history.sent.add((Key(*line["sent"]["key"]), line["sent"]["words"]))
        elif "acked" in line:
            heard = tuple(Heard(*one) for one in line["heard"])
            key, said = Key(*line["acked"]["key"]), line["acked"]["words"]
            history.acked.append(Acked(key, said, line["seq"], line["duplicate"], heard))
        else:
            history.prompts.append(Prompt(*line["prompt"]))
    return pids
