"""How many versions may be live on an engine, what must stay, and what makes room."""

import pytest

from houston_daemon.training.policies.policy_constraints import adapter_limit, adapters_to_unload
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError

LIMITS: dict[str, tuple[EngineSettings, int]] = {
    "the embedded server": (EngineSettings(kind="embedded"), 8),
    "vLLM as we start it": (EngineSettings(kind="vllm"), 8),
    "configured": (EngineSettings(kind="vllm", max_adapters=3), 3),
    "a command of one's own": (
        EngineSettings(kind="vllm", command=("vllm", "--max-loras", "4")),
        4,
    ),
    "more in memory than in a batch": (
        EngineSettings(kind="vllm", command=("vllm", "--max-loras=2", "--max-cpu-loras", "16")),
        16,
    ),
    "a command that says nothing": (EngineSettings(kind="vllm", command=("vllm", "serve")), 1),
    "somebody else's server": (EngineSettings(kind="token", url="http://far:1/v1"), 0),
    "our kind at a URL": (EngineSettings(kind="vllm", url="http://far:1/v1"), 0),
}


@pytest.mark.parametrize("name", LIMITS)
def test_an_engine_holds_as_many_as_it_was_started_for(name: str) -> None:
    engine, most = LIMITS[name]
    assert adapter_limit(engine) == most


ROOM: dict[str, tuple[int, list[str], dict[str, list[str]], tuple[str, ...]]] = {
    "nothing is loaded": (2, [], {}, ()),
    "there is room": (2, ["p@2"], {}, ()),
    "the oldest leaves": (2, ["p@2", "p@3"], {}, ("p@2",)),
    "one that is used stays": (2, ["p@2", "p@3"], {"p@2": ["r1"]}, ("p@3",)),
    "own models take no room": (1, [], {"": ["r1", "r2"]}, ()),
    "it is loaded already": (2, ["p@2", "p@9"], {}, ()),
    "two must leave": (2, ["p@2", "p@3", "p@4"], {}, ("p@2", "p@3")),
    "used ones that were lost count": (2, [], {"p@2": ["r1"]}, ()),
    "without a limit nothing leaves": (0, ["p@2", "p@3", "p@4"], {"p@5": ["r"]}, ()),
}


@pytest.mark.parametrize("name", ROOM)
def test_what_makes_room(name: str) -> None:
    most, loaded, used, unloaded = ROOM[name]
    assert adapters_to_unload(most, "p@9", loaded, used) == unloaded


def test_a_full_engine_says_who_uses_what() -> None:
    used = {"p@2": ["r1", "r2", "r3", "r4", "r5"], "p@3": ["r6"], "": ["r7"]}
    with pytest.raises(HoustonError) as problem:
        adapters_to_unload(2, "p@9", ["p@2", "p@3"], used)
    text = str(problem.value)
    assert "p@2 by r1, r2, r3 and 2 more; p@3 by r6" in text
    assert adapters_to_unload(3, "p@9", ["p@2", "p@3"], used) == ()
    assert adapters_to_unload(2, "p@3", ["p@2", "p@3"], used) == (), (
        "one that is used already needs no room"
    )
