"""Draws checkpoint_interval.svg: `python course/figures/checkpoint_interval.py`."""

from pathlib import Path

from distlab.plot import Picture, scaling_line

FAILURES, DAYS = 419, 54  # unexpected interruptions of Llama 3 405B's training, 16,384 GPUs
BETWEEN_S = DAYS * 86_400 / FAILURES
MINUTES = (4, 6, 8, 12, 16, 20, 25, 30)


def lost_percent(every_s: float, pause_s: float) -> float:
    """Returns the share of time lost to pauses and to work done twice, in per cent."""
    return 100 * (pause_s / every_s + every_s / (2 * BETWEEN_S))


def picture() -> Picture:
    """Returns the lost share against the time between checkpoints, for two pauses."""
    return scaling_line(
        MINUTES,
        {
            f"pause of {pause_s} s": [lost_percent(60 * m, pause_s) for m in MINUTES]
            for pause_s in (60, 10)
        },
        xlabel="minutes between checkpoints",
        ylabel="time lost in %",
        title="A failure every 3.1 hours: how often to save",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
