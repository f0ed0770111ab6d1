/* The four functions that GCC may call where the source does not: it asks for them even where there
 * is no C library. The empty assembly keeps it from making them call themselves. */
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);

void *memcpy(void *to, const void *from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    while (bytes--) {
        *t++ = *f++;
        __asm__ volatile("");
    }
    return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    if (t <= f) return memcpy(to, from, bytes);
    while (bytes--) {
        t[bytes] = f[bytes];
        __asm__ volatile("");
    }
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    unsigned char *t = to;
    while (bytes--) {
        *t++ = (unsigned char)value;
        __asm__ volatile("");
    }
    return to;
}

int memcmp(const void *left, const void *right, size_t bytes) {
    const unsigned char *l = left, *r = right;
    for (; bytes--; l++, r++)
        if (*l != *r) return *l - *r;
    return 0;
}
