/* The part of the rig that all targets share: memory, semihosting, counting.
 * The calls are those of "Semihosting for AArch32 and AArch64", which RISC-V has adopted. */
#include "rig.h"
#include "board.h"

enum { SYS_OPEN = 0x01, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06 };
enum { SYS_EXIT_EXTENDED = 0x20 };
enum { READ_BINARY = 1, WRITE_BINARY = 5 };
enum { APPLICATION_EXIT = 0x20026 };
enum { FAULT_STATUS = 125, HOST_STATUS = 126 };

extern uint32_t data_start[], data_end[], data_in_flash[], bss_start[], bss_end[];
extern uint32_t stack_bottom[], stack_top[];
int main(void);

static intptr_t input, counts;
static uint32_t begin;

static void leave(int status) {
    const intptr_t block[] = {APPLICATION_EXIT, status};
    for (;;) ask_host(SYS_EXIT_EXTENDED, (intptr_t)block);
}

static intptr_t open_file(const char *name, intptr_t length, intptr_t mode) {
    const intptr_t block[] = {(intptr_t)name, mode, length};
    const intptr_t file = ask_host(SYS_OPEN, (intptr_t)block);
    if (file < 0) {
        write_text("the host does not open the file ");
        write_text(name);
        leave(HOST_STATUS);
    }
    return file;
}

void write_text(const char *text) { ask_host(SYS_WRITE0, (intptr_t)text); }

void write_number(int32_t number) {
    char text[12];
    char *first = text + sizeof text - 1;
    uint32_t rest = number < 0 ? -(uint32_t)number : (uint32_t)number;
    *first = 0;
    do *--first = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) *--first = '-';
    write_text(first);
}

uint32_t read_input(void *to, uint32_t bytes) {
    const intptr_t block[] = {input, (intptr_t)to, (intptr_t)bytes};
    return bytes - (uint32_t)ask_host(SYS_READ, (intptr_t)block);
}

__attribute__((noinline)) void count_begin(void) { begin = read_clock(); }

__attribute__((noinline)) void count_end(void) {
    const uint32_t ticks = read_clock() - begin;
    const intptr_t block[] = {counts, (intptr_t)&ticks, sizeof ticks};
    ask_host(SYS_WRITE, (intptr_t)block);
}

/* What no call has written to yet still holds the mark. */
static const uint32_t mark = 0x5ac3a53cu;

__attribute__((noinline)) void stack_clear(void) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    for (volatile uint32_t *at = stack_bottom; (uintptr_t)at < here - 64; at++) *at = mark;
}

__attribute__((noinline)) uint32_t stack_used(void) {
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    const volatile uint32_t *at = stack_bottom;
    while ((uintptr_t)at < here && *at == mark) at++;
    return (uint32_t)(here - (uintptr_t)at);
}

void start_rig(void) {
    const uint32_t *from = data_in_flash;
    for (uint32_t *to = data_start; to < data_end; to++) *to = *from++;
    for (uint32_t *to = bss_start; to < bss_end; to++) *to = 0;
    input = open_file("input", 5, READ_BINARY);
    counts = open_file("counts", 6, WRITE_BINARY);
    start_board();
    count_begin(); /* the first count is what the two calls take themselves */
    count_end();
    leave(main());
}

void fault(void) {
    write_text("fault\n");
    leave(FAULT_STATUS);
}
