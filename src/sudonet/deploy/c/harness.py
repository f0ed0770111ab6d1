"""A program for any computer that runs a network's C on samples and compares."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sudonet.deploy.c.code import filled, prefixed
from sudonet.deploy.c.plan import Plan
from sudonet.deploy.c.source import C_TYPES, has_argmax, has_scores
from sudonet.deploy.c.tables import numbers
from sudonet.deploy.grid import Integers

_MAIN = """
/* For any computer: runs @net@ on samples and compares with what sudonet computed. */
#include "@net@.h"
#include <stdio.h>

#define SAMPLES @count@

static const @given@ samples[SAMPLES][NET_INPUTS] = {
@samples@
};

static const @made@ expected[SAMPLES][NET_OUTPUTS] = {
@expected@
};

int main(void)
{
    static uint8_t arena[NET_ARENA_BYTES];
    static @made@ output[NET_OUTPUTS];
    unsigned wrong = 0u, sample, i;
    for (sample = 0u; sample < SAMPLES; sample++) {
        unsigned differences = 0u;
@largest@        net_run(samples[sample], output, arena);
        for (i = 0u; i < NET_OUTPUTS; i++) {
            if (output[i] != expected[sample][i]) {
                if (differences == 0u) {
                    printf("sample %u, output %u: %lld instead of %lld\\n", sample, i,
                           (long long)output[i], (long long)expected[sample][i]);
                }
                differences++;
            }
@follow@        }
@compare@        wrong += differences != 0u;
    }
    if (wrong != 0u) {
        printf("FAIL: %u of %u samples differ\\n", wrong, (unsigned)SAMPLES);
        return 1;
    }
    printf("PASS: %u samples, every output as expected\\n", (unsigned)SAMPLES);
    return 0;
}
"""


def main_program(plan: Plan, name: str, integers: Integers) -> str:
    """The C of a program that says PASS and returns 0 if every output is that of the reference."""
    expected = plan.network.trace(integers)[-1].reshape(len(integers), -1)
    given, made = C_TYPES[integers.dtype.name], "int64_t" if has_scores(plan) else "uint8_t"
    largest = has_argmax(plan)
    text = filled(
        _MAIN,
        net=name,
        count=len(integers),
        given=given,
        made=made,
        samples=_rows(integers.reshape(len(integers), -1), given),
        expected=_rows(expected, made),
        largest="        unsigned best = 0u;\n" if largest else "",
        follow="            if (expected[sample][i] > expected[sample][best]) {\n"
        "                best = i;\n            }\n"
        if largest
        else "",
        compare="        if (net_argmax(samples[sample], arena) != best) {\n"
        '            printf("sample %u: the largest is not at %u\\n", sample, best);\n'
        "            differences++;\n        }\n"
        if largest
        else "",
    )
    return prefixed(text, name)


def _rows(table: NDArray[Any], kind: str) -> str:
    return ",\n".join(f"{{\n{numbers(row.tolist(), kind)}\n}}" for row in table)
