/* What the rig asks of a processor and its board. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* A semihosting call: the operation's number and its parameter or the address of its block. */
intptr_t ask_host(intptr_t operation, intptr_t parameter);

/* Starts the clock, and makes writing to flash and below the stack a fault where it is none. */
void start_board(void);

/* A clock that follows the number of executed instructions and may wrap after 32 bits. */
uint32_t read_clock(void);

/* What the processor's own start-up code goes to, once there is a stack; and what faults go to. */
void start_rig(void);
void fault(void);

#endif
