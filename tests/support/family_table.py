"""The page docs/families.md: every dialect, what the tests hold of it, and which are refused.

What a dialect does is asked of the dialect; a mark says that a test with that dialect among its
cases passes. `docs/generate.py` writes the page, and `tests/unit/test_docs.py` holds it.
"""

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.renderer_families import RENDERER_FAMILIES
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from tests.support.family_templates import TEMPLATES
from tests.support.family_tokenizers import FAMILY_DIALECTS, REFUSED
from tests.support.small_tokenizer import DIALECT_NAMES

_OWN_MODELS = {
    "chatml-json": "any small ChatML model; JSON under a schema",
    "chatml-calls": "small ChatML models in short contexts",
    "hermes": "Hermes, Qwen2.5",
    "qwen3": "Qwen3",
    "glm45": "GLM-4.5, GLM-4.6",
    "words": "tiny policies",
    "mistral-v3": "Mistral 7B Instruct v0.3, Mixtral 8x22B",
    "mistral-v13": "Ministral 3, Devstral 2, Magistral 1.2",
}
_TOOL = ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}})
_INTRO = """\
`dialect` of an [engine](configuration.md#enginesname) says how its model writes. Dialects are entry
points of the group `houston.dialects`; a package adds one ([extending](extending.md#dialects)).
Most are written and read by the package `renderers` (`pip install 'houston-agents[dialects]'`),
the others by Houston. Nothing is downloaded.

    [engines.llama]
    kind = "vllm"
    model = "/models/Llama-3.2-3B-Instruct"
    dialect = "llama-3"

## What is held of each
"""
_COLUMNS = """
| column | ✓ says | test |
|---|---|---|
| head | *template*: head and turns are, id for id, what the family's chat template makes of the \
same messages with the whole text encoded at once; its first token is there once. *package*: the \
head is, id for id, what the package makes. *own*: Houston's own form, compared with nothing | \
`tests/unit/prompts/test_dialect_families.py` |
| round trip | thought and calls that it writes are read back as they were; no text makes its \
parser raise; no content, in any place, becomes a special token | the same |
| ledger | each prompt begins with the prompt before it and what was sampled after that, whatever \
ended the answer; a resumed worker has the same ids; each word of a person is there once \
([invariant 6](design.md#invariant-6)) | `tests/unit/agent/test_resumed_context.py` |
| masks | of real rollouts exactly the kept answers are trained, each token once, in the context \
that it was sampled in ([invariant 7](design.md#invariant-7)) | \
`tests/training/rows/test_trained_answers.py` |

Each runs with a tokenizer of the family's style: byte-level BPE with its pre-tokenizer and special
tokens, SentencePiece with and without the space before a text for Mistral v3 and Gemma; the column
*head* also with SmolLM2's vocabulary of 49,152 in each of these styles. Four are served by the
embedded engine in `tests/engines/test_styled_tokenizers.py`.

*Thought*: whether an answer has a place for a thought beside its calls; *calls*: how many it may
have; *tools*: whether the template writes them, or they stand in the system prompt, or in a form of
Houston's own; *switch*: whether `reasoning` does something."""
_REFUSED = """
## Refused

A family that breaks an invariant is refused when an engine names it, before anything starts, and
`houston engine check` says why. The dialect is made with a tokenizer of characters and tried: each
ending of an answer with and without results, an answer written anew and read back, markup in every
text.
"""
_LIMITS = """\
## What to know

- **The tokenizer must fit.** Each token that the dialect writes must be one token of
  `tokenizer.json`; else the engine is refused by the first that is missing.
- **SentencePiece.** Where a tokenizer puts a space before what it encodes, the text between two
  special tokens is encoded as a whole, behind a token of Houston's, so that ids are those of the
  whole prompt. Tokenizers without that space are used as before.
- **Thoughts stay.** Templates that drop the thoughts of earlier turns would change what was sent;
  here an earlier answer stays as it was sampled. `thoughts = "strip"` leaves thoughts out.
- **Clock, budgets and guidance** stand at the end of the last result (Llama 3 writes a result as a
  JSON string, so line breaks in it are `\\n`), or in a message of a person where no call was made.
- **Mistral v3** moves tools and system prompt to a person's newest message; here they stay in the
  first. Its calls have ids of the model's own, which a result names by Houston's instead.
- **DeepSeek-V3** has no place for tools; they are told in its system prompt, with the call's form.
"""


def page() -> str:
    """The page, as Markdown."""
    rendered = {family.name: family.models for family in RENDERER_FAMILIES}
    names = [*DIALECT_NAMES, *FAMILY_DIALECTS]
    parts = ["# Model families", "", "<!-- written by docs/generate.py -->", "", _INTRO]
    parts += [
        "| dialect | by | models | head | round trip | ledger | masks | thought | calls | tools "
        "| switch |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        by, models = ("`renderers`", rendered[name]) if name in rendered else _houston(name)
        oracle = "template" if name in TEMPLATES else "package" if name in rendered else "own"
        cells = [f"`{name}`", by, models, oracle, "✓", "✓", _masks(name), *_forms(name)]
        parts.append(f"| {' | '.join(cells)} |")
    parts += [_COLUMNS, _REFUSED, "| dialect | models | why |", "|---|---|---|"]
    for name in REFUSED:
        parts.append(f"| `{name}` | {rendered[name]} | {_reason(name)} |")
    return "\n".join([*parts, "", _LIMITS])


def _houston(name: str) -> tuple[str, str]:
    return "Houston", _OWN_MODELS[name]


def _masks(name: str) -> str:
    """Whether the proof of masks has it among its cases."""
    return "✓" if name in (*FAMILY_DIALECTS, "chatml-json", "hermes", "qwen3", "glm45") else "–"


def _forms(name: str) -> list[str]:
    dialect, other = choose_dialect(name), choose_dialect(name, reasoning=True)
    calls = [ToolCall(id=f"1.{n}", name="read", arguments={"path": "a"}) for n in range(2)]
    read = dialect.parse(_written(dialect, "why", calls), 1, {"read": _TOOL})
    head = "".join(piece.text for piece in dialect.head("s", [], "t"))
    shown = "".join(piece.text for piece in other.head("s", [], "t"))
    listed = getattr(dialect, "shows_tools", True)
    return [
        "yes" if read.thought == "why" else "no",
        "several" if len(read.calls) > 1 else "one",
        "own" if name in DIALECT_NAMES else "template" if listed else "system prompt",
        "yes" if head != shown else "no",
    ]


def _written(dialect: Dialect, thought: str, calls: list[ToolCall]) -> str:
    return "".join(piece.text for piece in dialect.assistant(thought, calls)[:-1])


def _reason(name: str) -> str:
    try:
        choose_dialect(name)
    except ConfigurationError as problem:
        return str(problem).partition("is refused: ")[2].partition(". No engine")[0]
    raise AssertionError(f"{name} is not refused")
