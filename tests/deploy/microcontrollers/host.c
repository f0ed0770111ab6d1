/* The rig on the computer that runs the tests, for sanitizers: no counts, and no stack. */
#include "rig.h"
#include <stdio.h>

void write_text(const char *text) { fputs(text, stdout); }
void write_number(int32_t number) { printf("%ld", (long)number); }
uint32_t read_input(void *to, uint32_t bytes) { return (uint32_t)fread(to, 1, bytes, stdin); }
void count_begin(void) {}
void count_end(void) {}
void stack_clear(void) {}
uint32_t stack_used(void) { return 0; }
