"""A network as C99: one source, one header."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sudonet.deploy.c.code import filled, prefixed
from sudonet.deploy.c.layers import Parts, parts, rows_text
from sudonet.deploy.c.plan import Plan, output_count
from sudonet.deploy.layers import (
    Affine,
    ChannelThresholds,
    Layer,
    MaxPool,
    Scores,
    Shape,
    SharedThresholds,
    SumPool,
)

C_TYPES = {"uint8": "uint8_t", "uint16": "uint16_t", "int16": "int16_t", "int32": "int32_t"}

_WINDOW_TYPES = """
/* Windows along one axis. Output out_first + n * out_step sees first + n * step + t * distance. */
typedef struct {
    int32_t first;
    uint32_t step, taps, distance, outputs, out_first, out_step;
} net_axis;

/* Outputs with the same weights: all of a convolution, some of a transposed one. */
typedef struct {
    net_axis rows, columns;
    uint32_t inputs;  /* numbers of a window, up to the end of a word of weights */
    uint32_t bytes;   /* of a window */
    uint32_t weights; /* elements of one group's table */
    const int32_t *offset;
} net_pass;

typedef struct {
    uint32_t channels, height, width; /* channels of one group */
    uint32_t groups, out_height, out_width;
    uint32_t pool_height, pool_width, pool_down, pool_across; /* 1 if nothing is pooled */
    uint32_t pad; /* the padding value */
    uint32_t passes;
    const net_pass *pass;
    const net_rows *rows;
} net_windows;
"""

_POOL_TYPE = """
typedef struct {
    uint32_t channels, height, width, out_height, out_width;
    uint32_t kernel_height, kernel_width, stride_height, stride_width, pad_height, pad_width;
} net_pool;
"""

_RESULT_TYPE = """
typedef struct {
    int64_t *output;
    int64_t best;
    uint32_t place;
} net_result;
"""

_DSP = """
#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
#endif
"""

_LITTLE = """
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "inputs of more than 8 bits are read byte by byte, the lowest first"
#endif
"""

_RUN = """

@signature@
{
    net_result result;
    result.output = output;
    result.best = 0;
    result.place = 0u;
    net_layers(input, &result, arena);
}
"""

_ARGMAX = """

uint32_t net_argmax(@given@, uint8_t *arena)
{
    net_result result;
    result.output = 0;
    result.best = 0;
    result.place = 0u;
    net_layers(input, &result, arena);
    return result.place;
}
"""

_HEADER = """
#ifndef NET_H
#define NET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

@sizes@

/* @gives@ */
@signature@;
@argmax@
#ifdef __cplusplus
}
#endif

#endif
"""

_DECLARED_ARGMAX = """

/* The place of the largest score, the first of equal ones; needs no output. */
uint32_t net_argmax(@given@, uint8_t *arena);
"""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network's C that are known before it is compiled.

    Attributes
    ----------
    weights, thresholds
        Bytes of tables in flash; the second are thresholds, factors and the like.
    arena, output
        Bytes of RAM that the caller gives, besides the input.
    multiply_adds
        Products for one example.
    """

    weights: int
    thresholds: int
    arena: int
    output: int
    multiply_adds: int


def has_scores(plan: Plan) -> bool:
    return _fraction(plan) is not None


def has_argmax(plan: Plan) -> bool:
    """Whether there is a function for the index of the largest score."""
    return has_scores(plan) and len(plan.network.layers[-1].shape_out) == 1


def _fraction(plan: Plan) -> int | None:
    """Binary digits after the point of the scores; None if the network gives codes."""
    last = plan.network.layers[-1]
    if isinstance(last, Affine) and isinstance(last.after, Scores):
        return last.after.fraction
    return None


def written(plan: Plan, name: str) -> tuple[str, str, Sizes]:
    """Source, header and sizes."""
    found = parts(plan)
    sizes = Sizes(
        weights=found.weights,
        thresholds=found.thresholds,
        arena=plan.arena,
        output=output_count(plan.network) * (8 if has_scores(plan) else 1),
        multiply_adds=sum(
            layer.multiply_adds for layer in plan.network.layers if isinstance(layer, Affine)
        ),
    )
    block = _comment(plan, sizes) + "\n"
    source, header = _source(plan, name, found), _header(plan, sizes)
    return block + prefixed(source, name), block + prefixed(header, name), sizes


def _source(plan: Plan, name: str, found: Parts) -> str:
    kind, described = rows_text(found)
    functions = found.code.text
    texts = [
        f'#include "{name}.h"\n',
        _DSP if "__ARM_FEATURE_DSP" in functions else "",
        _LITTLE if plan.network.inputs.dtype.name != "uint8" else "",
        kind,
        _WINDOW_TYPES if "net_windows *" in functions else "",
        _POOL_TYPE if "net_pool *" in functions else "",
        _RESULT_TYPE if has_scores(plan) else "",
        *found.tables,
        described,
        *found.descriptions,
        functions,
        _run(plan, found.calls),
    ]
    return "\n".join(text.lstrip("\n") for text in texts if text)


def _run(plan: Plan, calls: list[str]) -> str:
    given = _given(plan)
    if "uint8_t" not in given.split():
        calls = [re.sub(r"\binput\b", "(const uint8_t *)input", call) for call in calls]
    if not any("arena" in call for call in calls):
        calls = ["(void)arena;", *calls]
    body = "".join(f"    {call}\n" for call in calls)
    if not has_scores(plan):
        return f"{_signature(plan)}\n{{\n{body}}}\n"
    text = f"static void net_layers({given}, net_result *result, uint8_t *arena)\n{{\n{body}}}\n"
    text += filled(_RUN, signature=_signature(plan))
    return text + filled(_ARGMAX, given=given) if has_argmax(plan) else text


def _given(plan: Plan) -> str:
    return f"const {C_TYPES[plan.network.inputs.dtype.name]} *input"


def _signature(plan: Plan) -> str:
    made = "int64_t" if has_scores(plan) else "uint8_t"
    return f"void net_run({_given(plan)}, {made} *output, uint8_t *arena)"


def _header(plan: Plan, sizes: Sizes) -> str:
    network = plan.network
    sizes_of = {
        "INPUTS": math.prod(network.shape_in),
        "OUTPUTS": output_count(network),
        "ARENA_BYTES": sizes.arena,
        "FRACTION": _fraction(plan),
    }
    return filled(
        _HEADER,
        sizes="\n".join(f"#define NET_{k} {v}" for k, v in sizes_of.items() if v is not None),
        gives=_gives(plan),
        signature=_signature(plan),
        argmax=filled(_DECLARED_ARGMAX, given=_given(plan)) if has_argmax(plan) else "",
    )


def _gives(plan: Plan) -> str:
    fraction, output = _fraction(plan), plan.network.output
    if fraction is None:
        grid = plan.network.layers[-1].grid_out
        assert grid is not None
        return f"Codes from 0 to {grid.high}: n stands for {grid.scale:.9g} * (n - {grid.zero:g})."
    text = f"Scores in units of 2^-{fraction}."
    if output in ("tanh", "softmax"):
        return f"{text} The model goes on with their {output}, which is left to the caller."
    if output == "argmax":
        return f"{text} The model goes on with the place of the largest."
    return text


def _comment(plan: Plan, sizes: Sizes) -> str:
    network, grid = plan.network, plan.network.inputs
    if has_argmax(plan):
        output = f", and {sizes.output:,} of output where scores are asked for"
    else:
        output = f" and {sizes.output:,} of output"
    kind = C_TYPES[grid.dtype.name]
    text = f"""
An integer network in C99, written by sudonet for {plan.optimise}.

{"".join(f"  {_described(layer)}{chr(10)}" for layer in network.layers)}
Input: {_times(network.shape_in)} of {kind} from {grid.low} to {grid.high}, channels first;
n stands for {grid.scale:.9g} * (n - {grid.zero:.9g}).

Flash: {sizes.weights:,} bytes of weights, {sizes.thresholds:,} of thresholds, and the code.
RAM: {sizes.arena:,} bytes of arena{output}.
Multiply-adds: {sizes.multiply_adds:,}.

No C library, no heap, no floating point, no recursion, no variables that outlive a call.
The arena may lie anywhere; at a multiple of 4 it is read fastest.
"""
    lines = [f" * {line}".rstrip() for line in text.strip().splitlines()]
    return "\n".join(["/*", *lines, " */"]) + "\n"


def _times(shape: Shape) -> str:
    return " x ".join(str(size) for size in shape)


def _described(layer: Layer) -> str:
    name = re.sub(r"[^\w. -]", "_", layer.name, flags=re.ASCII)
    shapes = f"{_times(layer.shape_in)} to {_times(layer.shape_out)}"
    if isinstance(layer, MaxPool):
        return f"{name}: the largest of windows, {shapes}"
    if isinstance(layer, SumPool):
        return f"{name}: sums of windows, {shapes}"
    if isinstance(layer.after, ChannelThresholds | SharedThresholds):
        made = layer.after.unit.name
    else:
        made = "scores"
    return f"{name}: {layer.kind}, {layer.weight_kind} weights, {shapes}, {made}"
