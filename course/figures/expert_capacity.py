"""Draws expert_capacity.svg: `python course/figures/expert_capacity.py`."""

from pathlib import Path

from distlab import canvas
from distlab.canvas import COLOURS, INK, MUTED
from distlab.plot import Picture

LOADS = (5, 2, 1, 0)  # tokens that chose each of four experts
FACTORS = (1, 1.5, 2.5)


def slots(factor: float) -> int:
    """Returns an expert's capacity: factor times the mean load, here of one choice a token."""
    return round(factor * sum(LOADS) / len(LOADS))


def picture() -> Picture:
    """Returns four experts' slots at three capacities: filled, padded, and what finds no place."""
    from matplotlib.patches import Rectangle

    figure = canvas.figure(3.3)
    axes = figure.add_axes((0.08, 0.17, 0.9, 0.68))
    words = []
    for group, factor in enumerate(FACTORS):
        left, room = group * 5.2, slots(factor)
        dropped = sum(max(0, load - room) for load in LOADS)
        padded = sum(max(0, room - load) for load in LOADS)
        for expert, load in enumerate(LOADS):
            x = left + expert
            for token in range(max(load, room)):
                if token < min(load, room):
                    look = {"facecolor": COLOURS["activations"], "edgecolor": "white", "alpha": 0.6}
                elif token < room:
                    look = {"facecolor": "white", "edgecolor": MUTED, "linestyle": ":"}
                else:
                    look = {"facecolor": "white", "edgecolor": COLOURS["communication"]}
                axes.add_patch(Rectangle((x + 0.06, token + 0.05), 0.88, 0.9, **look))
                if token >= room:
                    canvas.text(axes, x + 0.5, token + 0.5, "×", 11, COLOURS["communication"])
        axes.plot([left - 0.1, left + 4.1], [room, room], color=INK, linewidth=1.6)
        said = f"{dropped} dropped, {padded} padded"
        canvas.text(axes, left + 2, 6.0, f"factor {factor:g}\n{said}", 9.5)
        words.append(f"factor {factor:g}: {said}")
    axes.set_xlim(-0.25, 14.7)
    axes.set_ylim(0, 6.6)
    axes.set_yticks(range(6))
    places = [group * 5.2 + expert + 0.5 for group in range(3) for expert in range(4)]
    axes.set_xticks(places, [str(expert) for _ in range(3) for expert in range(4)])
    canvas.style(axes, "expert", "tokens", "Eight tokens, four experts, and three capacities")
    axes.grid(visible=False)
    return Picture(figure, f"Loads {', '.join(map(str, LOADS))}. {'; '.join(words)}.")


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
