"""What trackers were told, as TensorBoard reads it."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TENSORBOARD = ("--set", "report_to=tensorboard")


def read_events(run: Path) -> EventAccumulator:
    """Of a run's folder."""
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return events


def read_scalars(run: Path) -> dict[str, dict[int, float]]:
    """By name and step."""
    events = read_events(run)
    return {
        name: {event.step: event.value for event in events.Scalars(name)}
        for name in events.Tags()["scalars"]
    }
