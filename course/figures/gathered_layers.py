"""Draws gathered_layers.svg: `python course/figures/gathered_layers.py`."""

from fractions import Fraction
from pathlib import Path

from distlab.plot import Picture, timeline
from distlab.timeline import Event, Timeline

LAYERS = 5
GATHER_MS, FORWARD_MS, BACKWARD_MS = Fraction(3, 2), Fraction(2), Fraction(4)


def step(k: int) -> Timeline:
    """Returns one rank's step of ZeRO-3 in which k layers may be gathered at a time.

    A gather is launched when the use k before it is over; the last k layers stay for backward.
    """
    events, link, ends = [], Fraction(0), [Fraction(0)]

    def add(stream: str, name: str, start: Fraction, length: Fraction, role: str) -> Fraction:
        end = start + length
        events.append(Event(0, stream, name, name, start / 1000, end / 1000, role=role))
        return end

    for use, layer in enumerate([*range(LAYERS), *reversed(range(LAYERS))]):
        start = ends[-1]
        if use < LAYERS or use >= LAYERS + k:
            launched = max(link, ends[max(0, use - k + 1)])
            link = add("comm", f"gather {layer}", launched, GATHER_MS, "communication")
            start = max(start, link)
        if use < LAYERS:
            ends.append(add("compute", f"forward {layer}", start, FORWARD_MS, "weights"))
        else:
            ends.append(add("compute", f"backward {layer}", start, BACKWARD_MS, "gradients"))
    return Timeline(events, ranks=1)


def picture() -> Picture:
    """Returns the timeline with room for two layers."""
    return timeline(step(2), title="Room for two layers: only the first gather is waited for")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
