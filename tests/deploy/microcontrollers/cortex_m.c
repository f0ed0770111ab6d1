/* Cortex-M: the vector table, from which the processor takes its stack and where to start. */
#include "board.h"

extern uint32_t stack_top[];

/* A stack that ran over is of no use to what reports it. */
__attribute__((naked)) static void fault_with_new_stack(void) {
    __asm__ volatile("ldr r0, =stack_top\n"
                     "mov sp, r0\n"
                     "bl fault\n"
                     ".ltorg\n");
}

static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors __attribute__((section(".start"), used)) = {
    stack_top,
    /* reset, NMI, hard fault, which all other faults become while they are not enabled */
    {start_rig, fault_with_new_stack, fault_with_new_stack},
};

intptr_t ask_host(intptr_t operation, intptr_t parameter) {
    register intptr_t r0 __asm__("r0") = operation;
    register intptr_t r1 __asm__("r1") = parameter;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
