"""Which layers each chunk of a pipeline holds when the chunks do not divide them: never a floor.

A pipeline of p stages with v chunks each cuts the model into p · v chunks, of which stage s has
those numbered s, s + p, s + 2p … Where p · v does not divide the layers, some chunks hold one layer
fewer, and which ones is said here. The longest chunk sets the pace whichever they are, so they are
put where something else already weighs: first the last chunk, which computes the output head, then
the first, which keeps the embedding table and the most microbatches in flight, then on from the
front.

So Llama 3's 126 layers on 16 stages lie as 7, 8, …, 8, 7, which is how it was trained: 128 places,
one layer fewer at both ends (The Llama 3 Herd of Models, 2024, section 3.3.2).
"""

from functools import lru_cache

# A rule, not a solution: lab 5 asks for the best partition of unequal times, lab 7 is given bounds.


@lru_cache(maxsize=4096)
def split_layers(layers: int, p: int, v: int = 1) -> tuple[int, ...]:
    """Returns how many layers each of the p · v chunks holds, in the model's order.

    Chunk c sits on stage c % p. The counts add up to `layers` and differ by at most one; all are
    equal where p · v divides them. The first and the last chunk may be empty: they still have the
    embedding table and the output head.

    Source: Llama 3 (2024), section 3.3.2, for the ends; the order of the others is the course's.

    Raises: ValueError where a chunk between the ends would hold no layer.

    Example: `split_layers(10, 4) == (2, 3, 3, 2)`.
    """
    chunks = p * v
    if chunks > most_chunks(layers):
        raise ValueError(
            f"{layers} layers make at most {most_chunks(layers)} chunks (the two at the ends may "
            f"have none), not p · v = {chunks}."
        )
    most = -(-layers // chunks)
    short = most * chunks - layers
    shorter = {*([chunks - 1] if short else []), *range(short - 1)}
    return tuple(most - (chunk in shorter) for chunk in range(chunks))


def most_chunks(layers: int) -> int:
    """Returns the most chunks that `layers` layers make: one each, and two ends without one."""
    return layers + 2


def stage_layers(layers: int, p: int, v: int = 1) -> tuple[int, ...]:
    """Returns how many layers each of the p stages holds, over its v chunks.

    Example: `stage_layers(126, 16) == (7, *[8] * 14, 7)`.
    """
    chunks = split_layers(layers, p, v)
    return tuple(sum(chunks[stage::p]) for stage in range(p))
