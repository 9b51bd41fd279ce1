/* Loops over the rows of large tables, and loops of maps, which are called for one score or for many.
   `native_module.h` makes them an extension module of Python, for the stable ABI: one build fits
   every Python from 3.11 on. `summary/grid.py` explains how a score's bin follows from its bits. */

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compile each loop for AVX2 (or AVX-512 too) and for any x86-64; the loader picks one when the
   library is loaded. One build then runs everywhere and is fast on newer CPUs. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define VARIANTS(...) __attribute__((visibility("default"), target_clones(__VA_ARGS__, "default")))
#define WITH_AVX2_VARIANT VARIANTS("avx2")
#if __GNUC__ >= 12 /* older ones do not know the level that has fused multiplication and addition */
#define WITH_AVX512_VARIANT VARIANTS("avx512f", "arch=x86-64-v3")
#else
#define WITH_AVX512_VARIANT VARIANTS("avx512f", "avx2")
#endif
#else
#define WITH_AVX2_VARIANT
#define WITH_AVX512_VARIANT
#endif

/* Types of arrays; ABSENT stands for a constant column (see POOL). Booleans are INT8. */
enum {
    ABSENT = 0, INT8 = 1, UINT8 = 2, INT32 = 4, INT64 = 8, UINT64 = 16, FLOAT32 = 32, FLOAT64 = 64
};

#include "native_arguments.h"

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
   lies beyond the table, which only a bug in the caller can cause, nothing of the block is added. */
#define POOL(NAME, FLOAT, INTEGER, UNSIGNED, SIGN_BIT)                                             \
    WITH_AVX2_VARIANT const char *NAME(const Argument *a) {                                        \
        const FLOAT *scores = a[0].data, origin = (FLOAT)a[6].real;                                \
        const void *positive = a[1].data, *total = a[2].data;                                      \
        const int positive_type = a[1].type, total_type = a[2].type;                               \
        double *restrict totals = a[3].data, *restrict positives = a[4].data;                      \
        double *restrict squares = a[5].data;                                                      \
        const size_t rows = a[0].size, size = a[5].size;                                           \
        const int shift = (int)a[7].integer & SIGN_BIT, exponent = (int)a[11].integer;             \
        const UNSIGNED offset = (UNSIGNED)a[8].integer, first = (UNSIGNED)a[10].integer;           \
        const INTEGER smallest = (INTEGER)a[9].integer;                                            \
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
                const INTEGER magnitude = (INTEGER)(((bits & unsigned_bits) >> shift) - offset);   \
                near_zero |= magnitude < smallest;                                                 \
                bins[row] = (INTEGER)((magnitude ^ (bits >> SIGN_BIT)) - first);                   \
            }                                                                                      \
            /* Below the grid's floor bins are equally wide; such scores are rare. */              \
            for (size_t row = 0; near_zero && row < count; row++) {                                \
                INTEGER bits;                                                                      \
                memcpy(&bits, offsets + row, sizeof bits);                                         \
                if ((INTEGER)(((bits & unsigned_bits) >> shift) - offset) < smallest) {            \
                    /* NaN and infinity, by their bits: they have no bin. */                       \
                    const INTEGER powers = (bits & unsigned_bits) >> (SIGN_BIT == 31 ? 23 : 52);   \
                    if (powers == (SIGN_BIT == 31 ? 0xFF : 0x7FF)) return OUTSIDE;                 \
                    const double scaled = ldexp(fabs((double)offsets[row]), exponent);             \
                    if (scaled >= (double)unsigned_bits) return OUTSIDE;                           \
                    bins[row] = (INTEGER)(((INTEGER)scaled ^ (bits >> SIGN_BIT)) - first);         \
                }                                                                                  \
            }                                                                                      \
            /* As unsigned numbers, negative bins are too large as well. */                        \
            int outside = 0;                                                                       \
            for (size_t row = 0; row < count; row++)                                               \
                outside |= (UNSIGNED)bins[row] >= (UNSIGNED)size;                                  \
            if (outside) return OUTSIDE;                                                           \
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
        return NULL;                                                                               \
    }

POOL(pool_float32, float, int32_t, uint32_t, 31)
POOL(pool_float64, double, int64_t, uint64_t, 63)

/* scores, positive, total, totals, positives, squares, origin, shift, offset, smallest, first,
   exponent */
METHOD(pool, "fccDDDrzzzzz", a) {
    const size_t rows = a[0].size, size = a[5].size;
    if (!has_rows(a + 1, rows) || !has_rows(a + 2, rows)) return SIZES;
    if (a[3].size != 3 * size || a[4].size != 4 * size) return SIZES;
    return a[0].type == FLOAT32 ? pool_float32(a) : pool_float64(a);
}

/* Merge each block with those before it that are not below it; the blocks that remain come first:
   starts, positive, total, whether a new fit begins there, and their number */
METHOD(merge_blocks, "LDDML", a) {
    int64_t *starts = a[0].data;
    double *positive = a[1].data, *total = a[2].data;
    int8_t *separate = a[3].data;
    const size_t size = a[0].size;
    if (a[1].size != size || a[2].size != size || a[3].size != size || a[4].size != 1) return SIZES;
    size_t kept = 0;
    for (size_t block = 0; block < size; block++) {
        int64_t start = starts[block];
        double mass = positive[block], weight = total[block];
        /* A fit that begins here stays apart from the one before, also when blocks join it. */
        int is_first = separate[block];
        while (kept && !is_first && positive[kept - 1] / total[kept - 1] >= mass / weight) {
            kept--;
            start = starts[kept];
            mass += positive[kept];
            weight += total[kept];
            is_first = separate[kept];
        }
        starts[kept] = start;
        separate[kept] = (int8_t)is_first;
        positive[kept] = mass;
        total[kept++] = weight;
    }
    *(int64_t *)a[4].data = (int64_t)kept;
    return NULL;
}

#include "native_math.h"
#include "native_maps.h"
#include "native_segments.h"
#include "native_shrinkage.h"
#include "native_adam.h"
#include "native_training.h"
#include "native_ranking.h"
#include "native_module.h"
