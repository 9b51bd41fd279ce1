/* Loops over the rows of large tables, and the loops of maps, which are called for a few scores too.
   `_native.py` loads them; `summary/grid.py` explains how a score's bin follows from its bits. */

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
#if __GNUC__ >= 12 /* older ones do not know the level that has fused multiplication and addition */
#define WITH_AVX512_VARIANT \
    __attribute__((target_clones("avx512f", "arch=x86-64-v3", "default")))
#else
#define WITH_AVX512_VARIANT __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
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

/* Set present[value - low] of every value; values are at least `low`. */
#define MARK_PRESENT(NAME, INTEGER)                                                                \
    EXPORT void NAME(const INTEGER *values, size_t rows, int64_t low, uint8_t *present) {          \
        for (size_t row = 0; row < rows; row++) present[values[row] - low] = 1;                    \
    }

MARK_PRESENT(mark_present_int32, int32_t)
MARK_PRESENT(mark_present_int64, int64_t)

/* Bins of the score per segment; `summary/_segment_native.py` has the same number. */
#define SEGMENT_BINS ((size_t)64)

/* Few enough rows that all cells prefetched for them stay in the first-level cache. */
#define SEGMENT_BLOCK ((size_t)256)

#if defined(__GNUC__)
#define PREFETCH(ADDRESS) __builtin_prefetch(ADDRESS, 1)
#else
#define PREFETCH(ADDRESS) ((void)0)
#endif

/* Add rows to sums by segment, as in `summary/_segment_cells.py`:
     cells       positive, total, total * score, by segment and bin of the score
     by_segment  positive^2, total^2, rows; NULL where they follow from the cells
   `codes` holds a number below `known` per row, and `numbers` the segment of each code; rows of
   negative segments are left out. A score's bin is the number of `edges` at or below it, of which
   there are SEGMENT_BINS - 1. With 1e5 segments nearly every row's cell is outside of the cache, so
   all cells of a block are requested before the first is used. Returns 1, in the middle of the
   work, if a number is out of range, which only a bug in the caller can cause. */
#define POOL_SEGMENTS(NAME, FLOAT)                                                                 \
    EXPORT int NAME(                                                                               \
        const FLOAT *scores, size_t rows, const int32_t *codes, const int32_t *numbers,            \
        size_t known, const void *positive, int positive_type, const void *total, int total_type,  \
        const double *edges, size_t segments, double *restrict cells,                              \
        double *restrict by_segment) {                                                             \
        int32_t found[SEGMENT_BLOCK];                                                              \
        double *places[SEGMENT_BLOCK];                                                             \
        for (size_t start = 0; start < rows; start += SEGMENT_BLOCK) {                             \
            const size_t left = rows - start;                                                      \
            const size_t count = left < SEGMENT_BLOCK ? left : SEGMENT_BLOCK;                      \
            for (size_t row = 0; row < count; row++) {                                             \
                const double score = scores[start + row];                                          \
                /* Binary search without branches, which would be mispredicted. */                 \
                size_t bin = 0;                                                                    \
                for (size_t step = SEGMENT_BINS / 2; step; step /= 2)                              \
                    bin += edges[bin + step - 1] <= score ? step : 0;                              \
                const uint32_t code = (uint32_t)codes[start + row];                                \
                if (code >= known) return 1;                                                       \
                const int32_t segment = numbers[code];                                             \
                if (segment >= (int64_t)segments) return 1;                                        \
                found[row] = segment;                                                              \
                if (segment < 0) continue;                                                         \
                places[row] = cells + 3 * ((size_t)segment * SEGMENT_BINS + bin);                  \
                PREFETCH(places[row]);                                                             \
            }                                                                                      \
            for (size_t row = 0; row < count; row++) {                                             \
                if (found[row] < 0) continue;                                                      \
                const double weight =                                                              \
                    total_type == ABSENT ? 1 : value_at(total, total_type, start + row);           \
                const double mass =                                                                \
                    positive_type == ABSENT ? 0 : value_at(positive, positive_type, start + row);  \
                double *sums = places[row];                                                        \
                sums[0] += mass;                                                                   \
                sums[1] += weight;                                                                 \
                sums[2] += weight * scores[start + row];                                           \
                if (by_segment == NULL) continue;                                                  \
                double *squares = by_segment + 3 * (size_t)found[row];                             \
                squares[0] += mass * mass;                                                         \
                squares[1] += weight * weight;                                                     \
                squares[2] += 1;                                                                   \
            }                                                                                      \
        }                                                                                          \
        return 0;                                                                                  \
    }

POOL_SEGMENTS(pool_segments_float32, float)
POOL_SEGMENTS(pool_segments_float64, double)

/* A cell of rows without weights: two thirds of the size, which is what a row waits for. */
struct count {
    double moment;
    uint32_t rows, positives;
};

/* As above, for labels of 0 and 1 in `positive`, of fewer than 2^32 rows. */
#define COUNT_SEGMENTS(NAME, FLOAT)                                                                \
    EXPORT int NAME(                                                                               \
        const FLOAT *scores, size_t rows, const int32_t *codes, const int32_t *numbers,            \
        size_t known, const void *positive, int positive_type, const double *edges,                \
        size_t segments, struct count *restrict cells) {                                           \
        struct count *places[SEGMENT_BLOCK];                                                       \
        struct count left_out = {0, 0, 0};                                                         \
        for (size_t start = 0; start < rows; start += SEGMENT_BLOCK) {                             \
            const size_t left = rows - start;                                                      \
            const size_t count = left < SEGMENT_BLOCK ? left : SEGMENT_BLOCK;                      \
            for (size_t row = 0; row < count; row++) {                                             \
                const double score = scores[start + row];                                          \
                size_t bin = 0;                                                                    \
                for (size_t step = SEGMENT_BINS / 2; step; step /= 2)                              \
                    bin += edges[bin + step - 1] <= score ? step : 0;                              \
                const uint32_t code = (uint32_t)codes[start + row];                                \
                if (code >= known) return 1;                                                       \
                const int32_t segment = numbers[code];                                             \
                if (segment >= (int64_t)segments) return 1;                                        \
                const size_t cell = (size_t)segment * SEGMENT_BINS + bin;                          \
                places[row] = segment < 0 ? &left_out : cells + cell;                              \
                PREFETCH(places[row]);                                                             \
            }                                                                                      \
            for (size_t row = 0; row < count; row++) {                                             \
                places[row]->moment += scores[start + row];                                        \
                places[row]->rows += 1;                                                            \
            }                                                                                      \
            for (size_t row = 0; positive_type != ABSENT && row < count; row++)                    \
                places[row]->positives += value_at(positive, positive_type, start + row) != 0;     \
        }                                                                                          \
        return 0;                                                                                  \
    }

COUNT_SEGMENTS(count_segments_float32, float)
COUNT_SEGMENTS(count_segments_float64, double)

/* Add counts to as many cells. */
EXPORT void add_counts(const struct count *counts, size_t size, double *restrict cells) {
    for (size_t cell = 0; cell < size; cell++) {
        cells[3 * cell] += counts[cell].positives;
        cells[3 * cell + 1] += counts[cell].rows;
        cells[3 * cell + 2] += counts[cell].moment;
    }
}

#include "_native_math.h"
#include "_native_maps.h"

/* Cells of a segment handled at a time. */
#define CELLS ((size_t)64)

/* The problem of one segment, as in `calibrators/_shrinkage.py`. */
struct segment {
    const double *positive, *total, *offset, *x;
    size_t cells;
    double dispersion;
};

/* Gradient (2 numbers) and Hessian (3) of a segment's loss at a change of its log odds. */
static inline void derivatives(
    const struct segment *problem, double intercept, double slope, double *result) {
    double probabilities[CELLS];
    double g_a = 0, g_c = 0, h_aa = 0, h_ac = 0, h_cc = 0;
    for (size_t start = 0; start < problem->cells; start += CELLS) {
        const size_t left = problem->cells - start;
        const size_t count = left < CELLS ? left : CELLS;
        const double *x = problem->x + start;
        for (size_t cell = 0; cell < count; cell++)
            probabilities[cell] =
                sigmoid(problem->offset[start + cell] + intercept + slope * x[cell]);
        for (size_t cell = 0; cell < count; cell++) {
            const double p = probabilities[cell];
            const double mass = problem->total[start + cell] * p;
            const double residual = mass - problem->positive[start + cell];
            const double weight = mass * (1 - p);
            const double moment = weight * x[cell];
            g_a += residual;
            g_c += residual * x[cell];
            h_aa += weight;
            h_ac += moment;
            h_cc += moment * x[cell];
        }
    }
    const double sums[5] = {g_a, g_c, h_aa, h_ac, h_cc};
    for (int number = 0; number < 5; number++) result[number] = sums[number] / problem->dispersion;
}

/* The log loss of a negative, log(1 + e^z); that of a positive is lower by z. */
static inline double log_loss(double z) { return (z > 0 ? z : 0) + log1p_exp(z); }

/* Add the cells of some segments to those of others, which are given by their numbers. */
EXPORT void add_cells(
    const double *cells, const int32_t *numbers, size_t segments, double *restrict result) {
    for (size_t segment = 0; segment < segments; segment++) {
        const double *from = cells + 3 * SEGMENT_BINS * segment;
        double *to = result + 3 * SEGMENT_BINS * (size_t)numbers[segment];
        for (size_t place = 0; place < 3 * SEGMENT_BINS; place++) to[place] += from[place];
    }
}

/* Add the counts of some segments to those of others, which are given by their numbers. */
EXPORT void merge_counts(
    const struct count *counts, const int32_t *numbers, size_t segments,
    struct count *restrict result) {
    for (size_t segment = 0; segment < segments; segment++) {
        const struct count *from = counts + SEGMENT_BINS * segment;
        struct count *to = result + SEGMENT_BINS * (size_t)numbers[segment];
        for (size_t bin = 0; bin < SEGMENT_BINS; bin++) {
            to[bin].moment += from[bin].moment;
            to[bin].rows += from[bin].rows;
            to[bin].positives += from[bin].positives;
        }
    }
}

/* As `occupied_cells`, of counts. */
EXPORT void occupied_counts(
    const struct count *counts, size_t segments, double *restrict positive,
    double *restrict total, double *restrict means, int64_t *restrict starts) {
    size_t found = 0;
    for (size_t segment = 0; segment < segments; segment++) {
        starts[segment] = (int64_t)found;
        const struct count *first = counts + SEGMENT_BINS * segment;
        for (const struct count *cell = first; cell < first + SEGMENT_BINS; cell++) {
            positive[found] = cell->positives;
            total[found] = cell->rows;
            means[found] = cell->moment / cell->rows;
            found += cell->rows > 0;
        }
    }
    starts[segments] = (int64_t)found;
}

/* Copy the cells that have rows, those of one segment after the other: positive, total and mean
   score. `starts` gets the first cell of each segment, and the number of all cells. */
EXPORT void occupied_cells(
    const double *cells, size_t segments, double *restrict positive, double *restrict total,
    double *restrict means, int64_t *restrict starts) {
    size_t count = 0;
    for (size_t segment = 0; segment < segments; segment++) {
        starts[segment] = (int64_t)count;
        const double *first = cells + 3 * SEGMENT_BINS * segment;
        for (const double *cell = first; cell < first + 3 * SEGMENT_BINS; cell += 3) {
            positive[count] = cell[0];
            total[count] = cell[1];
            means[count] = cell[2] / cell[1];
            count += cell[1] > 0;
        }
    }
    starts[segments] = (int64_t)count;
}

/* The log loss of all cells, whose log odds change by an intercept and a slope per segment. */
WITH_AVX512_VARIANT EXPORT double changed_loss(
    const double *positive, const double *total, const double *log_odds, const int64_t *starts,
    size_t segments, const double *intercepts, const double *slopes) {
    double losses[CELLS];
    double sum = 0;
    for (size_t segment = 0; segment < segments; segment++) {
        for (size_t start = (size_t)starts[segment]; start < (size_t)starts[segment + 1];
             start += CELLS) {
            const size_t left = (size_t)starts[segment + 1] - start;
            const size_t count = left < CELLS ? left : CELLS;
            for (size_t cell = 0; cell < count; cell++) {
                const double z = intercepts[segment] + slopes[segment] * log_odds[start + cell];
                losses[cell] = total[start + cell] * log_loss(z) - positive[start + cell] * z;
            }
            for (size_t cell = 0; cell < count; cell++) sum += losses[cell];
        }
    }
    return sum;
}

/* Loss of a segment without a change, minus its loss with one. */
static inline double improvement(const struct segment *problem, double intercept, double slope) {
    double sum = 0;
    for (size_t cell = 0; cell < problem->cells; cell++) {
        const double change = intercept + slope * problem->x[cell];
        const double before = problem->offset[cell];
        sum += problem->positive[cell] * change;
        sum -= problem->total[cell] * (log_loss(before + change) - log_loss(before));
    }
    return sum / problem->dispersion;
}

/* Newton's method for the posterior mode of one segment. `point` is the intercept and the slope,
   both 0 at first; a precision of 0 keeps its coefficient there. `at` gets the derivatives of the
   loss at the mode. */
static inline void find_mode(
    const struct segment *problem, double precision_a, double precision_c, int most_steps,
    double tolerance, double *point, double *at) {
    double a = 0, c = 0;
    derivatives(problem, a, c, at);
    for (int step = 0; step < most_steps && (precision_a > 0 || precision_c > 0); step++) {
        const double g_a = at[0] + a * precision_a, g_c = at[1] + c * precision_c;
        const double h_aa = at[2] + precision_a, h_cc = at[4] + precision_c, h_ac = at[3];
        double step_a = precision_a > 0 ? g_a / h_aa : 0;
        double step_c = precision_c > 0 ? g_c / h_cc : 0;
        if (precision_a > 0 && precision_c > 0) {
            const double determinant = h_aa * h_cc - h_ac * h_ac;
            step_a = (h_cc * g_a - h_ac * g_c) / determinant;
            step_c = (h_aa * g_c - h_ac * g_a) / determinant;
        }
        /* The loss is convex: a step is too long if the loss increases at its end nearly as fast as
           it decreases at its start. */
        double descent = g_a * step_a + g_c * step_c;
        for (int halved = 0; halved < most_steps; halved++) {
            derivatives(problem, a - step_a, c - step_c, at);
            const double after = (at[0] + (a - step_a) * precision_a) * step_a
                                 + (at[1] + (c - step_c) * precision_c) * step_c;
            if (after >= -0.9 * descent) break;
            step_a /= 2;
            step_c /= 2;
            descent /= 2;
        }
        a -= step_a;
        c -= step_c;
        if (fabs(step_a) < tolerance && fabs(step_c) < tolerance) break;
    }
    point[0] = a;
    point[1] = c;
}

/* The posterior mode of each segment's intercept and slope under normal priors with standard
   deviations `tau` and `kappa` (0: stays 0), its posterior variance, and, unless `log_marginal` is
   NULL, its log marginal likelihood relative to no change. The cells of segment g are those from
   starts[g] to starts[g + 1]. */
WITH_AVX512_VARIANT EXPORT void segment_modes(
    const double *positive, const double *total, const double *offset, const double *x,
    const int64_t *starts, const double *dispersion, size_t segments, double tau, double kappa,
    int most_steps, double tolerance, double *intercepts, double *slopes, double *variances,
    double *log_marginal) {
    const double precision_a = tau > 0 ? 1 / (tau * tau) : 0;
    const double precision_c = kappa > 0 ? 1 / (kappa * kappa) : 0;
    for (size_t number = 0; number < segments; number++) {
        const size_t first = (size_t)starts[number];
        const struct segment problem = {
            positive + first, total + first, offset + first, x + first,
            (size_t)starts[number + 1] - first, dispersion[number]};
        double point[2], at[5];
        find_mode(&problem, precision_a, precision_c, most_steps, tolerance, point, at);
        /* Relative to the prior precision, so that both limits of 0 are exact. */
        const double aa = 1 + at[2] * tau * tau;
        const double cc = 1 + at[4] * kappa * kappa;
        const double ac = at[3] * tau * kappa;
        const double determinant = aa * cc - ac * ac;
        intercepts[number] = point[0];
        slopes[number] = point[1];
        variances[number] = tau * tau * cc / determinant;
        if (log_marginal == NULL) continue;
        const double penalty =
            point[0] * point[0] * precision_a + point[1] * point[1] * precision_c;
        /* Rounding may leave the determinant just below 1. */
        log_marginal[number] = improvement(&problem, point[0], point[1]) - penalty / 2
                               - logarithm(determinant > 1 ? determinant : 1) / 2;
    }
}
