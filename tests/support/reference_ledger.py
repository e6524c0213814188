"""The ledger read the slow and obvious way, to hold the fast ways against."""

import sqlite3
from pathlib import Path

import msgspec
import zstandard
from tokenizers import Tokenizer

from houston_shared.records import ContextHead, SampleBody


class Ledger:
    """Every sample of one rollout, straight from the journal; `role` is who decides in it."""

    def __init__(self, home: Path, rollout: str, role: str = "policy") -> None:
        self.role = role
        connection = sqlite3.connect(f"file:{home}/houston.db?mode=ro", uri=True)
        rows = connection.execute(
            "SELECT seq, step, kind, body, blob FROM events WHERE rollout = ?"
            " AND kind IN ('head', 'sample') ORDER BY seq",
            (rollout,),
        ).fetchall()
        connection.close()
        self.samples: dict[int, SampleBody] = {}
        self.step_of: dict[int, int] = {}
        for seq, step, kind, body, blob in rows:
            data = body if body is not None else _blob(home, blob)
            if kind == "head":
                self.head = msgspec.msgpack.decode(data, type=ContextHead)
            else:
                self.samples[seq] = msgspec.msgpack.decode(data, type=SampleBody)
                self.step_of[seq] = step
        self._sent: dict[int, list[int]] = {}

    def sent(self, seq: int) -> list[int]:
        """The prompt ids of one sample: kept prefix of its parent, then its new ids."""
        if seq not in self._sent:
            sample = self.samples[seq]
            prefix: list[int] = []
            if sample.parent_seq is not None:
                prefix = (self.sent(sample.parent_seq) + list(self._sampled(sample.parent_seq)))[
                    : sample.kept
                ]
            assert sample.new_prompt_ids is not None
            assert len(prefix) == sample.kept
            self._sent[seq] = prefix + list(sample.new_prompt_ids)
        return self._sent[seq]

    def _sampled(self, seq: int) -> tuple[int, ...]:
        ids = self.samples[seq].token_ids
        assert ids is not None
        return ids

    def policy(self) -> list[int]:
        """Sequences of the policy's samples, in order."""
        return [seq for seq, sample in self.samples.items() if sample.role == self.role]

    def prompt(self, step: int) -> list[int]:
        """The prompt ids of the policy's sample at `step`."""
        (seq,) = [seq for seq in self.policy() if self.step_of[seq] == step]
        return self.sent(seq)

    def decode(self, ids: list[int]) -> str:
        return str(Tokenizer.from_file(self.head.tokenizer).decode(ids, skip_special_tokens=False))

    def check(self) -> int:
        """prompt(t+1) begins with prompt(t) + sampled(t) for every clean step; how many there are.

        The first prompt is the head as stored; prompt lengths agree with what the engine counted.
        """
        order = self.policy()
        assert self.head.token_ids is not None
        clean = 0
        for before, after in zip([None, *order], order, strict=False):
            sample, sent = self.samples[after], self.sent(after)
            assert sample.prompt_tokens in (None, len(sent))
            assert sample.logprobs is not None
            assert len(sample.logprobs) == len(self._sampled(after))
            if before is None:
                assert tuple(sent) == self.head.token_ids
            elif sample.drift == "clean":
                whole = self.sent(before) + list(self._sampled(before))
                assert sent[: len(whole)] == whole
                clean += 1
        assert clean >= len(order) - 1 - sum(
            self.samples[seq].drift == "forked" for seq in order
        ), "an append-only rollout has no drift but its forks"
        return clean


def _blob(home: Path, digest: str) -> bytes:
    file = home / "blobs" / digest[:2] / f"{digest}.zst"
    return zstandard.ZstdDecompressor().decompress(file.read_bytes())
