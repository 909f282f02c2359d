// The source hash of the library and the level of the processor. build_core.py compiles this file for the oldest
// processor of its kind, because it runs before the level is known.

#include "core/core.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#ifndef EMBTRAIN_SOURCE
#error "build_core.py says which sources these are: -DEMBTRAIN_SOURCE=..."
#endif
#define AS_TEXT(x) #x
#define TEXT_OF(x) AS_TEXT(x)

// The hash of the sources that this library was built from, in hexadecimal.
extern "C" EMBTRAIN_API const char* embtrain_source() { return TEXT_OF(EMBTRAIN_SOURCE); }

// The highest level of x86-64 that this processor and its operating system support: 1 to 4; elsewhere 0. Level 4
// requires Ice Lake or Zen 4: older processors with AVX-512 lower their clock to run it.
extern "C" EMBTRAIN_API int embtrain_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 1;
    const bool movbe = c >> 22 & 1, f16c = c >> 29 & 1, cx16 = c >> 13 & 1;
    const bool lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) && (c >> 5 & 1);
    if (!(cx16 && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2") &&
          __builtin_cpu_supports("popcnt")))
        return 1;
    const bool v3 = movbe && f16c && lzcnt && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2") &&
                    __builtin_cpu_supports("avx512vnni");
    return v4 ? 4 : v3 ? 3 : 2;
#else
    return 0;
#endif
}

// Whether rows are prefetched NEAR, see training/rows.h: on processors of Intel, where it was measured to be faster.
extern "C" EMBTRAIN_API int embtrain_prefetches_near() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return 0;
#endif
}
