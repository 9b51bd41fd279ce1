/* Loops over the rows of large tables. `compiled.py` loads them, `grid.py` explains the arithmetic of bins. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* One build runs on any x86-64 and is as fast as the newer ones can. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_NEWER_CPUS_TOO __attribute__((target_clones("avx2", "default")))
#else
#define FOR_NEWER_CPUS_TOO
#endif

/* A seal of this file, given by the build: a library that is older than its source is not used. */
EXPORT int calibrank_loops(void) { return CALIBRANK_LOOPS; }

enum { NOTHING = 0, INT8 = 1, FLOAT32 = 2, FLOAT64 = 3 };

#define BLOCK ((size_t)1024)

static inline double number(const void *column, int type, size_t row) {
    if (type == FLOAT64) return ((const double *)column)[row];
    if (type == FLOAT32) return ((const float *)column)[row];
    return ((const int8_t *)column)[row];
}

/* Add rows to the bins of a table, all within its range. Without `total`, every row counts once (and the table's
   squares are left to the caller); without `positive`, none is liked. Bins first, for several rows at a time; if one is
   beyond the table, which would be a mistake in the code that calls, nothing more is written and 1 returned. */
#define POOL(NAME, FLOAT, INTEGER, UNSIGNED, SIGN)                                                                   \
    FOR_NEWER_CPUS_TOO EXPORT int NAME(                                                                              \
        const FLOAT *scores, size_t rows, const void *positive, int positive_type, const void *total, int total_type,\
        int shift, INTEGER offset, INTEGER smallest, INTEGER first, int exponent, size_t size,                       \
        double *restrict every, double *restrict liked, double *restrict squares) {                                  \
        const INTEGER unsigned_bits = (INTEGER)(((uint64_t)1 << SIGN) - 1);                                          \
        INTEGER bins[BLOCK];                                                                                         \
        for (size_t start = 0; start < rows; start += BLOCK) {                                                       \
            const size_t count = rows - start < BLOCK ? rows - start : BLOCK;                                        \
            const FLOAT *block = scores + start;                                                                     \
            int near_zero = 0;                                                                                       \
            for (size_t row = 0; row < count; row++) {                                                               \
                INTEGER bits;                                                                                        \
                memcpy(&bits, block + row, sizeof bits);                                                             \
                const INTEGER far = ((bits & unsigned_bits) >> shift) - offset;                                      \
                near_zero |= far < smallest;                                                                         \
                bins[row] = (far ^ (bits >> SIGN)) - first;                                                          \
            }                                                                                                        \
            for (size_t row = 0; near_zero && row < count; row++) {                                                  \
                INTEGER bits;                                                                                        \
                memcpy(&bits, block + row, sizeof bits);                                                             \
                if (((bits & unsigned_bits) >> shift) - offset < smallest)                                           \
                    bins[row] = ((INTEGER)ldexp(fabs((double)block[row]), exponent) ^ (bits >> SIGN)) - first;       \
            }                                                                                                        \
            int outside = 0;                                                                                         \
            for (size_t row = 0; row < count; row++) outside |= (UNSIGNED)bins[row] >= (UNSIGNED)size;               \
            if (outside) return 1;                                                                                   \
            if (total_type == NOTHING) {                                                                             \
                for (size_t row = 0; row < count; row++) {                                                           \
                    double *sums = every + 2 * (size_t)bins[row];                                                    \
                    sums[0] += 1;                                                                                    \
                    sums[1] += block[row];                                                                           \
                }                                                                                                    \
            } else {                                                                                                 \
                for (size_t row = 0; row < count; row++) {                                                           \
                    const double mass = number(total, total_type, start + row);                                      \
                    double *sums = every + 2 * (size_t)bins[row];                                                    \
                    sums[0] += mass;                                                                                 \
                    sums[1] += mass * block[row];                                                                    \
                    squares[bins[row]] += mass * mass;                                                               \
                }                                                                                                    \
            }                                                                                                        \
            for (size_t row = 0; positive_type != NOTHING && row < count; row++) {                                   \
                const double argument = number(positive, positive_type, start + row);                                \
                if (argument != 0) {                                                                                 \
                    double *sums = liked + 4 * (size_t)bins[row];                                                    \
                    sums[0] += argument;                                                                             \
                    sums[1] += argument * block[row];                                                                \
                    sums[2] += argument * argument;                                                                  \
                    sums[3] += argument * (total_type == NOTHING ? 1 : number(total, total_type, start + row));      \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
        return 0;                                                                                                    \
    }

POOL(pool_float32, float, int32_t, uint32_t, 31)
POOL(pool_float64, double, int64_t, uint64_t, 63)

/* Write sigmoid(a u^2 + b u + c), u = (score - low) * scale, straight beyond [0, 1]; whether a score was out of bounds.

   Without a branch or a call, so that it runs on several numbers at a time: the exponential is 2^k times the Taylor
   series of 2^f, with k whole and f within one half. */
FOR_NEWER_CPUS_TOO EXPORT int sigmoid_of_quadratic(const float *restrict scores, size_t rows, double low, double scale,
                                                   float a, float b, float c, float below, float above, float largest,
                                                   float *restrict result) {
    int32_t largest_bits;
    memcpy(&largest_bits, &largest, sizeof largest_bits);
    const float log2_e = 1.44269504f;
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it leaves a float without a fraction */
    int wrong = 0;
    for (size_t row = 0; row < rows; row++) {
        const float unit = (float)((scores[row] - low) * scale);
        const float past = unit - 1;
        const float over = past > 0 ? past : 0;
        const float under = unit < 0 ? unit : 0;
        const float floored = unit > 0 ? unit : 0;
        const float inside = floored < 1 ? floored : 1;
        const float z = (a * inside + b) * inside + c + below * under + above * over;
        float power = -z * log2_e;
        power = power > -125 ? power : -125;
        power = power < 125 ? power : 125;
        const float whole = (power + rounder) - rounder;
        const float f = power - whole;
        const float series =
            ((((1.54035304e-4f * f + 1.33335581e-3f) * f + 9.61812911e-3f) * f + 5.55041087e-2f) * f + 0.240226507f) * f +
            0.693147181f;
        const int32_t bits = ((int32_t)whole + 127) * (1 << 23);
        float shift;
        memcpy(&shift, &bits, sizeof shift);
        result[row] = 1 / (1 + (series * f + 1) * shift);
        int32_t score_bits; /* larger numbers have larger bits, and so have infinity and NaN */
        memcpy(&score_bits, scores + row, sizeof score_bits);
        wrong |= (score_bits & 0x7fffffff) > largest_bits;
    }
    return wrong;
}
