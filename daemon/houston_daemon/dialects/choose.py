"""The dialect of a name: the one place that knows all of them."""

from houston_daemon.dialects.chatml_json import ChatmlJson
from houston_daemon.dialects.glm45 import Glm45
from houston_daemon.dialects.hermes import Hermes
from houston_daemon.dialects.protocol import Dialect
from houston_daemon.dialects.qwen3 import Qwen3
from houston_shared.errors import ConfigurationError

NAMES = ("chatml-json", "glm45", "hermes", "qwen3")


def choose_dialect(name: str, reasoning: bool = False) -> Dialect:
    """The dialect called `name`; raises ConfigurationError naming those there are.

    reasoning: whether the model may write reasoning tokens, where the family has a switch.
    """
    match name:
        case "chatml-json":
            return ChatmlJson()
        case "hermes":
            return Hermes()
        case "qwen3":
            return Qwen3(reasoning)
        case "glm45":
            return Glm45(reasoning)
    raise ConfigurationError(f"There is no dialect {name!r}; known: {', '.join(NAMES)}.")
