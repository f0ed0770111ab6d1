"""Damaged and hostile files of integer networks: none may do more than be refused.

    python -m tests.deploy.fuzz_artefact 100000

tries so many files. Two in five are mutants of small networks; two in five get a right checksum
again, so that they reach what lies behind it; one in five is a network whose sizes are random, up
to far too large. Each must give an ArtefactError, or a network that can be listed and runs; within
limits of time and memory, and without a warning. Prints how many came to what end.
"""

import argparse
import hashlib
import json
import math
import random
import re
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sudonet.deploy.artefact import ArtefactError, dumps, loads
from sudonet.deploy.listing import listing
from sudonet.deploy.memory import work
from tests.deploy import zoo
from tests.deploy.bombs import large

# Small, and with one of everything that a file can say.
SEEDS = (
    ("softmax", "ternary"),
    ("dense", "int8"),
    ("dense", "float32"),
    ("argmax of other weights in every layer", "mixed"),
    ("a norm, other weights in every layer", "mixed"),
    ("transposed, relu6", "int4"),
    ("sequences, codes", "binary"),
    ("many levels, words", "int8"),
)
SECONDS = 2.0
MEGABYTES = 256
MAX_BYTES = 2**27
ELEMENTS = 2**14  # more of them are not run by the reference
WORK = 2**27  # more of it is not done here


def split(data):
    """The metadata's text and the arrays, by the specification alone."""
    length, size = struct.unpack("<IQ", data[12:24])
    return data[64 : 64 + length], data[len(data) - size :] if size else b""


def joined(text, arrays, version=None):
    """The file of any metadata and arrays, with lengths, checksum and version that fit."""
    if version is None:
        version = 2 if b'"inputs_from_examples"' in text else 1
    head = b"\x89SUDO\r\n\x1a" + struct.pack("<IIQQ", version, len(text), len(arrays), 0)
    body = text + bytes(-len(text) % 64) + arrays
    return head + hashlib.sha256(head + body).digest() + body


def checksummed(data):
    """The same bytes with the checksum that they should have."""
    return data[:32] + hashlib.sha256(data[:32] + data[64:]).digest() + data[64:]


BITS = {"int8": 8, "int4": 4, "ternary": 2, "binary": 1}
BITS |= {"int32": 32, "int64": 64, "float32": 32, "float64": 64}
NUMBERS = [0, 1, -1, 2, 3, 7, 8, 17, 64, 255, 256, 2**15, 2**16, 2**24, 2**26, 2**31 - 1, 2**31]
NUMBERS += [-(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 0.5, -0.0, 1e-300, 1e300, 5e-324]
WORDS = ["", "affine", "max_pool", "sum_pool", "dense", "conv", "transposed", "real", "tanh"]
WORDS += ["softmax", "argmax", "codes", "scores", "real_scores", "channel_thresholds", "é\n\0"]
WORDS += ["shared_thresholds", "real_thresholds", "sudo-4", "r-sudo-8", "sudo-256", "sudo-65536"]
WORDS += ["SUDO-4", "sudo-٤", "sudo-1", "r-sudo-7-full", "sudo-" + "9" * 5000, *BITS]
RAW = [b"[" * 2000, b'{"a":' * 40 + b"0" + b"}" * 40, b"9" * 5000, b"NaN", b"-Infinity", b"1e999"]
RAW += [b'"\\ud800"', b"\xff\xfe", b"\xef\xbb\xbf", b"1e-999", b"-0", b"1.0", b"null", b"9" * 19]
RAW += [b"0." + b"1" * 500, b'{"a":1,"a":2}', b"[" + b"[]," * 5000 + b"0]", b"true", b"\0"]


def damaged(rng, data):
    """Some bytes changed, lost or added: what disks, networks and editors do."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        place = rng.randrange(len(found) + 1)
        if rng.random() < 0.3:
            place = min(place, rng.randrange(64))
        end = min(len(found), place + rng.choice([1, 1, 2, 4, 8, 64, 1000]))
        piece = rng.choice(
            [
                b"",
                rng.randbytes(end - place),
                bytes(end - place),
                b"\xff" * (end - place),
                bytes(byte ^ 1 << rng.randrange(8) for byte in found[place:end]),
                found[place:end] * 2,
            ]
        )
        found[place:end] = piece
        if rng.random() < 0.15:
            del found[rng.randrange(len(found) + 1) :]
        if not found:
            break
    return bytes(found) if found != data else data[:-1]


def places(value, path=()):
    """Paths of all values inside of JSON."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(inside):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def changed_value(rng, meta):
    """One value of the metadata changed, removed, copied or moved."""
    paths = list(places(meta))
    if not paths:
        return
    path = rng.choice(paths)
    if rng.random() < 0.5:  # of numbers, which are most of what matters
        path = rng.choice([p for p in paths if type(at(meta, p)) in (int, float)] or [path])
    holder, key = at(meta, path[:-1]), path[-1]
    old, other = holder[key], at(meta, rng.choice(paths))
    way = rng.randrange(12)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(rng.choice(holder))))
    elif way == 2 and isinstance(holder, list):
        rng.shuffle(holder)
    elif way == 3 and isinstance(holder, dict):
        holder[rng.choice(["x", *map(str, paths[0]), *WORDS[:4]])] = old
    elif way == 4:
        holder[key] = json.loads(json.dumps(other))
    elif way == 5:
        holder[key] = [old]
    elif isinstance(old, str):
        holder[key] = rng.choice(WORDS)
    elif type(old) in (int, float):
        near = [old + 1, old - 1, old * 2, -old, old / 2, int(old) // 2, int(old) * 1000]
        holder[key] = rng.choice(near + [rng.choice(NUMBERS)] * 3)
    else:
        holder[key] = rng.choice([*NUMBERS, None, True, False, [], {}, "", "a", [1, 1], [0]])


def laid_out(rng, meta, arrays):
    """Offsets and lengths as they follow from types and shapes, and data of that length."""
    data = bytearray()

    def visit(value):
        if isinstance(value, dict) and {"offset", "length", "dtype", "shape"} <= set(value):
            shape, bits = value["shape"], BITS.get(str(value["dtype"]), 8)
            whole = isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape)
            length = -(-math.prod(shape) * bits // 8) if whole else 0
            if 0 < length < 100_000:
                data.extend(bytes(-len(data) % 64))
                start = value["offset"] if type(value["offset"]) is int else 0
                kept = arrays[max(start, 0) :][:length]
                filler = bytes(length) if rng.random() < 0.5 else rng.randbytes(length)
                value["offset"], value["length"] = len(data), length
                data.extend(kept + filler[len(kept) :])
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                visit(item)

    visit(meta)
    return bytes(data)


def stays_whole(rng, meta):
    """Fields that depend on one another changed together, so that the network may still run."""
    layer = rng.choice(meta["layers"])
    after = layer.get("after", {})
    way = rng.randrange(6)
    if way == 0:
        grid = meta["inputs"]
        key = rng.choice(list(grid))
        grid[key] = rng.choice([grid[key] * 2, grid[key] + 1, grid[key] - 300, 0, 2**24, 0.5])
        meta["layers"][0]["grid_in"] = dict(grid)
        if layer.get("centred"):
            layer["twice_zero"] = int(2 * grid["zero"])
    elif way == 1 and "unit" in after:
        after["unit"] = rng.choice(["sudo-4", "sudo-4-sigmoid", "r-sudo-6", "r-sudo-7-full"])
        after.setdefault("table", {"shape": [1]})["shape"][-1] = 3
    elif way == 2:
        meta["output"] = rng.choice(["real", "tanh", "softmax", "argmax", "codes"])
    elif way == 3 and "weights" in layer:
        layer["weights"]["dtype"] = rng.choice(list(BITS))
    elif way == 4 and len(layer["shape_in"]) > 1:
        axis = rng.randrange(2)
        key = rng.choice(["padding", "stride", "dilation", "output_padding", "kernel"])
        if key in layer:
            layer[key][axis] = rng.choice([0, 1, 2, 3, 5, 2**20])
        shape = layer["shape_out"]
        shape[-1 if axis else -2] = rng.choice([1, 2, 3, 4, 5, 6, 2**12, 2**25])
    elif way == 5:
        del meta["layers"][rng.randrange(len(meta["layers"])) :]


def filled(rng, meta, arrays):
    """Numbers put into one array: extremes, noise, or noise in order."""
    found = [at(meta, p) for p in places(meta)]
    found = [v for v in found if isinstance(v, dict) and {"offset", "length"} <= set(v)]
    spans = [(v["offset"], v["length"], v.get("dtype")) for v in found]
    spans = [s for s in spans if all(type(n) is int and 0 <= n < 100_000 for n in s[:2])]
    if not spans:
        return arrays
    offset, length, dtype = rng.choice(spans)
    size = BITS.get(str(dtype), 8) // 8
    if size < 4 or length % size:
        made = rng.choice([rng.randbytes(length), bytes(length), b"\x7f" * length])
    elif dtype.startswith("float"):
        numbers = [rng.choice([0.0, 1.0, -1e30, 1e300, math.inf, math.nan]) for _ in range(9)]
        with np.errstate(over="ignore"):
            made = np.resize(numbers, length // size).astype(f"<f{size}").tobytes()
    else:
        top = 2 ** (8 * size - 1) - 1
        reach = rng.choice([top, top // 2, top // 2 + 1, 1000])
        ends = rng.random() < 0.3  # the largest of all are where sums overflow
        ways = [lambda: rng.randint(-reach - 1, reach), lambda: rng.choice([-top - 1, 1, top])]
        numbers = np.array([ways[ends]() for _ in range(length // size)])
        made = (np.sort(numbers) if rng.random() < 0.7 else numbers).astype(f"<i{size}").tobytes()
    return arrays[:offset] + made + arrays[offset + length :]


def repaired(rng, data):
    """A change of the content, in a file that is otherwise right."""
    text, arrays = split(data)
    way = rng.randrange(10)
    if way == 0:
        return checksummed(damaged(rng, data).ljust(64, b"\0"))
    if way == 1:
        return joined(damaged(rng, text), arrays)
    if way == 2:
        cut = rng.choice([m.span() for m in re.finditer(rb"-?[0-9.e-]+|\"[^\"]*\"|[{\[]", text)])
        text = text[: cut[0]] + rng.choice(RAW) + text[cut[1] :]
        return joined(text, arrays, rng.choice([1, 1, 1, 1, 0, 2, 2**32 - 1]))
    if way == 3:
        return joined(text, damaged(rng, arrays))
    meta = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if way < 7:
            changed_value(rng, meta)
        elif way < 9 and meta["layers"]:
            stays_whole(rng, meta)
    if rng.random() < 0.8:
        arrays = laid_out(rng, meta, arrays)
    if way == 9 or rng.random() < 0.2:
        arrays = filled(rng, meta, arrays)
    return joined(json.dumps(meta).encode(), arrays)


def grown(rng, _):
    """A file whose sizes fit together, and may be far too large."""
    try:
        return dumps(large(rng))
    except ArtefactError:  # larger than any file may be
        return grown(rng, _)


MAKERS = {"damaged": damaged, "repaired": repaired, "large": grown}


def kind_of(message):
    """A message without what differs from file to file."""
    message = re.split(r",? got |, but | JSON:|: expected| must be one of ", message)[0]
    message = re.sub(r"^layer \d+ \(.*?\): ", "layer: ", message)
    return re.sub(r"'[^']*'|\(.*?\)|\[.*?\]|-?[\d,.]*\d", "#", message)


def outcome(data):
    """What became of a file: why it was refused, or that it runs."""
    try:
        network = loads(data, max_bytes=MAX_BYTES)
    except ArtefactError as error:
        return "refused: " + kind_of(str(error))
    listing(network)
    if sum(map(work, network.layers)) > WORK:
        return "loads, too much work to run here"
    shapes = [network.shape_in, *(layer.shape_out for layer in network.layers)]
    places = [math.prod(layer.kernel) for layer in network.layers]
    fits = max(*places, *map(math.prod, shapes)) <= ELEMENTS
    x = np.random.default_rng(0).integers(
        network.inputs.low, network.inputs.high, (1 + fits, *network.shape_in), endpoint=True
    )
    x = x.astype(network.inputs.dtype)
    if not fits:
        network.raw(x)
        return "loads and runs, too large for the reference"
    trace = network.trace(x)
    np.testing.assert_array_equal(network.raw(x), trace[-1])
    found = network(network.codes(x))
    assert np.isfinite(found).all()
    again = loads(dumps(network))
    np.testing.assert_array_equal(again.raw(x), trace[-1])
    return "loads and runs"


def limit_memory(megabytes):
    """Let this process have so much more than it has now."""
    import resource

    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + megabytes * 2**20,) * 2)


def too_slow(*_):
    raise TimeoutError(f"took more than {SECONDS} seconds of the processor")


def fuzz(count, seed):
    """Count the outcomes of so many mutants, and list those that came to a bad end."""
    rng = random.Random(seed)
    networks = [zoo.network(*case) for case in SEEDS]
    # As if examples had given the range of the last one: a file of version 2.
    found = replace(networks[-1].inputs, from_examples=True)
    seeds = [dumps(network) for network in (*networks, replace(networks[-1], inputs=found))]
    assert {outcome(data) for data in seeds} == {"loads and runs"}
    outcomes, bad, slowest = Counter(), [], 0.0
    warnings.simplefilter("error")
    limit_memory(MEGABYTES)
    signal.signal(signal.SIGPROF, too_slow)
    for number in range(count):
        way = ("damaged", "repaired", "damaged", "repaired", "large")[number % 5]
        mutant = MAKERS[way](rng, rng.choice(seeds))
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            found = outcome(mutant)
            if way == "damaged" and not found.startswith("refused"):
                raise AssertionError("the checksum let a change pass")
        except Exception as error:
            found = f"BAD: {type(error).__name__}"
            bad.append((number, mutant, traceback.format_exc()))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, time.process_time() - start)
        outcomes[f"{way}, {found}"] += 1
    return outcomes, bad, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    outcomes, bad, slowest = fuzz(arguments.count, arguments.seed)
    for found, count in outcomes.most_common(50):
        print(f"{count:8,} {found[:110]}")
    if len(outcomes) > 50:
        print(f"         and {len(outcomes) - 50} other ends")
    groups = Counter()
    for found, count in outcomes.items():
        groups[found.split(":")[0]] += count
    print(f"{arguments.count:,} files: {', '.join(f'{n:,} {k}' for k, n in groups.items())}")
    print(f"{time.process_time() - start:.0f} s, {1000 * slowest:.0f} ms for the slowest")
    for number, mutant, text in bad[:5]:
        print(f"\nfile {number}, {len(mutant)} bytes:\n{text}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
