/* The BBC micro:bit's nRF51: its 32-bit timer 0, 16 MHz. */
#include "board.h"

#define REGISTER(offset) (*(volatile uint32_t *)(0x40008000u + (offset)))
#define TASKS_START REGISTER(0x000)
#define TASKS_CAPTURE REGISTER(0x040)
#define BITMODE REGISTER(0x508)
#define PRESCALER REGISTER(0x510)
#define CAPTURED REGISTER(0x540)

void start_board(void) {
    BITMODE = 3; /* 32 bits */
    PRESCALER = 0;
    TASKS_START = 1;
}

uint32_t read_clock(void) {
    TASKS_CAPTURE = 1;
    return CAPTURED;
}
