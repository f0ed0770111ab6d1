/* RISC-V on QEMU's virt board. */
#include "board.h"

void enter(void);

__attribute__((naked, section(".start"))) void enter(void) {
    __asm__ volatile(".option arch, +zicsr\n"
                     "la t0, fault_with_new_stack\n"
                     "csrw mtvec, t0\n"
                     "la sp, stack_top\n"
                     "j start_rig\n"
                     ".balign 4\n"
                     "fault_with_new_stack:\n"
                     "la sp, stack_top\n"
                     "j fault\n");
}

/* The three instructions that mean semihosting must be long ones and share a page. */
__attribute__((naked, aligned(16))) intptr_t ask_host(__attribute__((unused)) intptr_t operation,
                                                      __attribute__((unused)) intptr_t parameter) {
    __asm__ volatile(".option push\n"
                     ".option norvc\n"
                     "slli x0, x0, 0x1f\n"
                     "ebreak\n"
                     "srai x0, x0, 7\n"
                     ".option pop\n"
                     "ret\n");
}

/* Flash is memory that can be written, and ends where the stack does. One locked entry of the
 * physical memory protection lets its 4 MB be read and executed only. */
void start_board(void) {
    const uint32_t flash = (0x80000000u >> 2) | ((0x400000u >> 3) - 1);
    const uint32_t locked_region_read_execute = 0x9d;
    __asm__ volatile(".option arch, +zicsr\n"
                     "csrw pmpaddr0, %0\n"
                     "csrw pmpcfg0, %1\n"
                     :
                     : "r"(flash), "r"(locked_region_read_execute));
}

uint32_t read_clock(void) {
    uint32_t instructions;
    __asm__ volatile(".option arch, +zicsr\n"
                     "csrr %0, minstret"
                     : "=r"(instructions));
    return instructions;
}
