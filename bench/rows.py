"""How fast the rows of a rollout of 30 hours are made: 3,600 steps, 40 summaries, 100,000 tokens.

`python bench/rows.py [--steps 3600] [--runs 3]` writes bench/results/rows.json. Raw is the least
that any way must do: the same events are read, and the ids in them decoded, and nothing is built.
Each figure is taken in a process of its own, so that its peak of memory is its own; the aim is
60 seconds and 1 GB.
"""

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from houston_daemon.agent import context_compression as cutting
from houston_daemon.agent.context_summary_prompt import (
    SUMMARY_REQUEST,
    SUMMARY_SECTIONS,
    parse_summary,
)
from houston_daemon.engines.local_model import model_path
from houston_daemon.prompts.context_ledger import Context, PromptAnchor, link_prompt
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer, head_messages
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.recorder.journal_writer import prepare_inline_body
from houston_daemon.training.rows.recorded_rows import SampleFacts
from houston_daemon.training.rows.row_builder import build_chat_rows, build_token_rows
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared.home import Home
from houston_shared.records import ForkBody, ObservationBody, SampleBody, ToolCall, ToolResult
from houston_shared.store import journal_events
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader
from tests.support.small_tokenizer import small_tokenizer
from tests.support.written_home import WrittenHome, sample

FORKS = 40
NAME = "bench-0001"
ANSWER, OBSERVATION = 90, 220
"""Words of one answer and one observation."""


@dataclass
class Long:
    """A rollout that is written as the loop would have stored it, with the loop's own parts."""

    home: WrittenHome
    renderer: PromptRenderer
    context: Context
    dice: random.Random
    words: list[str]
    forks: int = 0

    def text(self, count: int) -> str:
        """So many words."""
        return " ".join(self.dice.choices(self.words, k=count))

    def step(self, step: int) -> None:
        """One step: answer, result, observation."""
        call = ToolCall(id=f"{step}.0", name="run_command", arguments={"command": self.text(30)})
        thought = self.text(ANSWER)
        ids = tuple(self._encoded(thought, (call,)))
        stored = self._sample(ids, thought, (call,))
        result = ToolResult(call=call, kind="command", success=True, text=self.text(OBSERVATION))
        seq = self.home.step(NAME, step, stored, (result.text,))
        prompt = self.context.prompt_ids
        self.context.anchor_sample(seq, prompt, ids)
        seen = ObservationBody(tail=f"[step {step}]")
        self.context.add(self.renderer.render_step(step, stored, (result,), seen, ()))

    def fork(self, step: int) -> None:
        """A fork before a step, with a summary that the model wrote."""
        context, t = self.context, len(self.context.entries)
        k = cutting.least_k(t, context.begins_with_summary)
        asked, _ = self.renderer.asking(context.entries[k - 1], SUMMARY_REQUEST)
        before = [number for entry in context.entries[: k - 1] for number in entry.ids]
        prompt = (*(context.head_ids or ()), *before, *asked)
        text = json.dumps({key: self.text(60) for key in SUMMARY_SECTIONS})
        ids = tuple(self._encoded(text, ()))
        how = link_prompt(context.anchor, prompt, fresh=True)
        body = sample(
            text, role="summary", parent_seq=how.parent_seq, kept=how.kept,
            new_prompt_ids=how.new_ids, token_ids=ids, logprobs=(-0.5,) * len(ids),
            logprob_kind="policy", drift=how.drift, prompt_tokens=len(prompt),
        )  # fmt: skip
        seq = self.home.sampled(NAME, step, body, part="summary.1")
        shown = parse_summary(text, 1, step)
        kept = context.entries[k - 1]
        made = ForkBody(
            k=k, first_kept_step=kept.step + 1, summary=shown, sample_seq=seq, before=step
        )
        self.home.fork(NAME, step, made)
        self.context = cutting.forked_context(
            context, k, self.renderer.fork_pair(kept, shown, ()), seq
        )
        self.forks += 1

    def _encoded(self, thought: str, calls: tuple[ToolCall, ...]) -> list[int]:
        assert self.renderer.tokens is not None
        return self.renderer.tokens.encode(self.renderer.dialect.assistant(thought, calls))

    def _sample(
        self, ids: tuple[int, ...], thought: str, calls: tuple[ToolCall, ...]
    ) -> SampleBody:
        prompt = self.context.prompt_ids
        assert prompt is not None
        how = link_prompt(self.context.anchor, prompt, fresh=self.context.has_no_sample)
        return sample(
            thought, calls=calls, parent_seq=how.parent_seq, kept=how.kept,
            new_prompt_ids=how.new_ids, token_ids=ids, logprobs=(-0.5,) * len(ids),
            logprob_kind="policy", drift=how.drift, prompt_tokens=len(prompt),
        )  # fmt: skip


def written(folder: Path, steps: int) -> tuple[Path, dict[str, int]]:
    """A home with the rollout, and how long it is."""
    model = model_path()
    file = str(model / "tokenizer.json") if model else small_tokenizer(folder)
    dice = random.Random(1)
    renderer = PromptRenderer(choose_dialect("chatml-json"), PromptTokenizer(file), "keep")
    home = WrittenHome(folder / "home")
    home.rollout(NAME)
    head = renderer.head("You work alone on a long task. " * 60, (), "Do it.", False)
    home.head(NAME, head)
    context = Context(head_messages(head), head.token_ids, renderer.head_size(head), PromptAnchor())
    words = (ROOT / "docs" / "decisions.md").read_text().split()
    longest = 0
    long = Long(home, renderer, context, dice, words)
    home.connection.execute("BEGIN")
    home.event = lambda key, kind, record, blob=False: home.journal.append(  # type: ignore[method-assign]
        key, kind, prepare_inline_body(record)
    )
    every = max(2, steps // (FORKS + 1))
    for step in range(1, steps + 1):
        if step > 1 and (step - 1) % every == 0 and long.forks < FORKS:
            long.fork(step)
        long.step(step)
        longest = max(longest, long.context.size)
    home.connection.execute("COMMIT")
    home.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    home.close()
    return home.home.path, {
        "steps": steps,
        "summaries": long.forks,
        "longest_context": longest,
    }


def raw(reader: Reader) -> dict[str, int]:
    """Every sample's event read and its ids decoded; nothing is made of them."""
    count = 0
    for seqs in reader.run(_pages()):
        for one in reader.run(_decoded(seqs)):
            count += len(one.new_prompt_ids or ()) + len(one.token_ids or ())
    return {"tokens": count}


def _pages() -> ReadPlan[list[list[int]]]:
    rows = yield RunSql("SELECT seq FROM samples WHERE rollout = ? ORDER BY seq", (NAME,))
    return [[seq for (seq,) in rows[start : start + 64]] for start in range(0, len(rows), 64)]


def _decoded(seqs: list[int]) -> ReadPlan[list[SampleFacts]]:
    import msgspec

    found = yield from journal_events.events_by_seq(seqs)
    bodies = []
    for event in found.values():
        data = yield from journal_events.read_event_body(event)
        bodies.append(msgspec.msgpack.decode(data or b"", type=SampleFacts))
    return bodies


def ledger(reader: Reader) -> dict[str, int]:
    """Rows of the ledger's ids, with their weights and labels."""
    return _counted(reader, RowOptions())


def rendered(reader: Reader) -> dict[str, int]:
    """The same rows, every token rendered anew."""
    return _counted(reader, RowOptions(thoughts="strip"))


def _counted(reader: Reader, options: RowOptions) -> dict[str, int]:
    rows = tokens = trained = 0
    for row in build_token_rows(reader, NAME, options):
        row.weights()
        row.labels()
        rows, tokens, trained = rows + 1, tokens + len(row.token_ids), trained + row.trained
    return {"rows": rows, "tokens": tokens, "trained": trained}


def chat(reader: Reader) -> dict[str, int]:
    """The same rows as messages."""
    rows = messages = 0
    for row in build_chat_rows(reader, NAME):
        rows, messages = rows + 1, messages + len(row.messages)
    return {"rows": rows, "messages": messages}


WAYS: dict[str, Callable[[Reader], dict[str, int]]] = {
    "raw": raw,
    "ledger": ledger,
    "rendered": rendered,
    "chat": chat,
}


def taken(home: Path, way: str) -> dict[str, Any]:
    """One figure, in this process."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    with Reader(Home(home)) as reader:
        found = WAYS[way](reader)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        **found,
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": _peak(),
    }


def _peak() -> float:
    """Megabytes that this process held at most (`ru_maxrss` would count its parent's)."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (one for one in status if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measured(home: Path, way: str, runs: int) -> dict[str, Any]:
    """The medians of several processes."""
    words = [sys.executable, __file__, "--home", str(home), "--way", way]
    found = []
    for _ in range(runs):
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    middle = {key: round(statistics.median(one[key] for one in found), 2) for key in found[0]}
    seconds = middle["seconds"]
    rates = {
        f"{key}_per_second": round(middle[key] / seconds)
        for key in ("tokens", "messages")
        if key in middle
    }
    if "rows" in middle:
        rates["rows_per_second"] = round(middle["rows"] / seconds, 1)
    return {**middle, **rates}


def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3_600)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--way", choices=list(WAYS))
    asked = parser.parse_args()
    if asked.home:
        print(json.dumps(taken(asked.home, asked.way)))
        return
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        home, length = written(Path(name), asked.steps)
        size = home.joinpath("houston.db").stat().st_size
        found = {way: measured(home, way, asked.runs) for way in WAYS}
    least = found["raw"]["seconds"]
    report = {
        "bench": "rows",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {"python": platform.python_version()},
        "load_before": load,
        "load_after": round(os.getloadavg()[0], 1),
        "rollout": {**length, "database_mb": round(size / 1e6)},
        "aim": {"seconds": 60, "peak_mb": 1_000},
        **found,
        "times_raw": {way: round(found[way]["seconds"] / least, 1) for way in WAYS if way != "raw"},
    }
    path = Path(__file__).parent / "results" / "rows.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
