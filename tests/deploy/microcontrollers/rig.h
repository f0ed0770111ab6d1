/* What a program on a microcontroller may ask of the rig. It has a main without arguments; what
 * main returns is the status of the run. Inputs and outputs go through the emulator to the host. */
#ifndef RIG_H
#define RIG_H

#include <stdint.h>

void write_text(const char *text);
void write_number(int32_t number);

/* Reads the next bytes of the input; returns how many there were: at its end, fewer than asked. */
uint32_t read_input(void *to, uint32_t bytes);

/* The instructions executed between the two calls, without those of the calls, become one number of
 * the run's result. What is counted must be a call into another file: the compiler may move
 * arithmetic of the same file across these two. */
void count_begin(void);
void count_end(void);

/* The bytes of stack that calls have taken since stack_clear, to within the few words that these
 * two take themselves. */
void stack_clear(void);
uint32_t stack_used(void);

#endif
