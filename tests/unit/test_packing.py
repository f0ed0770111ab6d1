"""Packed codes against the rule, worked out here one number at a time with whole numbers."""

import ast
import dataclasses
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sudonet import packing
from sudonet.packing import Packing, aligned_bytes, arena_bits, arena_bytes, pack, unpack

EVERY_L = range(2, 257)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

every_packing = st.builds(Packing, st.integers(2, 256) | st.integers(2, 20))


@st.composite
def packings_and_codes(draw):
    chosen = draw(every_packing)
    batch = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    length = draw(st.integers(0, 3 * chosen.digits + 1))
    numbers = st.integers(0, chosen.levels - 1)
    return chosen, draw(hnp.arrays(np.uint8, (*batch, length), elements=numbers))


def random_codes(levels: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(levels).integers(0, levels, shape)


def layout(levels: int) -> tuple[int, int, int]:
    """digits, bytes of a word and base."""
    rooms = []
    for word_bytes in (1, 2, 4):
        digits = max(n for n in range(33) if levels**n <= 256**word_bytes)
        rooms.append((digits * 4 // word_bytes, -word_bytes, digits))  # codes in four bytes
    _, negative_bytes, digits = max(rooms)
    base = next(2**bits for bits in range(9) if 2**bits >= levels)
    return digits, -negative_bytes, base if base**digits <= 256**-negative_bytes else levels


def bytes_of_row(row: list[int], levels: int) -> bytes:
    digits, word_bytes, base = layout(levels)
    packed = b""
    for start in range(0, len(row), digits):
        word = sum(code * base**i for i, code in enumerate(row[start : start + digits]))
        packed += word.to_bytes(word_bytes, "little")
    return packed


@pytest.mark.parametrize("levels", EVERY_L)
def test_the_rule(levels):
    chosen = Packing(levels)
    assert (chosen.digits, chosen.word_bytes, chosen.base) == layout(levels)
    assert chosen.bits_per_code == 8 * chosen.word_bytes / chosen.digits
    assert np.log2(levels) <= chosen.bits_per_code <= 8


def test_the_table_in_the_docstring_has_every_packing():
    rows = re.findall(
        r"^ +(\d+)(?: - |, )?(\d+)? +(\d+) +(\d) +(\w+) +([\d.]+)$", Packing.__doc__, re.MULTILINE
    )
    seen = []
    for first, last, digits, word_bytes, base, bits in rows:
        for levels in range(int(first), int(last or first) + 1):
            chosen = Packing(levels)
            assert (chosen.digits, chosen.word_bytes) == (int(digits), int(word_bytes))
            assert chosen.base == (levels if base == "L" else int(base))
            assert round(chosen.bits_per_code, 2) == float(bits)
            seen.append(levels)
    assert seen == list(EVERY_L)


@pytest.mark.parametrize(
    ("levels", "codes", "expected"),
    [
        (2, [1, 0, 0, 0, 0, 0, 0, 1, 1], [0b10000001, 1]),
        (3, [2, 2, 2, 2, 2], [242]),
        (4, [3, 2, 1, 0], [0b00011011]),
        (5, [1, 1], [6, 0, 0, 0]),
        (5, [4] * 13, [0x94, 0x73, 0xC2, 0x48]),  # 5**13 - 1
        (12, [1, 11], [0xB1]),
        (16, [15, 2, 7], [0x2F, 0x07]),
        (32, [1, 2, 31], [0x41, 0x7C]),
        (256, [255, 0, 128], [255, 0, 128]),
    ],
)
def test_bytes_that_must_never_change(levels, codes, expected):
    assert pack(np.array(codes), levels).tolist() == expected


@given(packings_and_codes())
def test_bytes_follow_the_rule(drawn):
    chosen, codes = drawn
    packed = chosen.pack(codes)
    assert packed.dtype == np.uint8
    assert packed.shape == (*codes.shape[:-1], chosen.size(codes.shape[-1]))
    rows = codes.reshape(int(np.prod(codes.shape[:-1])), codes.shape[-1]).tolist()
    assert packed.tobytes() == b"".join(bytes_of_row(row, chosen.levels) for row in rows)


@given(packings_and_codes())
def test_round_trip(drawn):
    chosen, codes = drawn
    back = chosen.unpack(chosen.pack(codes), codes.shape[-1])
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, codes, strict=True)


@pytest.mark.parametrize("levels", EVERY_L)
def test_round_trip_of_every_length_up_to_two_words(levels):
    chosen = Packing(levels)
    for length in range(2 * chosen.digits + 2):
        for codes in (random_codes(levels, 3, length), np.full((1, length), levels - 1)):
            packed = pack(codes, levels)
            assert packed.shape[-1] == chosen.size(length)
            np.testing.assert_array_equal(unpack(packed, levels, length), codes)


@given(packings_and_codes())
def test_tensors_give_the_bytes_of_arrays(drawn):
    chosen, codes = drawn
    packed = chosen.pack(torch.from_numpy(codes))
    assert isinstance(packed, torch.Tensor)
    assert packed.dtype == torch.uint8
    np.testing.assert_array_equal(packed.numpy(), chosen.pack(codes), strict=True)
    back = chosen.unpack(packed, codes.shape[-1])
    assert torch.equal(back, torch.from_numpy(codes))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("levels", [3, 5, 100])
def test_every_integer_type(levels, dtype):
    codes = random_codes(levels, 2, 30)
    expected = pack(codes, levels)
    for order in "<>":
        ordered = codes.astype(np.dtype(dtype).newbyteorder(order))
        np.testing.assert_array_equal(pack(ordered, levels), expected)
    tensor = torch.from_numpy(codes).to(getattr(torch, dtype))
    np.testing.assert_array_equal(pack(tensor, levels).numpy(), expected)


@pytest.mark.parametrize("levels", [2, 3, 5, 9, 200])
def test_arrays_that_are_not_contiguous(levels):
    base = random_codes(levels, 40, 30).astype(np.uint8)
    for codes in (base.T, base[::2, ::3], base[:, ::-1], np.broadcast_to(base[0], (4, 30))):
        packed = pack(codes, levels)
        np.testing.assert_array_equal(packed, pack(codes.copy(), levels))
        spread = np.repeat(packed, 2, axis=-1)[..., ::2]
        np.testing.assert_array_equal(unpack(spread, levels, codes.shape[-1]), codes)
    tensor = torch.from_numpy(base)
    for codes in (tensor.T, tensor[::2, ::3], tensor[0].expand(4, 30)):
        packed = pack(codes, levels)
        assert torch.equal(packed, pack(codes.contiguous(), levels))
        spread = packed.repeat_interleave(2, -1)[..., ::2]
        assert torch.equal(unpack(spread, levels, codes.shape[-1]), codes)


@pytest.mark.parametrize("levels", [2, 3, 5, 9, 200])
def test_results_share_no_memory_with_what_was_given(levels):
    codes = random_codes(levels, 50).astype(np.uint8)
    packed = pack(codes, levels)
    back = unpack(packed, levels, 50)
    assert not np.shares_memory(packed, codes)
    assert not np.shares_memory(back, packed)
    tensor = torch.from_numpy(codes)
    kept = tensor.clone()
    tight = pack(tensor, levels)
    again = unpack(tight, levels, 50)
    tight.fill_(0)
    assert torch.equal(tensor, kept)
    assert torch.equal(again, kept)


def test_arrays_that_cannot_be_written_to_are_read():
    codes = random_codes(3, 20).astype(np.uint8)
    packed = pack(codes, 3)
    for array in (codes, packed):
        array.flags.writeable = False
    np.testing.assert_array_equal(unpack(pack(codes, 3), 3, 20), unpack(packed, 3, 20))


def test_a_packing_is_a_value():
    assert Packing(np.int64(7)) == Packing(7)
    assert len({Packing(7), Packing(7), Packing(8)}) == 2
    assert pickle.loads(pickle.dumps(Packing(7))) == Packing(7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Packing(7).levels = 8


@pytest.mark.parametrize("levels", [-3, 0, 1, 257, 65_536])
def test_levels_out_of_range(levels):
    expected = rf"levels must be an integer from 2 to 256, got {levels}$"
    for call in (
        lambda: Packing(levels),
        lambda: pack(np.zeros(3, int), levels),
        lambda: unpack(np.zeros(3, np.uint8), levels, 3),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


@pytest.mark.parametrize("levels", [2.0, "3", None, True, np.True_])
def test_levels_that_are_no_integer(levels):
    with pytest.raises(TypeError, match=re.escape(f"from 2 to 256, got {levels!r}")):
        Packing(levels)


@pytest.mark.parametrize("levels", EVERY_L)
def test_codes_out_of_range(levels):
    for wrong in (-1, levels, levels + 256, 2**40):
        codes = np.array([[0, 1], [wrong, 0]])
        expected = rf"from 0 to {levels - 1} for {levels} levels, got {wrong}$"
        with pytest.raises(ValueError, match=expected):
            pack(codes, levels)
        with pytest.raises(ValueError, match=expected):
            pack(torch.from_numpy(codes), levels)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_large_unsigned_codes_are_out_of_range(dtype):
    largest = np.array([np.iinfo(dtype).max], dtype)
    for codes in (largest, torch.from_numpy(largest)):
        with pytest.raises(ValueError, match=r"from 0 to 255 for 256 levels, got \d+$"):
            pack(codes, 256)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "complex64"])
def test_codes_that_are_no_integers(dtype):
    for codes in (np.zeros(4, dtype), torch.zeros(4, dtype=getattr(torch, dtype))):
        with pytest.raises(TypeError, match=rf"codes must be integers, got \S*{dtype}: convert"):
            pack(codes, 4)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "bool"])
def test_packed_that_is_not_uint8(dtype):
    for packed in (np.zeros(1, dtype), torch.zeros(1, dtype=getattr(torch, dtype))):
        with pytest.raises(TypeError, match=rf"packed must be uint8, .* got \S*{dtype}$"):
            unpack(packed, 4, 4)


def test_lists_and_single_numbers_are_refused():
    with pytest.raises(TypeError, match="codes must be a numpy array or a tensor, got list"):
        pack([0, 1], 2)
    with pytest.raises(TypeError, match="packed must be a numpy array or a tensor, got bytes"):
        unpack(b"\0", 2, 8)
    for number in (np.array(1), torch.tensor(1)):
        with pytest.raises(ValueError, match="codes must have at least one axis"):
            pack(number, 2)
    with pytest.raises(ValueError, match="packed must have at least one axis"):
        unpack(torch.tensor(1, dtype=torch.uint8), 2, 1)


@pytest.mark.parametrize(("length", "error"), [(-1, ValueError), (2.0, TypeError)])
def test_a_length_must_be_a_count(length, error):
    for call in (
        lambda: Packing(3).size(length),
        lambda: unpack(np.zeros(1, np.uint8), 3, length),
    ):
        with pytest.raises(error, match=rf"length must be an integer >= 0, got {length}$"):
            call()


@pytest.mark.parametrize(("levels", "length"), [(2, 9), (3, 6), (5, 14), (9, 11), (256, 3)])
def test_packed_of_another_length(levels, length):
    right = Packing(levels).size(length)
    for size in (0, right - 1, right + 1):
        for packed in (np.zeros((2, size), np.uint8), torch.zeros(2, size, dtype=torch.uint8)):
            with pytest.raises(
                ValueError,
                match=rf"{length} codes of {levels} levels are {right} bytes, got {size} ",
            ):
                unpack(packed, levels, length)


def test_a_length_that_drops_codes_is_noticed():
    packed = pack(np.array([0, 1, 2, 1]), 3)
    with pytest.raises(ValueError, match="more than 3 codes"):
        unpack(packed, 3, 3)


@pytest.mark.parametrize("levels", EVERY_L)
def test_words_that_no_codes_give(levels):
    chosen = Packing(levels)
    limit = 256**chosen.word_bytes
    if chosen.base == levels:
        wrong = {levels**chosen.digits, limit - 1}
    else:
        wrong = {levels * chosen.base**i for i in range(chosen.digits)} | {limit - 1}
    if levels**chosen.digits == limit:  # every word is valid
        wrong = set()
    for word in wrong:
        good = np.zeros(chosen.word_bytes, np.uint8)
        bad = np.frombuffer(word.to_bytes(chosen.word_bytes, "little"), np.uint8)
        packed = np.stack([np.concatenate([good, good]), np.concatenate([good, bad])])
        for given_bytes in (packed, torch.from_numpy(packed)):
            with pytest.raises(
                ValueError, match=rf"^a word of {word} does not hold .* {levels} levels"
            ):
                chosen.unpack(given_bytes, 2 * chosen.digits)


@pytest.mark.parametrize("levels", [n for n in EVERY_L if layout(n)[1] < 4])
def test_every_short_word_is_codes_or_an_error(levels):
    chosen = Packing(levels)
    words = np.arange(256**chosen.word_bytes, dtype=f"<u{chosen.word_bytes}")
    digits = words[:, None] // chosen.base ** np.arange(chosen.digits)
    digits[:, :-1] %= chosen.base
    valid = (digits < levels).all(1)
    assert valid.sum() == levels**chosen.digits
    good = words[valid].view(np.uint8).reshape(-1, chosen.word_bytes)
    np.testing.assert_array_equal(chosen.unpack(good, chosen.digits), digits[valid])
    for word in words[~valid][:5]:
        with pytest.raises(ValueError, match=f"a word of {word} "):
            chosen.unpack(np.array([word]).view(np.uint8), chosen.digits)


def test_codes_in_the_arena_never_lie_across_two_bytes():
    for highest in range(1, 256):
        bits = arena_bits(highest)
        assert bits in (1, 2, 4, 8)
        assert 2 ** (bits // 2) <= highest < 2**bits or bits == highest == 1
        # Packed in that way: the rule of a power of two.
        assert Packing(2**bits).bits_per_code == bits
        for count in (0, 1, 31, 32, 33, 100):
            size = arena_bytes(count, highest)
            assert size % 4 == 0
            assert 0 <= size - Packing(2**bits).size(count) < 4
            assert size == aligned_bytes(count * bits)


@pytest.mark.parametrize(
    ("highest", "error"), [(0, ValueError), (256, ValueError), (1.0, TypeError)]
)
def test_integers_that_the_arena_does_not_hold(highest, error):
    for call in (lambda: arena_bits(highest), lambda: arena_bytes(3, highest)):
        with pytest.raises(
            error, match=f"highest must be an integer from 1 to 255, got {highest}$"
        ):
            call()


def test_it_needs_numpy_torch_and_the_standard_library_alone():
    tree = ast.parse(Path(packing.__file__).read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in names}
    assert roots - set(sys.stdlib_module_names) == {"numpy", "torch"}
