"""What TRL needs to act in worlds of words: a tokenizer that reads calls, and an environment.

TRL builds contexts from a chat template and reads calls by the tokenizer's `parse_response`. Both
are the dialect `words` here, so that contexts have Houston's ids (`replayed` holds an episode
against that). Two things differ. TRL ends an episode only when an answer has no call: so one more
answer is sampled after a world is over, which is never read as a call. And an answer that was cut
at its limit is not closed by `<e>`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from houston_daemon.environments.tool_arguments import Arguments, Catalog
from houston_daemon.environments.typed_observation import render
from houston_daemon.environments.word_world import (
    UNKNOWN_WORDS,
    WORD_ACTIONS,
    Enter,
    Look,
    Open,
    Read,
    WordWorld,
)
from houston_daemon.prompts.words_dialect import ANSWER, BEGIN, END, OBSERVED, WordsDialect
from houston_daemon.suites.word_episodes import WordEpisode, WordSpeaker
from houston_daemon.suites.word_worlds import LEVELS, word_world

LEVEL = LEVELS["medium"]
"""Of the suite `word-worlds`."""
STEPS = 8
"""Most answers of a rollout of that suite."""
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}" + BEGIN + " {{ message.content }} "
    "{%- elif message.role == 'assistant' -%}" + ANSWER + " {{ message.content }} "
    "{%- for call in message.tool_calls or [] -%}{{ call.function.name }} "
    "{%- for key, value in call.function.arguments.items() -%}{{ key }} {{ value }} "
    "{%- endfor -%}{%- endfor -%}" + END + " "
    "{%- else -%}" + OBSERVED + " {{ message.content }} {%- endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt -%}" + ANSWER + "{%- endif -%}"
)
"""TRL renders a task, and what stands between two answers, by it. It wants names of arguments in
it, too; answers themselves are never rendered."""
_DIALECT = WordsDialect()
_TOOLS = {tool.name: tool for tool in Catalog({one.name: one for one in WORD_ACTIONS}).tools}
_OVER = ("right", "wrong")
"""What an observation is when a world is over."""


class WordsTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
    """The word tokenizer with the dialect's template and parser, as TRL asks for them."""

    @classmethod
    def of_model(cls, folder: Path) -> "WordsTokenizer":
        """That of a tiny policy."""
        tokenizer: WordsTokenizer = cls.from_pretrained(folder)
        tokenizer.chat_template = CHAT_TEMPLATE
        tokenizer.response_template = {"dialect": _DIALECT.name}  # that there is one; never read
        return tokenizer

    def parse_response(
        self, response: Sequence[int], schema: Any = None, *, prefix: Sequence[int] = (), **_: Any
    ) -> dict[str, Any]:
        """An answer as a message with one call. What no world knows is a call of `say`."""
        ids = list(response)
        end = ids.index(self.eos_token_id) if self.eos_token_id in ids else len(ids)
        text = self.decode(ids[:end])
        if self.decode(list(prefix)[-2:]).split()[:1] in [[word] for word in _OVER]:
            return {"role": "assistant", "content": text}
        action = _DIALECT.parse(text, 0, _TOOLS)
        said = {"words": "" if action.malformed else text}
        call = next((call for call in action.calls if not call.error), None)
        function = (
            {"name": call.name, "arguments": dict(call.arguments)}
            if call
            else {"name": "say", "arguments": said}
        )
        calls = [{"type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}


class WordWorldTools:
    """One world at a time, its actions as methods, as `environment_factory` wants them."""

    def reset(self, right: str, codes: str, **_: Any) -> None:
        """A new world. codes: by box, as JSON."""
        self._world = WordWorld({"": right}, json.loads(codes))

    def get_reward(self) -> float:
        """+1 for the right code, else -1, as the recipe's `binary`."""
        return 1.0 if self._world.score else -1.0

    def look(self) -> str:
        """Name the boxes and the one that is open."""
        return self._do(Look())

    def open(self, box: str) -> str:
        """Open a box.

        Args:
            box: Its colour.
        """
        return self._do(Open(box=box))

    def read(self) -> str:
        """Read the paper in the open box."""
        return self._do(Read())

    def enter(self, code: str) -> str:
        """Enter a code.

        Args:
            code: Three digits.
        """
        return self._do(Enter(code=code))

    def say(self, words: str) -> str:
        """Say what the world does not know.

        Args:
            words: What was said; none where no words could be read.
        """
        return f"error {UNKNOWN_WORDS}" if words else ""

    def _do(self, action: Arguments) -> str:
        return render(self._world.do(action)).head


def rows_of_worlds(indices: Sequence[int]) -> list[dict[str, Any]]:
    """Rows of a dataset for TRL, a world each."""
    rows = []
    for index in indices:
        world = word_world(LEVEL, "train", index)
        rows.append(
            {
                "prompt": [{"role": "user", "content": world.instructions}],
                "right": world.right,
                "codes": json.dumps(world.codes),
                "index": index,
            }
        )
    return rows


def replayed(
    speaker: WordSpeaker, index: int, ids: Sequence[int], mask: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The ids and the mask that Houston has for the answers of an episode of TRL's.

    ids, mask: prompt and completion; 1 where TRL sampled.
    """
    episode = WordEpisode(speaker, word_world(LEVEL, "train", index), STEPS)
    at = len(episode.ids)
    while not episode.done and at < len(ids):
        end = at
        while end < len(ids) and mask[end]:
            end += 1
            if ids[end - 1] == speaker.end:
                break
        episode.step(ids[at:end])
        at = len(episode.ids)
    own = [0] * len(episode.ids)
    for begin, end in episode.answers:
        own[begin:end] = [1] * (end - begin)
    return episode.ids, own
