"""Damaged and forged files of exported programs: none may do more than be refused.

    python -m tests.deploy.fuzz_pt2 10000

tries so many mutants of small programs: bytes changed, values of the graph and of the tensors'
descriptions changed, parts left out or exchanged, and the archive written again. Each must give
a CompileError that names the file, or a network; within limits of time and memory, and without
a line on stderr. Prints how many came to what end.
"""

import argparse
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from pathlib import Path

import torch
from torch import nn

from sudonet import RSUDO, SUDO, deploy
from sudonet.deploy import CompileError, Grid
from sudonet.deploy.artefact import ArtefactError, dumps
from sudonet.deploy.program_file import load_program
from tests.deploy.fuzz_artefact import (
    at,
    changed_value,
    damaged,
    kind_of,
    limit_memory,
    places,
    too_slow,
)

SECONDS = 10.0
MEGABYTES = 512
MAX_BYTES = 2**27
NUMBERS = [0, 1, -1, 3, 4, 7, 12, 13, 2**20, 2**31, 2**40, 2**62, 2**63, 10**30, 0.5, 1e300]
OTHERS = [None, True, "", "x", [], {}, [1, 1], "cuda", "meta", "cpu", "sudo-256", "same"]


def programs():
    """Archives by name."""
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(6, 5), SUDO(16), nn.Linear(5, 3), nn.Softmax(1))
    conv = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), SUDO(8), nn.MaxPool2d(2)),
        *(nn.ConvTranspose2d(4, 2, 2, stride=2), RSUDO(6), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(8, 3)),
    )
    line = nn.Sequential(nn.Conv1d(2, 3, 3), SUDO(40), nn.MaxPool1d(2), nn.Conv1d(3, 2, 2))
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    return {
        "dense": archive(dense, (2, 6), (batch,)),
        "conv": archive(conv, (2, 1, 4, 4)),
        "line": archive(line, (2, 2, 8)),
    }


def archive(model, shape, dynamic=None):
    made = io.BytesIO()
    program = torch.export.export(model.eval(), (torch.zeros(shape),), dynamic_shapes=dynamic)
    torch.export.save(program, made)
    return made.getvalue()


def unpacked(data):
    """The parts of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        return {name: found.read(name) for name in found.namelist()}


def packed(parts, compression=zipfile.ZIP_STORED):
    """An archive of parts."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as target:
        for name, content in parts.items():
            target.writestr(name, content)
    return made.getvalue()


def named(parts, end):
    """The name of the part whose name has that end."""
    return next(name for name in parts if name.endswith(end))


def edited(rng, value):
    """Some values of JSON changed: numbers, and words that mean something here."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if rng.random() < 0.5:
            changed_value(rng, value)
            continue
        paths = list(places(value))
        path = rng.choice(paths)
        holder, key = at(value, path[:-1]), path[-1]
        if rng.random() < 0.3:
            holder[key] = json.loads(json.dumps(at(value, rng.choice(paths))))
        else:
            holder[key] = rng.choice(NUMBERS + OTHERS)


def tensor_changed(rng, listed):
    """The description of one tensor changed so that it may still be read."""
    entries = list(listed["config"].values())
    if not entries:
        return
    entry, other = rng.choice(entries), rng.choice(entries)
    meta = entry["tensor_meta"]
    way = rng.randrange(8)
    size = {"as_int": rng.choice([0, 1, 2, 3, 9, 1000, 2**31, 2**40])}
    if way == 0 and meta["sizes"]:
        meta["sizes"][rng.randrange(len(meta["sizes"]))] = size
    elif way == 1 and meta["strides"]:
        meta["strides"][rng.randrange(len(meta["strides"]))] = size
    elif way == 2:
        meta["storage_offset"] = size
    elif way == 3:
        meta["dtype"] = rng.randrange(40)
    elif way == 4:
        meta["device"] = {"type": rng.choice(["cuda", "meta", "cpu", "xla", "hpu"]), "index": 0}
    elif way == 5:
        meta["layout"] = rng.randrange(9)
    elif way == 6:
        entry["path_name"] = other["path_name"]
    else:
        entry["tensor_meta"] = json.loads(json.dumps(other["tensor_meta"]))


def graph_changed(rng, program):
    """Nodes, arguments and declared shapes exchanged."""
    graph = program["graph_module"]["graph"]
    nodes = graph["nodes"]
    node = rng.choice(nodes)
    way = rng.randrange(7)
    if way == 0:
        nodes.insert(rng.randrange(len(nodes) + 1), json.loads(json.dumps(node)))
    elif way == 1:
        rng.shuffle(nodes)
    elif way == 2:
        node["target"] = rng.choice(nodes)["target"]
    elif way == 3 and node["inputs"]:
        argument = rng.choice(node["inputs"])
        argument["arg"] = json.loads(json.dumps(rng.choice(rng.choice(nodes)["inputs"])["arg"]))
    elif way == 4:
        value = rng.choice(list(graph["tensor_values"].values()))
        if value["sizes"]:
            size = {"as_int": rng.choice([0, 1, 2, 5, 2**20, 2**40, -1])}
            value["sizes"][rng.randrange(len(value["sizes"]))] = size
    elif way == 5:
        spec = rng.choice(program["graph_module"]["signature"]["input_specs"])
        other = rng.choice(program["graph_module"]["signature"]["input_specs"])
        spec.clear()
        spec.update(json.loads(json.dumps(other)))
    else:
        for argument in node["inputs"]:
            for kind in ("as_int", "as_ints"):
                if kind in argument["arg"]:
                    number = rng.choice([0, 1, 3, -1, 2**20, 2**31, 2**40])
                    argument["arg"][kind] = number if kind == "as_int" else [number, 1]


def mutant(rng, data):
    """A damaged or forged archive."""
    way = rng.randrange(10)
    if way == 0:
        return damaged(rng, data)
    parts = unpacked(data)
    name = rng.choice(list(parts))
    if way == 1:
        parts[name] = damaged(rng, parts[name]) if parts[name] else b"x"
    elif way == 2:
        del parts[name]
    elif way == 3:
        parts[name] = rng.choice([b"", parts[rng.choice(list(parts))], b"[" * 5000, b"null"])
    else:
        end, change = rng.choice(
            [
                ("models/model.json", edited),
                ("models/model.json", graph_changed),
                ("models/model.json", graph_changed),
                ("weights_config.json", edited),
                ("weights_config.json", tensor_changed),
                ("weights_config.json", tensor_changed),
            ]
        )
        name = named(parts, end)
        value = json.loads(parts[name])
        change(rng, value)
        parts[name] = json.dumps(value).encode()
        if rng.random() < 0.2:  # records of no bytes were tensors of any size
            parts[rng.choice([n for n in parts if "/weight_" in n])] = b""
    return packed(parts, zipfile.ZIP_DEFLATED if rng.random() < 0.02 else zipfile.ZIP_STORED)


def outcome(path):
    """What became of a file: why it was refused, or that it compiles."""
    try:
        program = load_program(path, max_bytes=MAX_BYTES)
    except CompileError as error:
        message = str(error)
        if not message.startswith(str(path)) or not message.isprintable():
            raise AssertionError(f"a bad message: {message!r}") from error
        if "memory" in message and "the limit is" not in message:
            raise AssertionError(f"it asked for too much memory: {message}") from error
        if isinstance(error.__cause__, MemoryError | TimeoutError):
            raise AssertionError("it took too much memory or time") from error
        return "refused: " + kind_of(message.removeprefix(str(path)).strip(" :"))
    try:
        network = deploy.compile(program, inputs=Grid.of_range(0, 1))
        dumps(network)
    except (CompileError, ArtefactError) as error:
        return "refused, compiling: " + kind_of(str(error))
    return "compiles"


def fuzz(count, seed):
    """Count the outcomes of so many mutants, and list those that came to a bad end."""
    rng = random.Random(seed)
    outcomes, bad, slowest = Counter(), [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        seeds = list(programs().values())
        for data in seeds:
            path.write_bytes(data)
            assert outcome(path) == "compiles"
        limit_memory(MEGABYTES)
        signal.signal(signal.SIGPROF, too_slow)
        for number in range(count):
            data = mutant(rng, rng.choice(seeds))
            path.write_bytes(data)
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                found = outcome(path)
            except Exception as error:
                found = f"BAD: {type(error).__name__}"
                bad.append((number, data, traceback.format_exc()))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            slowest = max(slowest, time.process_time() - start)
            outcomes[found] += 1
    return outcomes, bad, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    with tempfile.TemporaryFile() as written:
        kept = os.dup(2)
        os.dup2(written.fileno(), 2)  # what C++ writes, too
        try:
            outcomes, bad, slowest = fuzz(arguments.count, arguments.seed)
        finally:
            os.dup2(kept, 2)
        written.seek(0)
        log = written.read().decode(errors="replace")
    for found, count in outcomes.most_common(40):
        print(f"{count:8,} {found[:110]}")
    groups = Counter()
    for found, count in outcomes.items():
        groups[found.split(":")[0]] += count
    print(f"{arguments.count:,} files: {', '.join(f'{n:,} {k}' for k, n in groups.items())}")
    print(f"{time.process_time() - start:.0f} s, {1000 * slowest:.0f} ms for the slowest")
    print(f"{len(log.splitlines()):,} lines on stderr")
    print("\n".join(log.splitlines()[:20]))
    for number, data, text in bad[:5]:
        print(f"\nfile {number}, {len(data)} bytes:\n{text}")
    return 1 if bad or log else 0


if __name__ == "__main__":
    sys.exit(main())
