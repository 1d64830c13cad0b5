"""Draws held_microbatches.svg: `python course/figures/held_microbatches.py`."""

from pathlib import Path

from distlab import canvas
from distlab.canvas import COLOURS, MUTED
from distlab.plot import Picture
from distlab.schedule import PipelineTimeline, gpipe, one_f_one_b, simulate

STAGES, MICROBATCHES = 4, 8


def steps() -> tuple[PipelineTimeline, PipelineTimeline]:
    """Returns a step of GPipe and one of 1F1B, equally long."""
    orders = gpipe(STAGES, MICROBATCHES), one_f_one_b(STAGES, MICROBATCHES)
    return tuple(simulate(order, forward=1, backward=2) for order in orders)


def outline(step: PipelineTimeline, stage: int) -> tuple[list[float], list[float]]:
    """Returns the times at which what a stage holds changes, and how much it then holds."""
    changes = [(0, 0), *step.in_flight(stage), (step.makespan, 0)]
    return [float(time) for time, _ in changes], [held for _, held in changes]


def picture() -> Picture:
    """Returns what each stage holds over time in both orders, on one scale."""
    figure = canvas.figure(3.6)
    axes = figure.add_axes((0.09, 0.15, 0.885, 0.71))
    colour = COLOURS["activations"]
    step_g, step_1 = steps()
    for stage in range(STAGES):
        floor = stage + 0.95
        for step, look in (
            (step_g, {"facecolor": "none", "edgecolor": MUTED, "linestyle": "--"}),
            (step_1, {"facecolor": colour, "edgecolor": colour, "alpha": 0.45}),
        ):
            times, held = outline(step, stage)
            tops = [floor - 0.8 * count / MICROBATCHES for count in held]
            axes.fill_between(times, tops, floor, step="post", **look)
            most = max(held)
            at, top = times[held.index(most)], floor - 0.8 * most / MICROBATCHES
            canvas.text(axes, at + 0.5, top + (0.12 if step is step_g else -0.08), str(most), 9)
    canvas.text(axes, 12.5, 0.33, "GPipe", 9.5, MUTED)
    canvas.text(axes, 12.5, 0.76, "1F1B", 9.5)
    axes.set_xlim(0, 33.2)
    axes.set_ylim(STAGES, -0.05)
    axes.set_yticks([s + 0.6 for s in range(STAGES)], [f"rank {s}" for s in range(STAGES)])
    axes.tick_params(axis="y", length=0, labelsize=9.5, labelcolor=MUTED)
    canvas.style(axes, "time", "", "Microbatches held: the same step, half the memory or less")
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    peaks = [step.peak_in_flight for step in (step_g, step_1)]
    return Picture(figure, f"Microbatches held. By rank at most {peaks[0]} and {peaks[1]}.")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
