/* Compiles a file for an instruction set that the rest of the core does not assume. */
#ifndef SUDO_TARGET_H
#define SUDO_TARGET_H

#if defined(__x86_64__) && defined(__GNUC__)
#define SUDO_X86 1
#else
#define SUDO_X86 0
#endif

#define INLINE static inline __attribute__((always_inline, unused))

#define SUDO_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#if SUDO_X86
#include <immintrin.h> /* before the attribute, which must not apply to its functions */
#endif
#define SUDO_BEGIN_TARGET(features) \
    SUDO_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define SUDO_END_TARGET SUDO_PRAGMA(clang attribute pop)
#else
#define SUDO_BEGIN_TARGET(features) SUDO_PRAGMA(GCC push_options) SUDO_PRAGMA(GCC target(features))
#define SUDO_END_TARGET SUDO_PRAGMA(GCC pop_options)
#endif

#endif
