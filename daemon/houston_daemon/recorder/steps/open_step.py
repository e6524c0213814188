"""Closing the step that a rollout leaves open when it is cancelled or fails.

In the transaction that ends the rollout every call of the step gets its honest result, so that the
step can be seen like any other. Guidance that waits stays queued: nobody is there to hear it.
"""

from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.steps.rebuild import open_step
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.real_user import disarm
from houston_shared.records import Call, Intent, Result, StepRecord
from houston_shared.store.bodies import StoredObservation


def close(store: Store, row: Rollout, how: str, active_us: int = 0) -> None:
    """Close the open step, if there is one. how: what ended it, e.g. `cancelled by person:ada`."""
    step = open_step(store, row)
    if step is None:
        return
    running = len(step.intents) > len(step.results)
    how = disarm(how).text  # a claimed name is anybody's words
    for index, result in enumerate(_results(step, how), len(step.results)):
        if index >= len(step.intents):  # it never began: no call without an intent
            intent = Intent(call=result.call)
            store.journal.append(_key(row, step, f"intent.{index}"), "intent", intent)
        store.journal.append(_key(row, step, f"call.{index}"), "result", result)
    observation = StoredObservation(
        tail=f"[{how} during this step]",
        attention=("interrupted", "error") if running else ("interrupted",),
        reasons={"interrupted": f"{how} during this step"},
        active_us=max(active_us, row.active_us),
    )
    store.journal.append(_key(row, step, "observation"), "observation", observation)


def _results(step: StepRecord, how: str) -> list[Result]:
    """What the calls without a result come to."""
    begun = [one.call for one in step.intents]
    unknown = [
        _result(call, f"Interrupted: {how} while it ran; the outcome is unknown.")
        for call in begun[len(step.results) :]
    ]
    return unknown + [_result(one, f"[not run: {how}]") for one in step.sample.calls[len(begun) :]]


def _result(call: Call, text: str) -> Result:
    return Result(call=call, kind="interrupted", success=False, text=text)


def _key(row: Rollout, step: StepRecord, part: str) -> Key:
    return Key(row.id, step.step, step.attempt, part)
