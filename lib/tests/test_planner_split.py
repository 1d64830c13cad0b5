"""Layers that the chunks of a pipeline do not divide: who holds one fewer, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlab.planner.split import most_chunks, split_layers, stage_layers


def test_llama_3_lies_as_it_was_trained():
    # The Llama 3 Herd of Models, section 3.3.2: 126 layers, one fewer on the first and last stage.
    assert stage_layers(126, 16) == (7, *[8] * 14, 7)
    assert stage_layers(126, 16, 8) == (7, *[8] * 14, 7)
    assert split_layers(126, 16, 8) == (0, *[1] * 126, 0)


@pytest.mark.parametrize(
    ("layers", "p", "v", "chunks"),
    [
        (96, 8, 3, (4,) * 24),
        (10, 4, 1, (2, 3, 3, 2)),
        (7, 4, 1, (2, 2, 2, 1)),
        (11, 2, 2, (3, 3, 3, 2)),
        (9, 4, 1, (2, 2, 3, 2)),
        (5, 1, 1, (5,)),
    ],
)
def test_short_chunks_are_the_last_then_the_first_ones(layers, p, v, chunks):
    assert split_layers(layers, p, v) == chunks


@given(st.integers(1, 130), st.integers(1, 40), st.integers(1, 8))
def test_every_layer_is_held_once_and_none_is_dropped(layers, p, v):
    if p * v > layers + 2:
        with pytest.raises(ValueError, match=f"{layers} layers make at most {layers + 2} chunks"):
            split_layers(layers, p, v)
        return
    chunks = split_layers(layers, p, v)
    assert len(chunks) == p * v
    assert sum(chunks) == sum(stage_layers(layers, p, v)) == layers
    assert max(chunks) - min(chunks) <= 1
    assert all(chunks[1:-1])


def test_the_most_chunks_leave_both_ends_empty():
    assert split_layers(3, most_chunks(3)) == (0, 1, 1, 1, 0)
