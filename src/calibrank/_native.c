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

/* Maps in float64, accurate to about 1e-15.

   A map is an array of float64: its kind, the largest valid score, and the constants of the kind,
   which `maps/_program.py` packs. No function of the system's mathematics library is called.

   A batch and a single score give the same digits. The compiler may fuse a product and a sum, which
   then round once, and need not do so in the same places of a vectorised loop and of the rows that
   remain after it. So all rows are computed LANES at a time, with padding. */
enum { QUADRATIC = 0, LOGARITHMIC = 1, SOFTPLUS = 2, LINES = 3, STEPS = 4, RESCALE = 5 };
#define LANES ((size_t)8)

/* e^x = 2^k N / D, with k = round(x / ln 2) and |r| = |x - k ln 2| <= ln(2) / 2: N(r) / N(-r) is the
   Pade approximant of degree 6, with an error of 2e-19. Leaving it a fraction saves its division
   where it is part of another one. ln 2 is split so that k times its high part is exact (Cody and
   Waite). */
typedef struct { double numerator, denominator; } Fraction;

static inline Fraction exponential(double x) {
    const double log2_e = 1.4426950408889634;
    const double ln2_high = 6.93147180369123816490e-01; /* 32 leading bits */
    const double ln2_low = 1.90821492927058770002e-10;
    const double rounder = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    /* Beyond these the exponent bits would overflow. At 710 they are those of infinity, and the
       sigmoid is 0, as it is with the exponential of NumPy. */
    x = x > -708 ? x : -708;
    x = x < 710 ? x : 710;
    const double rounded = x * log2_e + rounder;
    const double k = rounded - rounder;
    const double r = (x - k * ln2_high) - k * ln2_low;
    const double y = r * r;
    const double even = 1 + y * (5.0 / 44 + y * (1.0 / 792 + y * (1.0 / 665280)));
    const double odd = r * (0.5 + y * (1.0 / 66 + y * (1.0 / 15840)));
    /* The last bits of `rounded` are k, which goes straight into the exponent bits. */
    uint64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bits = (bits + 1023) << 52;
    double two_to_k;
    memcpy(&two_to_k, &bits, sizeof two_to_k);
    const Fraction result = {(even + odd) * two_to_k, even - odd};
    return result;
}

static inline double sigmoid(double log_odds) {
    const Fraction odds_against = exponential(-log_odds);
    return odds_against.denominator / (odds_against.denominator + odds_against.numerator);
}

/* log(1 + f) = 2 atanh(s), s = f / (2 + f), for 1 + f from 1/sqrt(2) to sqrt(2): s times a
   polynomial in s^2, interpolated at Chebyshev nodes, with an error of 5e-18. */
static inline double log_near_one(double s) {
    const double z = s * s;
    const double w = z * z;
    const double first = 0.666666666666667 + z * 0.39999999999899505;
    const double second = 0.28571428625975487 + z * 0.2222221113479508;
    const double third = 0.18182889125261723 + z * 0.15331721600556042;
    return s * (2 + z * (first + w * (second + w * (third + w * 0.14616449685043406))));
}

/* The logarithm of a number of at least 1. */
static inline double logarithm(double x) {
    const uint64_t root_half = 0x3fe6a09e667f3bcd; /* bits of 1/sqrt(2) */
    const uint64_t two_to_52 = 0x4330000000000000;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t power = (bits - root_half) >> 52;
    const uint64_t fraction_bits = bits - (power << 52);
    /* A small integer in the last bits of 2^52 becomes a float without a conversion. */
    const uint64_t power_bits = power | two_to_52;
    double fraction, k;
    memcpy(&fraction, &fraction_bits, sizeof fraction);
    memcpy(&k, &power_bits, sizeof k);
    k -= 4503599627370496.0;
    const double rest = log_near_one((fraction - 1) / (fraction + 1));
    return k * 6.93147180369123816490e-01 + (k * 1.90821492927058770002e-10 + rest);
}

/* log(1 + e^-|x|) = 2 atanh(s), where s = n / (n + 2 d) if e^-|x| = n / d; up to s = 1/3, with an
   error of 8e-18. */
static inline double log1p_exp(double x) {
    const Fraction power = exponential(x > 0 ? -x : x);
    const double s = power.numerator / (power.numerator + 2 * power.denominator);
    const double z = s * s;
    const double w = z * z;
    const double first = 0.6666666666666666 + z * 0.40000000000014585;
    const double second = 0.2857142856710876 + z * 0.22222222717427864;
    const double third = 0.18181789436132859 + z * 0.15385570064958623;
    const double fourth = 0.13314144209654935 + z * 0.12001072809590713;
    const double fifth = 0.08800738486144674 + z * 0.1616404561194353;
    return s * (2 + z * (first + w * (second + w * (third + w * (fourth + w * fifth)))));
}

/* Logistic maps. In u = (score - map[2]) * map[3] the log odds are a curve from map[4] to map[5]
   and continue linearly below and above, with slopes map[6] and map[7]. */
static inline double quadratic_at(double u, const double *terms) {
    return (terms[0] * u + terms[1]) * u + terms[2];
}

static inline double logarithmic_at(double u, const double *terms) {
    return terms[0] * logarithm(u * terms[1] + 1) + quadratic_at(u, terms + 2);
}

static inline double softplus_at(double u, const double *terms) {
    const double below = terms[0], above = terms[1];
    return (u > 0 ? above : below) * u + (above - below) * log1p_exp(u) + terms[2];
}

#define CURVE(NAME, LOG_ODDS)                                                                      \
    WITH_AVX512_VARIANT void NAME(                                                          \
        const double *scores, size_t rows, const double *restrict map, double *restrict log_odds) {\
        /* A choice between two loads from memory would be a branch. */                            \
        const double first = map[4], last = map[5], below = map[6], above = map[7];                \
        for (size_t row = 0; row < rows; row++) {                                                  \
            const double u = (scores[row] - map[2]) * map[3];                                      \
            const double raised = u > first ? u : first;                                           \
            const double inside = raised < last ? raised : last;                                   \
            const double beyond = u - inside;                                                      \
            const double slope = beyond > 0 ? above : below;                                       \
            log_odds[row] = LOG_ODDS(inside, map + 8) + slope * beyond;                            \
        }                                                                                          \
    }

CURVE(quadratic, quadratic_at)
CURVE(logarithmic, logarithmic_at)
CURVE(softplus, softplus_at)

/* A loop of its own: processors overlap more iterations of two short loops than of a long one. */
WITH_AVX512_VARIANT void sigmoids(
    const double *restrict log_odds, size_t rows, double *restrict result) {
    for (size_t row = 0; row < rows; row++) result[row] = sigmoid(log_odds[row]);
}

/* Maps with edges. map[2] to map[7] are the origin and scale of equally wide buckets of scores, the
   last bucket, the rounds of a binary search within a bucket, the number of edges with padding,
   and the number of intervals between edges. The edges follow, then numbers per interval, then the
   number of edges before each bucket. If no bucket has more than one edge, there is one edge per
   bucket and two intervals, the second from the edge on, so that nothing is searched. */
WITH_AVX512_VARIANT void find_buckets(
    const double *restrict scores, size_t rows, const double *restrict map,
    int32_t *restrict buckets) {
    const double last = map[4];
    for (size_t row = 0; row < rows; row++) {
        const double place = (scores[row] - map[2]) * map[3];
        const double raised = place > 0 ? place : 0;
        buckets[row] = (int32_t)(raised < last ? raised : last);
    }
}

/* The number of edges that are at most the score; at least `at`, and below `at` + 2 * `half`. */
static inline int32_t find_interval(double score, const double *edges, int32_t at, int32_t half) {
    for (; half; half >>= 1) at += edges[at + half - 1] <= score ? half : 0;
    return at;
}

static inline void fill_from_table(
    const double *scores, size_t rows, const double *map, int is_line, int32_t half,
    double *restrict result) {
    int32_t buckets[BLOCK];
    const double *edges = map + 8;
    const double *table = edges + (size_t)map[6];
    const int32_t *before = (const int32_t *)(table + (is_line ? 3 : 1) * (size_t)map[7]);
    find_buckets(scores, rows, map, buckets);
    for (size_t row = 0; row < rows; row++) {
        const int32_t bucket = buckets[row];
        const int32_t at = half == 1 ? 2 * bucket + (edges[bucket] <= scores[row])
                                     : find_interval(scores[row], edges, before[bucket], half);
        const double *line = table + 3 * at; /* origin, slope and value */
        result[row] = is_line ? (scores[row] - line[0]) * line[1] + line[2] : table[at];
    }
}

static void look_up(const double *scores, size_t rows, const double *map, double *result) {
    const int32_t half = (1 << (int)map[5]) >> 1;
    /* With one edge per bucket, which is usual, there is a loop of its own without a search. */
    if (map[0] == LINES && half == 1) fill_from_table(scores, rows, map, 1, 1, result);
    else if (map[0] == LINES) fill_from_table(scores, rows, map, 1, half, result);
    else if (half == 1) fill_from_table(scores, rows, map, 0, 1, result);
    else fill_from_table(scores, rows, map, 0, half, result);
}

/* A straight line from 0 at map[2] to 1, map[3] further on. */
static void rescale(const double *scores, size_t rows, const double *map, double *result) {
    for (size_t row = 0; row < rows; row++) {
        const double place = (scores[row] - map[2]) / map[3];
        const double lowered = place < 1 ? place : 1;
        result[row] = lowered > 0 ? lowered : 0;
    }
}

/* Whether a score is not finite or beyond +-`largest`. Without the sign, larger floats have larger
   bits, and infinity and NaN the largest. The build assumes finite floats, so the comparison has to
   be one of integers: the difference of the bits is negative where the score is larger. */
WITH_AVX512_VARIANT int any_invalid(const double *scores, size_t rows, double largest) {
    int64_t largest_bits, differences = 0;
    memcpy(&largest_bits, &largest, sizeof largest_bits);
    for (size_t row = 0; row < rows; row++) {
        int64_t bits;
        memcpy(&bits, scores + row, sizeof bits);
        differences |= largest_bits - (bits & 0x7fffffffffffffff);
    }
    return differences < 0;
}

/* Compute at most BLOCK rows, a multiple of LANES; `scores` may be `result`. */
static int compute(const double *scores, size_t rows, const double *map, double *result) {
    const int kind = (int)map[0];
    double values[BLOCK];
    /* Only valid scores may be looked up. Others are checked after their first use, which then
       waits for memory while it computes. */
    const int has_edges = kind == LINES || kind == STEPS;
    if (has_edges && any_invalid(scores, rows, map[1])) return 1;
    if (has_edges) look_up(scores, rows, map, values);
    else if (kind == QUADRATIC) quadratic(scores, rows, map, values);
    else if (kind == LOGARITHMIC) logarithmic(scores, rows, map, values);
    else if (kind == SOFTPLUS) softplus(scores, rows, map, values);
    else rescale(scores, rows, map, values);
    if (!has_edges && any_invalid(scores, rows, map[1])) return 1;
    if (kind <= LINES) sigmoids(values, rows, result);
    else memcpy(result, values, rows * sizeof *result);
    return 0;
}

static int compute_padded(const double *scores, size_t rows, const double *map, double *result) {
    const size_t whole = rows - rows % LANES;
    double padded[LANES];
    if (whole && compute(scores, whole, map, result)) return 1;
    if (whole == rows) return 0;
    for (size_t lane = 0; lane < LANES; lane++)
        padded[lane] = scores[whole + lane < rows ? whole + lane : whole];
    if (compute(padded, LANES, map, padded)) return 1;
    memcpy(result + whole, padded, (rows - whole) * sizeof *result);
    return 0;
}

/* Write the probability of each score; returns 1 if one is invalid. `scores` may be `result`. */
EXPORT int probabilities_float64(
    const double *scores, double *result, size_t rows, const double *map) {
    for (size_t start = 0; start < rows; start += BLOCK) {
        const size_t count = rows - start < BLOCK ? rows - start : BLOCK;
        if (compute_padded(scores + start, count, map, result + start)) return 1;
    }
    return 0;
}

WITH_AVX512_VARIANT EXPORT int probabilities_float32(
    const float *scores, float *result, size_t rows, const double *map) {
    double block[BLOCK];
    for (size_t start = 0; start < rows; start += BLOCK) {
        const size_t count = rows - start < BLOCK ? rows - start : BLOCK;
        for (size_t row = 0; row < count; row++) block[row] = scores[start + row];
        if (compute_padded(block, count, map, block)) return 1;
        for (size_t row = 0; row < count; row++) result[start + row] = (float)block[row];
    }
    return 0;
}

/* For arrays of at most a few thousand scores, with an argument less. */
EXPORT int overwrite_float64(double *scores, int rows, const double *map) {
    return probabilities_float64(scores, scores, (size_t)rows, map);
}

EXPORT int overwrite_float32(float *scores, int rows, const double *map) {
    return probabilities_float32(scores, scores, (size_t)rows, map);
}

/* The probability of one valid score. */
EXPORT double probability_of_score(double score, const double *map) {
    compute_padded(&score, 1, map, &score);
    return score;
}

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
