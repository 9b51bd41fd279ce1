/* Loops over the rows of large tables. `_native.py` loads them; `summary/grid.py` explains how a
   score's bin follows from its bits. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Compile each loop for AVX2 (or AVX-512 too) and for any x86-64; the loader picks one when the
   library is loaded. One build then runs everywhere and is fast on newer CPUs. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WITH_AVX2_VARIANT __attribute__((target_clones("avx2", "default")))
#define WITH_AVX512_VARIANT __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WITH_AVX2_VARIANT
#define WITH_AVX512_VARIANT
#endif

/* Checksum of this file, defined by the build. `_native.py` compares it with the source and ignores
   a library that was built from another version. */
EXPORT int calibrank_source_checksum(void) { return CALIBRANK_SOURCE_CHECKSUM; }

/* Types of a column; ABSENT stands for a constant column (see POOL). */
enum { ABSENT = 0, INT8 = 1, FLOAT32 = 2, FLOAT64 = 3 };

/* Rows handled at a time: their bin numbers stay in the first-level cache. */
#define BLOCK ((size_t)1024)

static inline double value_at(const void *column, int type, size_t row) {
    if (type == FLOAT64) return ((const double *)column)[row];
    if (type == FLOAT32) return ((const float *)column)[row];
    return ((const int8_t *)column)[row];
}

/* Add rows to the bins of a table; every score must lie within the table's range.

   Sums per bin, as in `summary/bins.py`:
     totals     total, total * offset, total * offset^2, where offset = score - origin
     positives  positive, positive * offset, positive^2, positive * total
     squares    total^2
   An ABSENT total means unit weights (the caller fills `squares` in), an ABSENT positive means that
   no row is positive. The bins of a block are computed first, in a loop that vectorises. If one
   lies beyond the table, which only a bug in the caller can cause, nothing of the block is added
   and 1 is returned. */
#define POOL(NAME, FLOAT, INTEGER, UNSIGNED, SIGN_BIT)                                             \
    WITH_AVX2_VARIANT EXPORT int NAME(                                                             \
        const FLOAT *scores, size_t rows, FLOAT origin,                                            \
        const void *positive, int positive_type, const void *total, int total_type,                \
        int shift, INTEGER offset, INTEGER smallest, INTEGER first, int exponent, size_t size,     \
        double *restrict totals, double *restrict positives, double *restrict squares) {           \
        const INTEGER unsigned_bits = (INTEGER)(((uint64_t)1 << SIGN_BIT) - 1);                    \
        INTEGER bins[BLOCK];                                                                       \
        FLOAT offsets[BLOCK];                                                                      \
        for (size_t start = 0; start < rows; start += BLOCK) {                                     \
            const size_t count = rows - start < BLOCK ? rows - start : BLOCK;                      \
                                                                                                   \
            /* Leading bits of the offset; a negative offset's bin is the complement. */           \
            int near_zero = 0;                                                                     \
            for (size_t row = 0; row < count; row++) {                                             \
                INTEGER bits;                                                                      \
                offsets[row] = scores[start + row] - origin;                                       \
                memcpy(&bits, offsets + row, sizeof bits);                                         \
                const INTEGER magnitude = ((bits & unsigned_bits) >> shift) - offset;              \
                near_zero |= magnitude < smallest;                                                 \
                bins[row] = (magnitude ^ (bits >> SIGN_BIT)) - first;                              \
            }                                                                                      \
            /* Below the grid's floor bins are equally wide; such scores are rare. */              \
            for (size_t row = 0; near_zero && row < count; row++) {                                \
                INTEGER bits;                                                                      \
                memcpy(&bits, offsets + row, sizeof bits);                                         \
                if (((bits & unsigned_bits) >> shift) - offset < smallest) {                       \
                    const double scaled = ldexp(fabs((double)offsets[row]), exponent);             \
                    bins[row] = ((INTEGER)scaled ^ (bits >> SIGN_BIT)) - first;                    \
                }                                                                                  \
            }                                                                                      \
            /* As unsigned numbers, negative bins are too large as well. */                        \
            int outside = 0;                                                                       \
            for (size_t row = 0; row < count; row++)                                               \
                outside |= (UNSIGNED)bins[row] >= (UNSIGNED)size;                                  \
            if (outside) return 1;                                                                 \
                                                                                                   \
            if (total_type == ABSENT) {                                                            \
                for (size_t row = 0; row < count; row++) {                                         \
                    const double distance = offsets[row];                                          \
                    double *sums = totals + 3 * (size_t)bins[row];                                 \
                    sums[0] += 1;                                                                  \
                    sums[1] += distance;                                                           \
                    sums[2] += distance * distance;                                                \
                }                                                                                  \
            } else {                                                                               \
                for (size_t row = 0; row < count; row++) {                                         \
                    const double mass = value_at(total, total_type, start + row);                  \
                    const double moment = mass * offsets[row];                                     \
                    double *sums = totals + 3 * (size_t)bins[row];                                 \
                    sums[0] += mass;                                                               \
                    sums[1] += moment;                                                             \
                    sums[2] += moment * offsets[row];                                              \
                    squares[bins[row]] += mass * mass;                                             \
                }                                                                                  \
            }                                                                                      \
            for (size_t row = 0; positive_type != ABSENT && row < count; row++) {                  \
                const double mass = value_at(positive, positive_type, start + row);                \
                if (mass != 0) {                                                                   \
                    const double weight =                                                          \
                        total_type == ABSENT ? 1 : value_at(total, total_type, start + row);       \
                    double *sums = positives + 4 * (size_t)bins[row];                              \
                    sums[0] += mass;                                                               \
                    sums[1] += mass * offsets[row];                                                \
                    sums[2] += mass * mass;                                                        \
                    sums[3] += mass * weight;                                                      \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        return 0;                                                                                  \
    }

POOL(pool_float32, float, int32_t, uint32_t, 31)
POOL(pool_float64, double, int64_t, uint64_t, 63)

/* Write sigmoid(a u^2 + b u + c) for u = (score - low) * scale; where u leaves [0, 1], the log odds
   continue linearly with slopes `below` and `above`. Returns 1 if a score was not finite or beyond
   +-`largest`.

   There is no branch and no call, so that the loop vectorises. The exponential is computed as
   e^-z = 2^k 2^f with k = round(-z log2(e)) and |f| <= 1/2: 2^k goes straight into the exponent
   bits, 2^f is its Taylor series of degree 6, accurate to float32. */
WITH_AVX2_VARIANT EXPORT int sigmoid_of_quadratic(
    const float *restrict scores, size_t rows, double low, double scale,
    float a, float b, float c, float below, float above, float largest, float *restrict result) {
    int32_t largest_bits;
    memcpy(&largest_bits, &largest, sizeof largest_bits);
    const float log2_e = 1.44269504f;
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds a float to an integer */
    int invalid = 0;
    for (size_t row = 0; row < rows; row++) {
        const float unit = (float)((scores[row] - low) * scale);
        const float excess = unit - 1;
        const float over = excess > 0 ? excess : 0;
        const float under = unit < 0 ? unit : 0;
        const float nonnegative = unit > 0 ? unit : 0;
        const float inside = nonnegative < 1 ? nonnegative : 1;
        const float z = (a * inside + b) * inside + c + below * under + above * over;
        /* Beyond 2^+-125 the exponent bits would overflow; the sigmoid is 0 or 1 by then. */
        float power = -z * log2_e;
        power = power > -125 ? power : -125;
        power = power < 125 ? power : 125;
        const float k = (power + rounder) - rounder;
        const float f = power - k;
        /* (2^f - 1) / f, whose coefficients are ln(2)^n / n!. */
        const float series =
            ((((1.54035304e-4f * f + 1.33335581e-3f) * f + 9.61812911e-3f) * f + 5.55041087e-2f) * f
             + 0.240226507f) * f
            + 0.693147181f;
        const int32_t power_bits = ((int32_t)k + 127) * (1 << 23);
        float two_to_k;
        memcpy(&two_to_k, &power_bits, sizeof two_to_k);
        result[row] = 1 / (1 + (series * f + 1) * two_to_k);
        /* Without the sign, larger floats have larger bits, and infinity and NaN the largest. The
           build assumes finite floats, so the comparison has to be one of integers. */
        int32_t score_bits;
        memcpy(&score_bits, scores + row, sizeof score_bits);
        invalid |= (score_bits & 0x7fffffff) > largest_bits;
    }
    return invalid;
}

/* The probability of one score by a quadratic logistic map, to about 3e-16, relatively.

   `map` holds low, scale, a, b, c, below and above, as `sigmoid_of_quadratic` takes them. One score
   and many give the same digits: the build neither reorders nor fuses operations.

   e^-z = 2^k e^r with k = round(-z / ln 2) and |r| <= ln(2) / 2; e^r is its Taylor series of degree
   13. ln 2 is split so that k times its high part is exact (Cody and Waite). */
static inline double probability(double score, const double *map) {
    const double log2_e = 1.4426950408889634;
    const double ln2_high = 6.93147180369123816490e-01; /* 32 leading bits */
    const double ln2_low = 1.90821492927058770002e-10;
    const double rounder = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    const double unit = (score - map[0]) * map[1];
    const double excess = unit - 1;
    const double over = excess > 0 ? excess : 0;
    const double under = unit < 0 ? unit : 0;
    const double nonnegative = unit > 0 ? unit : 0;
    const double inside = nonnegative < 1 ? nonnegative : 1;
    const double z =
        (map[2] * inside + map[3]) * inside + map[4] + map[5] * under + map[6] * over;
    /* Beyond these the exponent bits would overflow. At 710 they are those of infinity, and the
       probability is 0, as it is with the exponential of NumPy. */
    double power = -z;
    power = power > -708 ? power : -708;
    power = power < 710 ? power : 710;
    const double rounded = power * log2_e + rounder;
    const double k = rounded - rounder;
    const double r = (power - k * ln2_high) - k * ln2_low;
    /* (e^r - 1 - r) / r^2 in pairs of coefficients 1 / n!: processors compute pairs side by side. */
    const double square = r * r;
    const double fourth = square * square;
    const double first =
        (0.5 + r * 0.16666666666666666)
        + square * (0.041666666666666664 + r * 0.008333333333333333);
    const double second =
        (0.001388888888888889 + r * 0.0001984126984126984)
        + square * (2.48015873015873e-05 + r * 2.7557319223985893e-06);
    const double third =
        (2.755731922398589e-07 + r * 2.505210838544172e-08)
        + square * (2.08767569878681e-09 + r * 1.6059043836821613e-10);
    const double series = first + fourth * (second + fourth * third);
    const double fraction = 1 + (r + square * series);
    /* The last bits of `rounded` are k, which goes straight into the exponent bits. */
    uint64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits + 1023) << 52;
    double two_to_k;
    memcpy(&two_to_k, &bits, sizeof two_to_k);
    return 1 / (1 + fraction * two_to_k);
}

EXPORT double probability_of_score(double score, const double *map) {
    return probability(score, map);
}

/* Write the probability of each score; returns 1 if one was not finite or beyond +-`largest`,
   which is detected by its bits as above. */
#define PROBABILITIES(NAME, FLOAT, INTEGER, UNSIGNED_BITS)                                         \
    WITH_AVX512_VARIANT EXPORT int NAME(                                                             \
        const FLOAT *restrict scores, size_t rows, const double *restrict map, FLOAT largest,      \
        FLOAT *restrict result) {                                                                  \
        INTEGER largest_bits;                                                                      \
        memcpy(&largest_bits, &largest, sizeof largest_bits);                                      \
        INTEGER invalid = 0;                                                                       \
        for (size_t row = 0; row < rows; row++) {                                                  \
            result[row] = (FLOAT)probability(scores[row], map);                                    \
            INTEGER score_bits;                                                                    \
            memcpy(&score_bits, scores + row, sizeof score_bits);                                  \
            invalid |= (score_bits & UNSIGNED_BITS) > largest_bits;                                \
        }                                                                                          \
        return invalid != 0;                                                                       \
    }

PROBABILITIES(probabilities_float32, float, int32_t, 0x7fffffff)
PROBABILITIES(probabilities_float64, double, int64_t, 0x7fffffffffffffff)
