/* Arm's MPS2 boards. Their clock is the 32-bit CMSDK timer 0, 25 MHz, which counts down. */
#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define TIMER_CONTROL REGISTER(0x40000000u)
#define TIMER_VALUE REGISTER(0x40000004u)
#define TIMER_RELOAD REGISTER(0x40000008u)
#define MPU_CONTROL REGISTER(0xe000ed94u)
#define MPU_REGION REGISTER(0xe000ed9cu)
#define MPU_ATTRIBUTES REGISTER(0xe000eda0u)
#define COPROCESSOR_ACCESS REGISTER(0xe000ed88u)

enum { VALID = 0x10, ENABLE = 1, DEFAULT_ELSEWHERE = 4, NO_ACCESS = 0, READ_ONLY = 6 };

static void protect(uint32_t region, uint32_t address, uint32_t log2_size, uint32_t access) {
    MPU_REGION = address | VALID | region;
    MPU_ATTRIBUTES = access << 24 | (log2_size - 1) << 1 | ENABLE;
}

void start_board(void) {
#ifdef __ARM_FP
    COPROCESSOR_ACCESS |= 0xfu << 20; /* the floating-point unit is off after a reset */
    __asm__ volatile("dsb\nisb");
#endif
    protect(0, 0x00000000u, 22, READ_ONLY); /* flash is memory that can be written */
    protect(1, 0x1f800000u, 23, NO_ACCESS); /* what is below the stack reads as zero */
    MPU_CONTROL = ENABLE | DEFAULT_ELSEWHERE;
    TIMER_RELOAD = UINT32_MAX;
    TIMER_VALUE = UINT32_MAX;
    TIMER_CONTROL = ENABLE;
}

uint32_t read_clock(void) { return UINT32_MAX - TIMER_VALUE; }
