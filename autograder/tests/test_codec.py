"""The codec: what goes in comes out, and nothing malformed gets past its one named error."""

import contextlib
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distgrade import codec
from distgrade.codec import CodecError, Elsewhere, Other, decode, encode


def through(value):
    tree, data = encode(value)
    return decode(json.loads(json.dumps(tree)), data)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.fractions(),
    lambda children: (
        st.lists(children, max_size=4)
        | st.tuples(children, children)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), children)
    ),
    max_leaves=15,
)


def same(one, other) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    return one == other


@settings(deadline=None)
@given(plain)
def test_plain_values_come_back_as_they_were(value):
    assert same(through(value), value)


@pytest.mark.parametrize("dtype", codec.DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_tensors_come_back_bit_by_bit(dtype, shape):
    tensor = (torch.randn(shape) * 3).to(dtype)
    back = through({"x": tensor})["x"]
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_layout_history_and_subclass_do_not_matter():
    base = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    for tensor in (base.T, base[:, 1::2], base.clone().requires_grad_() * 1, base.expand(2, 3, 4)):
        assert torch.equal(through(tensor), tensor.detach())
    assert torch.equal(through(torch.nn.Parameter(base)), base)
    assert torch.equal(through((base + 0j).to(torch.complex64).conj()).real, base.float())


def test_arrays_and_scalars_of_numpy_come_back_as_arrays():
    for array in (np.arange(6.0).reshape(2, 3).T, np.array([True, False]), np.float32(2.5)):
        back = through(array)
        assert isinstance(back, np.ndarray)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


def test_the_tensor_part_is_a_safetensors_file():
    one, two = torch.randn(2, 3), torch.arange(5)
    _, data = encode([one, {"b": two}])
    loaded = safetensors.torch.load(data)
    assert torch.equal(loaded["t0"], one)
    assert torch.equal(loaded["t1"], two)
    assert decode({"tensor": "b"}, safetensors.torch.save({"b": two})).equal(two)


def test_what_cannot_cross_is_named_by_its_type():
    assert through([object(), print]) == [Other("object"), Other("builtin_function_or_method")]
    meta = through(torch.empty(2, 3, device="meta"))
    assert meta == Elsewhere("meta", "torch.float32", (2, 3))
    assert through(torch.eye(2).to_sparse()).device.startswith("cpu (torch.sparse")
    assert through(np.array(["a"])).name.startswith("array of")


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise SystemExit("a tensor that answers for itself")


class EvilMeta(type):
    def __getattribute__(cls, name):
        raise RuntimeError("no")


class Evil(metaclass=EvilMeta):
    def __repr__(self):
        raise KeyboardInterrupt

    __str__ = __eq__ = __hash__ = __len__ = __iter__ = __repr__


class LyingList(list):
    def __iter__(self):
        raise KeyboardInterrupt

    def __len__(self):
        return 10**9


class LyingDict(dict):
    def items(self):
        raise SystemExit


def test_objects_that_lie_give_their_raw_values_or_their_types_name():
    loud = torch.arange(3.0).as_subclass(Loud)
    assert torch.equal(through(loud), torch.arange(3.0))
    assert through(Evil()) == Other("Evil")
    assert through(LyingList([1, 2])) == [1, 2]
    assert through(LyingDict(a=1)) == {"a": 1}


def test_what_is_too_large_is_refused_before_it_is_copied():
    endless = []
    endless.append(endless)
    doubling = [0]
    for _ in range(20):
        doubling = [doubling, doubling]
    huge = torch.zeros(1).expand(10**12)
    for value in (endless, doubling, huge, "x" * 10**6, 1 << 10_000, [0] * 200_000):
        with pytest.raises(CodecError):
            encode(value)


GOOD = encode({"a": torch.arange(4.0), "b": [Fraction(1, 3), None, 2.5, np.ones(2)], "c": (1, "x")})


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_record_is_read_or_refused_by_the_named_error(data):
    tree, raw = json.loads(json.dumps(GOOD[0])), bytearray(GOOD[1])
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
        raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    else:
        text = json.dumps(tree)
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.sampled_from(list('0123456789{}[]",:x-'))) + text[at + 1 :]
        try:
            tree = json.loads(text)
        except ValueError:
            return
    with contextlib.suppress(CodecError):
        decode(tree, bytes(raw))


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "int",
                    "float",
                    "str",
                    "list",
                    "tuple",
                    "dict",
                    "fraction",
                    "tensor",
                    "numpy",
                    "other",
                    "elsewhere",
                    "node",
                    "x",
                ]
            ),
            children,
            max_size=2,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(any_json, st.binary(max_size=60) | st.just(GOOD[1]))
def test_a_forged_record_is_read_or_refused_by_the_named_error(tree, raw):
    with contextlib.suppress(CodecError):
        decode(tree, raw)


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"node": ["x"]}, "no known kind"),
        ({"int": "1" * 5_000}, "too long"),
        ({"fraction": ["1", "0"]}, "malformed"),
        ({"fraction": ["1"]}, "malformed"),
        ({"tensor": "t9"}, "malformed"),
        ({"dict": [[{"tensor": "t0"}, None]]}, "key"),
        (1.5, "no known kind"),
        ({"list": [], "tuple": []}, "no known kind"),
    ],
)
def test_malformed_trees_are_refused(tree, why):
    with pytest.raises(CodecError, match=why):
        decode(tree, GOOD[1])


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4], "data_offsets": [-8, 8]},
        {"dtype": "F32", "shape": [4], "data_offsets": [800, 816]},
        {"dtype": "Q4", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "BOOL", "shape": [16], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4]},
    ],
)
def test_a_tensor_that_is_not_what_it_claims_is_refused(entry):
    text = json.dumps({"t0": entry}).encode()
    data = len(text).to_bytes(8, "little") + text + bytes([7]) * 16
    with pytest.raises(CodecError):
        decode({"tensor": "t0"}, data)


def test_more_keys_than_anybody_needs_are_refused_on_both_sides():
    keys = {i * (2**61 - 1): None for i in range(codec.MAX_KEYS)}  # all of one hash
    assert len(through([keys])[0]) == codec.MAX_KEYS
    with pytest.raises(CodecError, match="too many keys"):
        encode([keys, {"one": 1}])
    pairs = [[{"int": "1"}, None]] * (codec.MAX_KEYS + 1)
    with pytest.raises(CodecError, match="too many keys"):
        decode({"dict": pairs}, encode(None)[1])
