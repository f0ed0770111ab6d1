import dataclasses
import os
import shutil
import subprocess

import pytest

from tests import ROOT
from tests.deploy.microcontrollers import (
    FAULT,
    TARGETS,
    build,
    compile_object,
    emulate,
    missing,
    run,
    sizes,
)

pytestmark = pytest.mark.mcu

SCRIPT = ROOT / ".ci" / "microcontrollers"

# Two instructions a turn, whatever the compiler does.
LOOP = """
void loop(uint32_t turns);
__attribute__((naked)) void loop(__attribute__((unused)) uint32_t turns) {
#ifdef __riscv
    __asm__ volatile("1: addi a0, a0, -1\\n bnez a0, 1b\\n ret");
#else
    __asm__ volatile(".syntax unified\\n 1: subs r0, r0, #1\\n bne 1b\\n bx lr");
#endif
}
"""


def usable(name):
    target = next(target for target in TARGETS if target.name == name)
    reason = missing(target)
    if reason is not None:
        pytest.skip(reason)
    return target


@pytest.fixture(params=[target.name for target in TARGETS])
def target(request):
    return usable(request.param)


@pytest.fixture
def write(tmp_path):
    """A function: writes C that uses the rig, and returns its file."""

    def make(text, name="program.c"):
        path = tmp_path / name
        path.write_text(f'#include "rig.h"\n{text}\n')
        return path

    return make


@pytest.mark.parametrize("options", [("-O2",), ("-Os",), ("-O0",)])
def test_output_and_status_come_back(target, write, tmp_path, options):
    source = write("""
        static volatile int32_t set = 40, zeroed;
        int main(void) {
            write_text("numbers: ");
            write_number(set + zeroed++ + 2);
            write_text(" ");
            write_number(INT32_MIN);
            write_text("\\n");
            return set + zeroed;
        }
    """)
    result = run(target, [source], tmp_path, options=options)
    assert result.output == "numbers: 42 -2147483648\n"
    assert result.status == 41
    assert result.instructions == ()


def test_what_the_compiler_calls_is_there(target, write, tmp_path):
    source = write("""
        struct large { uint8_t values[300]; };
        static volatile int64_t seven = 7;
        static struct large copy;
        void clear(uint8_t *values, uint32_t count);
        void clear(uint8_t *values, uint32_t count) {
            for (uint32_t i = 0; i < count; i++) values[i] = 3;
        }
        int main(void) {
            struct large here;
            clear(here.values, sizeof here);
            copy = here;
            write_number((int32_t)((seven << 40) / (seven + copy.values[299])));
            return 0;
        }
    """)
    wide = (7 << 40) // 10
    low = (wide + 2**31) % 2**32 - 2**31
    assert run(target, [source], tmp_path).output == str(low)


def test_input_is_read_in_batches(target, write, tmp_path):
    images, pixels = 70, 784  # together more than the RAM of the smallest board
    inputs = bytes((5 * i + i // pixels) % 256 for i in range(images * pixels - 100))
    source = write("""
        static uint8_t image[784];
        int main(void) {
            uint32_t count;
            while ((count = read_input(image, sizeof image)) > 0) {
                int32_t sum = 0;
                for (uint32_t i = 0; i < count; i++) sum += (int32_t)(i + 1) * image[i];
                write_number(sum);
                write_text("\\n");
            }
            return 0;
        }
    """)
    program = build(target, [source], tmp_path)
    batches = [inputs[at : at + pixels] for at in range(0, len(inputs), pixels)]
    expected = [sum(i * value for i, value in enumerate(batch, 1)) for batch in batches]
    assert [int(line) for line in emulate(target, program, inputs).output.split()] == expected
    assert emulate(target, program).output == ""


def test_instructions_are_counted(target, write, tmp_path):
    turns = (1, 2, 10, 1000, 12345, 15_000_000)  # more than a timer of 24 bits counts
    source = write("""
        void loop(uint32_t turns);
        int main(void) {
            uint32_t turns;
            count_begin();
            count_end();
            while (read_input(&turns, sizeof turns)) {
                count_begin();
                loop(turns);
                count_end();
            }
            return 0;
        }
    """)
    inputs = b"".join(n.to_bytes(4, "little") for n in turns)
    program = build(target, [source, write(LOOP, "loop.c")], tmp_path)
    empty, *counts = emulate(target, program, inputs).instructions
    assert abs(empty) <= 1
    # The call, its argument and the return are counted as well.
    assert all(0 <= count - 2 * n <= 4 for n, count in zip(turns, counts, strict=True))
    assert emulate(target, program, inputs).instructions == (empty, *counts)


@pytest.mark.parametrize(
    "wrong",
    [
        "*(volatile uint32_t *)0xc0000000u = 1; return 0;",
        "volatile uint8_t large[4500]; large[0] = 0; return large[0];",
    ],
    ids=["no such address", "stack too small"],
)
def test_a_fault_ends_the_run(target, write, tmp_path, wrong):
    result = run(target, [write(f"int main(void) {{ {wrong} }}")], tmp_path)
    assert (result.output, result.status) == ("fault\n", FAULT)


def test_constants_do_not_change(target, write, tmp_path):
    source = write("""
        extern const int32_t constants[8];
        const int32_t constants[8] = {5};
        int main(void) {
            volatile int32_t *first = (volatile int32_t *)constants;
            *first = 6;
            return *first;
        }
    """)
    # The emulated micro:bit ignores what is written to its flash.
    expected = 5 if target.name == "cortex-m0" else FAULT
    assert run(target, [source], tmp_path).status == expected


def test_a_program_that_does_not_end_is_stopped(write, tmp_path):
    source = write('int main(void) { for (;;) write_text("."); }')
    with pytest.raises(subprocess.TimeoutExpired):
        run(usable("cortex-m0"), [source], tmp_path, timeout=1)


def test_an_emulator_that_fails_is_not_a_result(write, tmp_path):
    target = usable("cortex-m0")
    program = build(target, [write("int main(void) { return 0; }")], tmp_path)
    assert emulate(target, program).status == 0
    wrong = dataclasses.replace(target, emulator=(target.emulator[0], "-machine", "no-such-board"))
    with pytest.raises(RuntimeError, match=r"ended with 1:\n.*unsupported machine type"):
        emulate(wrong, program)


def test_sizes_by_section(target, write, tmp_path):
    source = write("""
        extern const uint8_t weights[1000];
        extern int32_t state[25], sums[50];
        uint8_t weight(uint32_t i);
        const uint8_t weights[1000] = {1, 2, 3};
        int32_t state[25] = {1};
        int32_t sums[50];
        uint8_t weight(uint32_t i) { return weights[i]; }
    """)
    found = sizes(target, compile_object(target, source, tmp_path))
    assert (found.constants, found.data, found.zeroed) == (1000, 100, 200)
    assert 4 <= found.code <= 20
    assert (found.flash, found.ram) == (found.code + 1100, 300)


def test_sizes_of_a_program_are_those_of_the_rig_as_well(target, write, tmp_path):
    source = write("""
        static volatile int32_t sums[200] = {1};
        int main(void) { return sums[7]; }
    """)
    found = sizes(target, build(target, [source], tmp_path))
    assert found.data == 800
    assert 300 < found.code + found.constants < 2000
    assert 0 < found.zeroed <= 32


def test_include_folders_are_searched(target, write, tmp_path):
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "answer.h").write_text("#define ANSWER 42\n")
    source = write('#include "answer.h"\nint main(void) { return ANSWER; }')
    assert run(target, [source], tmp_path, include=[folder]).status == 42
    with pytest.raises(RuntimeError, match=r"answer\.h"):
        run(target, [source], tmp_path)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("int main(void) { int unused = 1; return 0; }", "unused"),
        ("int main(void) { return -1 < 1u; }", "sign-compare"),
        ("int main(void) { return sqrt(2); }", "implicit"),
    ],
)
def test_warnings_are_errors(target, write, tmp_path, text, warning):
    with pytest.raises(RuntimeError, match=warning):
        build(target, [write(text)], tmp_path)


def test_there_is_no_c_library(target, write, tmp_path):
    source = write('char *strdup(const char *); int main(void) { return !strdup(""); }')
    with pytest.raises(RuntimeError, match="strdup"):
        build(target, [source], tmp_path)


def test_what_does_not_fit_the_smallest_board_is_refused(write, tmp_path):
    source = write("""
        static volatile uint8_t values[13000];
        int main(void) { return values[9]; }
    """)
    assert run(usable("cortex-m3"), [source], tmp_path).status == 0
    with pytest.raises(RuntimeError, match="ram"):
        build(usable("cortex-m0"), [source], tmp_path)


def test_the_cortex_m4_has_the_instructions_for_signals(write, tmp_path):
    source = write("""
        #ifndef __ARM_FEATURE_DSP
        #error no instructions for signal processing
        #endif
        int main(void) {
            int32_t sum;
            __asm__ volatile("smlad %0, %1, %2, %3"
                             : "=r"(sum) : "r"(0x00030002), "r"(0x00050007), "r"(100));
            write_number(sum);
            return 0;
        }
    """)
    assert run(usable("cortex-m4"), [source], tmp_path).output == str(3 * 5 + 2 * 7 + 100)
    with pytest.raises(RuntimeError, match="no instructions for signal processing"):
        build(usable("cortex-m3"), [source], tmp_path)


def test_the_reason_names_what_is_missing_and_the_way_out():
    target = dataclasses.replace(TARGETS[0], compiler="no-such-gcc", emulator=("no-such-qemu",))
    reason = missing(target)
    assert "cortex-m0: no no-such-gcc, no-such-size, no-such-qemu: .ci/microcontrollers" in reason


def test_the_script_goes_on_without_what_it_cannot_install(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    environment = {**os.environ, "PATH": str(tmp_path)}
    ran = subprocess.run([bash, SCRIPT], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0
    assert "gcc-arm-none-eabi qemu-system-arm gcc-riscv64-unknown-elf" in ran.stderr
