"""Draws bucket_overlap.svg: `python course/figures/bucket_overlap.py`."""

from fractions import Fraction
from pathlib import Path

from distlab.plot import Picture, timeline
from distlab.timeline import Event, Timeline

FORWARD_MS, BACKWARD_MS, BUCKETS = 4, 8, 4


def step(reduce_ms: Fraction) -> Timeline:
    """Returns one rank's step whose backward fills equal buckets, each sent in `reduce_ms`."""

    def event(stream: str, name: str, start: Fraction, length: Fraction, role: str) -> Event:
        return Event(0, stream, name, name, start / 1000, (start + length) / 1000, role=role)

    forward, part = Fraction(FORWARD_MS), Fraction(BACKWARD_MS, BUCKETS)
    slower = max(part, reduce_ms)  # sets the pace, after the first part of backward
    events = [event("compute", "forward", Fraction(0), forward, "activations")]
    for k in range(BUCKETS):
        begins, sent = forward + k * part, forward + part + k * slower
        events.append(event("compute", f"backward {k + 1}", begins, part, "gradients"))
        events.append(event("comm", f"bucket {k + 1}", sent, reduce_ms, "communication"))
    return Timeline(events, ranks=1)


def picture() -> Picture:
    """Returns the timeline of a step whose sending is shorter than its backward."""
    return timeline(step(Fraction(3, 2)), title="Sending hides behind backward, but for the end")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
