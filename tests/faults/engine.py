"""A small engine to be started, killed and found again:
`python engine.py PORT TOKENIZER [SEEN [TEXT]]`.

It speaks what the token client needs of vLLM's `/v1/completions`, and answers every prompt with
the same action, so that a request that is sent again has the same answer. Bodies of requests are
added to the file SEEN, a line each; while there is a file SEEN.hold, none is answered. Its text
ends with the stop token, which no action does; with TEXT it is an action.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

ACTION = '{"thought": "on", "calls": [{"name": "noop", "arguments": {"text": "again"}}]}<|im_end|>'


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.0"
    answer: list[int] = []
    seen: Path | None = None
    text = ACTION

    def do_GET(self) -> None:
        self._head("application/json")
        self.wfile.write(json.dumps({"data": [{"id": "small", "max_model_len": 8192}]}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(body)
        if self.seen:
            with self.seen.open("ab", buffering=0) as seen:
                seen.write(body + b"\n")
            while self.seen.with_suffix(".hold").exists():
                time.sleep(0.02)
        self._head("text/event-stream")
        first: dict[str, Any] = {"index": 0, "prompt_token_ids": asked["prompt"], "text": ""}
        rest = {
            "index": 0,
            "text": self.text,
            "token_ids": self.answer,
            "logprobs": {"token_logprobs": [-0.5] * len(self.answer)},
            "finish_reason": "stop",
        }
        for choice in (first, rest):
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        return  # nobody reads it

    def _head(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()


if __name__ == "__main__":
    Handler.answer = Tokenizer.from_file(sys.argv[2]).encode(ACTION).ids
    Handler.seen = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    Handler.text = sys.argv[4] if len(sys.argv) > 4 else ACTION
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
