"""How Mistral's models write: `mistral-v3` (7B-Instruct-v0.3, Mixtral 8x22B) and `mistral-v13`
(Ministral 3, Devstral 2, Magistral 1.2), as `mistral-common` numbers its formats.

    v3   <s>[AVAILABLE_TOOLS] […][/AVAILABLE_TOOLS][INST] system\\n\\ntask[/INST]
         [TOOL_CALLS] [{"name": …, "arguments": {…}, "id": …}]</s>
         [TOOL_RESULTS] {"content": …, "call_id": …}[/TOOL_RESULTS]
    v13  <s>[SYSTEM_PROMPT]system[/SYSTEM_PROMPT][AVAILABLE_TOOLS][…][/AVAILABLE_TOOLS][INST]task
         [/INST]thought[TOOL_CALLS]name[ARGS]{…}</s>[TOOL_RESULTS]…[/TOOL_RESULTS]

v3's own template moves tools and system prompt to the newest message of a person; here they stay
where they are, since a prompt begins with the prompt before it. `renderers` has no Mistral.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as read
from houston_daemon.prompts.dialect_protocol import AgentAction, PromptPiece, PromptToolResult
from houston_daemon.prompts.model_dialects import content_piece, template_piece
from houston_shared.records import ToolCall

_TOOL_MARKUP = (
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
)


class MistralV13Dialect(read.FamilyDialect):
    """See `dialect_protocol.Dialect`."""

    name = "mistral-v13"
    stop_tokens: tuple[str, ...] = ("</s>",)
    answer_tokens: tuple[str, ...] = ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")
    markup: tuple[str, ...] = (
        *("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]"),
        *_TOOL_MARKUP,
    )
    form = '[TOOL_CALLS]tool[ARGS]{"argument": "value"}'
    space = ""
    """What stands between markup and text."""

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`; with `short` the tools stand in the system prompt."""
        if not tools:
            return self.question(system, task)
        if short:
            listed = f"{system}\n\n# Tools\n{read.tool_signatures(tools)}"
            return self.question(listed, task)
        schemas = read.compact_json([tool.openai() for tool in tools])
        tool_pieces = [
            template_piece(f"[AVAILABLE_TOOLS]{self.space}"),
            content_piece(schemas),
            template_piece("[/AVAILABLE_TOOLS]"),
        ]
        return [template_piece("<s>"), *self._opening(system, tool_pieces, task)]

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return [template_piece("<s>"), *self._opening(system, [], text)]

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`: a block for each result, the tail in the last of them."""
        closing = [] if stop in (None, "</s>") else [template_piece("</s>")]
        if not results:
            return [*closing, *self._person(tail)]
        texts = [result.text for result in results]
        texts[-1] = "\n".join(part for part in (texts[-1], tail) if part)
        for result, text in zip(results, texts, strict=True):
            closing += [
                template_piece(f"[TOOL_RESULTS]{self.space}"),
                content_piece(self._result(result.call_id, text)),
                template_piece("[/TOOL_RESULTS]"),
            ]
        return closing

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`."""
        pieces = [content_piece(thought)] if thought else []
        for call in calls:
            pieces += [
                template_piece("[TOOL_CALLS]"),
                content_piece(call.name),
                template_piece("[ARGS]"),
                content_piece(read.compact_json(call.arguments)),
            ]
        return [*pieces, template_piece("</s>")]

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`."""
        thought, _, rest = text.partition("[TOOL_CALLS]")
        written = self._written_calls(rest) if rest else []
        calls = read.require_call_count(
            [
                read.build_call(name, arguments, step, index, tools)
                for index, (name, arguments) in enumerate(written)
            ]
        )
        reasoning, _, content = thought.rpartition("[/THINK]")
        thoughts = (reasoning.strip().removeprefix("[THINK]"), content)
        return AgentAction("\n".join(filter(None, map(str.strip, thoughts))), calls)

    def _opening(
        self, system: str, tool_pieces: Sequence[PromptPiece], text: str
    ) -> list[PromptPiece]:
        """System prompt, tools and the first message, in the format's order."""
        system_pieces = [
            template_piece("[SYSTEM_PROMPT]"),
            content_piece(system),
            template_piece("[/SYSTEM_PROMPT]"),
        ]
        return [*(system_pieces if system else []), *tool_pieces, *self._person(text)]

    def _person(self, text: str) -> list[PromptPiece]:
        return [
            template_piece(f"[INST]{self.space}"),
            content_piece(text),
            template_piece("[/INST]"),
        ]

    def _result(self, call_id: str, text: str) -> str:
        return text

    def _written_calls(self, text: str) -> list[tuple[Any, Any]]:
        """Names and arguments, of what follows the first [TOOL_CALLS]. Raises UnreadableAnswer."""
        calls = []
        for block in text.split("[TOOL_CALLS]"):
            name, has_arguments, arguments = block.partition("[ARGS]")
            if not has_arguments:
                raise read.UnreadableAnswer("a call has no [ARGS]")
            calls.append((name.strip(), read.parse_json(arguments.strip())))
        return calls


class MistralV3Dialect(MistralV13Dialect):
    """See `dialect_protocol.Dialect`; an answer is a thought or calls, never both."""

    name = "mistral-v3"
    answer_tokens: tuple[str, ...] = ("[TOOL_CALLS]",)
    markup: tuple[str, ...] = ("<s>", "</s>", "[INST]", "[/INST]", *_TOOL_MARKUP)
    form = '[TOOL_CALLS] [{"name": "tool", "arguments": {"argument": "value"}}]'
    space = " "

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`; an answer with calls loses its thought."""
        if not calls:
            return [template_piece(" "), content_piece(thought), template_piece("</s>")]
        listed = [
            {"name": call.name, "arguments": call.arguments, "id": _call_id(call.id)}
            for call in calls
        ]
        return [
            template_piece("[TOOL_CALLS] "),
            content_piece(read.compact_json(listed)),
            template_piece("</s>"),
        ]

    def _opening(
        self, system: str, tool_pieces: Sequence[PromptPiece], text: str
    ) -> list[PromptPiece]:
        return [*tool_pieces, *self._person("\n\n".join(filter(None, (system, text))))]

    def _result(self, call_id: str, text: str) -> str:
        return read.compact_json({"content": text, "call_id": _call_id(call_id)})

    def _written_calls(self, text: str) -> list[tuple[Any, Any]]:
        listed = read.parse_json(text.strip())
        if not isinstance(listed, list) or not all(isinstance(call, dict) for call in listed):
            raise read.UnreadableAnswer("[TOOL_CALLS] is followed by no list of objects")
        return [(call.get("name"), call.get("arguments", {})) for call in listed]


def _call_id(id: str) -> str:
    """A call's id as the format wants it: nine letters or digits."""
    step, _, index = id.rpartition(".")
    return f"{step:0>6}{index:0>3}"[-9:]
