"""One observation as text: results, then clock and budgets, then guidance; the newest comes last.

The single place that joins them, so that the model, `houston steps` and the console read the same
bytes. Dialects with a message per call take the parts from `labelled` and `closing`.
"""

from collections.abc import Mapping, Sequence

from houston_shared import real_user, shortening
from houston_shared.records import Delivered, ObservationBody, Result
from houston_shared.safe_text import safe_line


def labelled(results: Sequence[Result]) -> list[str]:
    """Each result's text; where there are several, each says which call it answers.

    A model may call a tool by any name, that of the guidance tag too.
    """
    if len(results) < 2:
        return [result.text for result in results]
    return [
        f"[call {number} of {len(results)}: {_name(result)}]\n{result.text}"
        for number, result in enumerate(results, 1)
    ]


def _name(result: Result) -> str:
    return real_user.disarm(safe_line(result.call.name)).text


Shown = Mapping[str, int]
"""By id, how many characters are shown of guidance that does not fit whole."""


def shown(observed: ObservationBody, guidance: Sequence[Delivered]) -> Shown:
    """How much of the guidance joined to a step its observation shows."""
    if not observed.guidance_bytes:
        return {}
    return shortening.fit(guidance, observed.guidance_bytes)


def closing(tail: str, guidance: Sequence[Delivered], shown: Shown | None = None) -> str:
    """What ends the observation: clock and budgets, and the guidance joined to this step."""
    return tail + real_user.render(guidance, shown)


def text(
    results: Sequence[Result],
    tail: str,
    guidance: Sequence[Delivered],
    shown: Shown | None = None,
) -> str:
    """The whole observation as the model sees it (DESIGN §9, `steps --json`)."""
    parts = [*labelled(results), closing(tail, guidance, shown)]
    return "\n".join(part for part in parts if part)
