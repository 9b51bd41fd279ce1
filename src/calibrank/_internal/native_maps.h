/* Loops that apply maps to scores; a part of `native.c`, which includes it. */

/* Maps in float64, accurate to about 1e-15.

   A map is an array of float64: its kind, the largest valid score, and the constants of the kind,
   which `maps/_program.py` packs.

   A batch and a single score give the same digits. The compiler may fuse a product and a sum, which
   then round once, and need not do so in the same places of a vectorised loop and of the rows that
   remain after it. So all rows are computed CHUNK at a time, with padding. */
enum { QUADRATIC = 0, LOGARITHMIC = 1, SOFTPLUS = 2, LINES = 3, STEPS = 4, RESCALE = 5 };
/* Added to the first three kinds and LINES: the log odds are the result. */
enum { LOG_ODDS = 16 };
#define CHUNK ((size_t)8)
#define MAP_BLOCK ((size_t)512) /* so that all intermediate numbers stay in the first-level cache */

/* Logistic maps. In u = (score - map[2]) * map[3] the log odds are a curve from map[4] to map[5]
   and continue linearly below and above, with slopes map[6] and map[7].

   A long computation is several short loops: processors overlap more iterations of these. */
typedef struct { double inside, linear; } Place;

INLINE Place place_of(double score, const double *map) {
    /* A choice between two loads from memory would be a branch. */
    const double first = map[4], last = map[5], below = map[6], above = map[7];
    const double u = (score - map[2]) * map[3];
    const double raised = u > first ? u : first;
    const double inside = raised < last ? raised : last;
    const double beyond = u - inside;
    const Place result = {inside, (beyond > 0 ? above : below) * beyond};
    return result;
}

INLINE void quadratic(
    const double *scores, size_t rows, const double *restrict map, double *restrict log_odds) {
    for (size_t row = 0; row < rows; row++) {
        const Place at = place_of(scores[row], map);
        log_odds[row] = (map[8] * at.inside + map[9]) * at.inside + map[10] + at.linear;
    }
}

/* map[8] * log(1 + map[9] * u) and a quadratic curve. */
INLINE void logarithmic(
    const double *scores, size_t rows, const double *restrict map, double *restrict log_odds,
    double *restrict logarithms) {
    const double high = map[8] * 6.93147180369123816490e-01;
    const double low = map[8] * 1.90821492927058770002e-10;
    for (size_t row = 0; row < rows; row++) {
        const Place at = place_of(scores[row], map);
        const Factors factors = factors_of(at.inside * map[9] + 1);
        const double curve = (map[10] * at.inside + map[11]) * at.inside + map[12] + at.linear;
        log_odds[row] = curve + (factors.power * high + factors.power * low);
        logarithms[row] = factors.s;
    }
    for (size_t row = 0; row < rows; row++)
        log_odds[row] += map[8] * log_near_one(logarithms[row]);
}

/* Slopes map[8] below 0 and map[9] above, between which a softplus leads. */
INLINE void softplus(
    const double *scores, size_t rows, const double *restrict map, double *restrict log_odds,
    double *restrict numerators, double *restrict denominators) {
    const double below = map[8], above = map[9];
    for (size_t row = 0; row < rows; row++) {
        const Place at = place_of(scores[row], map);
        const double u = at.inside;
        const Fraction power = exponential_below(u);
        log_odds[row] = (u > 0 ? above : below) * u + map[10] + at.linear;
        numerators[row] = power.numerator;
        denominators[row] = power.numerator + 2 * power.denominator;
    }
    for (size_t row = 0; row < rows; row++)
        numerators[row] = quotient(numerators[row], denominators[row]);
    for (size_t row = 0; row < rows; row++)
        log_odds[row] += (above - below) * log1p_exp_at(numerators[row]);
}

INLINE void sigmoids(
    const double *restrict log_odds, size_t rows, double *restrict result) {
    for (size_t row = 0; row < rows; row++) result[row] = sigmoid(log_odds[row]);
}

/* Maps with edges. map[2] to map[6] are the origin and scale of equally wide buckets of scores, the
   last bucket, the width of the first step of a binary search (0 if no bucket has more than one
   edge), and the number of edges with padding. The edges follow, then 4 numbers per edge: the edge
   itself, the value of a line there, and the slopes below and above, or for steps the values below
   and above. The last part is the first edge of each bucket, or the one before if it has none. */
INLINE void find_buckets(
    const double *restrict scores, size_t rows, const double *restrict map,
    int32_t *restrict buckets) {
    const double last = map[4];
    for (size_t row = 0; row < rows; row++) {
        const double place = (scores[row] - map[2]) * map[3];
        const double raised = place > 0 ? place : 0;
        buckets[row] = (int32_t)(raised < last ? raised : last);
    }
}

/* From the first edge of the bucket to the last edge that is at most the score, if there is one. */
INLINE void search_edges(
    const double *restrict scores, size_t rows, const double *restrict edges,
    const int32_t *restrict first_edges, int32_t width, int32_t *restrict places) {
    for (size_t row = 0; row < rows; row++) {
        int32_t at = first_edges[places[row]];
        for (int32_t step = width; step; step >>= 1) {
            at += edges[at + step] <= scores[row] ? step : 0;
            /* Not to be vectorised: instructions that gather numbers are slow on many processors. */
            __asm__("" : "+r"(at));
        }
        places[row] = at;
    }
}

typedef double Pair __attribute__((vector_size(16)));
typedef double Four __attribute__((vector_size(32)));
typedef int64_t FourMasks __attribute__((vector_size(32)));

#if defined(__clang__) || __GNUC__ >= 12
#define JOIN(LOW, HIGH) __builtin_shufflevector(LOW, HIGH, 0, 1, 2, 3)
#define EVEN(A, B) __builtin_shufflevector(A, B, 0, 4, 2, 6)
#define ODD(A, B) __builtin_shufflevector(A, B, 1, 5, 3, 7)
#else
#define JOIN(LOW, HIGH) ((Four){LOW[0], LOW[1], HIGH[0], HIGH[1]})
#define EVEN(A, B) ((Four){A[0], B[0], A[2], B[2]})
#define ODD(A, B) ((Four){A[1], B[1], A[3], B[3]})
#endif

/* Two numbers of each of four edges, one vector per number. */
INLINE void transpose(const double *const *edges, size_t column, Four *left, Four *right) {
    Pair pairs[4];
    for (int row = 0; row < 4; row++) memcpy(pairs + row, edges[row] + column, sizeof *pairs);
    const Four outer = JOIN(pairs[0], pairs[2]), inner = JOIN(pairs[1], pairs[3]);
    *left = EVEN(outer, inner);
    *right = ODD(outer, inner);
}

/* `places` are edges, or buckets if `first_edges` is not NULL. */
INLINE void fill_from_table(
    const double *restrict scores, size_t rows, int is_line, const double *restrict table,
    const int32_t *restrict first_edges, const int32_t *restrict places, double *restrict result) {
    for (size_t start = 0; start < rows; start += 4) {
        const double *edges[4];
        for (size_t row = 0; row < 4; row++) {
            const int32_t place = places[start + row];
            edges[row] = table + 4 * (size_t)(first_edges ? first_edges[place] : place);
        }
        Four score, edge, value, below, above;
        transpose(edges, 0, &edge, &value);
        transpose(edges, 2, &below, &above);
        memcpy(&score, scores + start, sizeof score);
        const Four offset = score - edge;
        const FourMasks is_below = offset < 0;
        const Four chosen = (Four)((is_below & (FourMasks)below) | (~is_below & (FourMasks)above));
        const Four found = is_line ? chosen * offset + value : chosen;
        memcpy(result + start, &found, sizeof found);
    }
}

INLINE void look_up_edges(const double *scores, size_t rows, const double *map, double *result) {
    int32_t places[MAP_BLOCK];
    const double *edges = map + 8;
    const double *table = edges + (size_t)map[6];
    const int32_t *first_edges = (const int32_t *)(table + 4 * (size_t)map[7]);
    const int32_t width = (int32_t)map[5];
    find_buckets(scores, rows, map, places);
    /* One step, which is usual, is a loop of its own. */
    if (width == 1) search_edges(scores, rows, edges, first_edges, 1, places);
    else if (width) search_edges(scores, rows, edges, first_edges, width, places);
    /* Four loops, so that none has to ask in every row. */
    const int is_line = ((int)map[0] & ~LOG_ODDS) == LINES;
    if (is_line && width) fill_from_table(scores, rows, 1, table, NULL, places, result);
    else if (is_line) fill_from_table(scores, rows, 1, table, first_edges, places, result);
    else if (width) fill_from_table(scores, rows, 0, table, NULL, places, result);
    else fill_from_table(scores, rows, 0, table, first_edges, places, result);
}

/* A straight line from 0 at map[2] to 1, map[3] further on. */
INLINE void rescale(const double *scores, size_t rows, const double *map, double *result) {
    for (size_t row = 0; row < rows; row++) {
        const double place = (scores[row] - map[2]) / map[3];
        const double lowered = place < 1 ? place : 1;
        result[row] = lowered > 0 ? lowered : 0;
    }
}

/* Whether a score is not finite or beyond +-`largest`. Without the sign, larger floats have larger
   bits, and infinity and NaN the largest. The build assumes finite floats, so the comparison has to
   be one of integers: the difference of the bits is negative where the score is larger. */
INLINE int any_invalid(const double *scores, size_t rows, double largest) {
    int64_t largest_bits, differences = 0;
    memcpy(&largest_bits, &largest, sizeof largest_bits);
    for (size_t row = 0; row < rows; row++) {
        int64_t bits;
        memcpy(&bits, scores + row, sizeof bits);
        differences |= largest_bits - (bits & 0x7fffffffffffffff);
    }
    return differences < 0;
}

/* Compute at most MAP_BLOCK rows, a multiple of CHUNK; `scores` may be `result`. */
INLINE int compute(const double *scores, size_t rows, const double *map, double *result) {
    const int kind = (int)map[0] & ~LOG_ODDS;
    double values[MAP_BLOCK], first[MAP_BLOCK], second[MAP_BLOCK];
    /* Only valid scores may be looked up. Others are checked after their first use, which then
       waits for memory while it computes. */
    const int has_edges = kind == LINES || kind == STEPS;
    if (has_edges && any_invalid(scores, rows, map[1])) return 1;
    if (has_edges) look_up_edges(scores, rows, map, values);
    else if (kind == QUADRATIC) quadratic(scores, rows, map, values);
    else if (kind == LOGARITHMIC) logarithmic(scores, rows, map, values, first);
    else if (kind == SOFTPLUS) softplus(scores, rows, map, values, first, second);
    else rescale(scores, rows, map, values);
    if (!has_edges && any_invalid(scores, rows, map[1])) return 1;
    if (kind <= LINES && !((int)map[0] & LOG_ODDS)) sigmoids(values, rows, result);
    else memcpy(result, values, rows * sizeof *result);
    return 0;
}

/* Write the probability of each score; returns 1 if one is invalid. `scores` may be `result`. */
INLINE int fill_blocks(
    const void *scores, void *result, size_t rows, int is_float32, const double *map) {
    double block[MAP_BLOCK];
    for (size_t start = 0; start < rows; start += MAP_BLOCK) {
        const size_t count = rows - start < MAP_BLOCK ? rows - start : MAP_BLOCK;
        const size_t padded = (count + CHUNK - 1) / CHUNK * CHUNK;
        const double *given = (const double *)scores + start;
        double *found = (double *)result + start;
        const int is_copied = is_float32 || padded > count;
        for (size_t row = 0; is_float32 && row < count; row++)
            block[row] = ((const float *)scores)[start + row];
        if (is_copied && !is_float32) memcpy(block, given, count * sizeof *block);
        for (size_t row = count; row < padded; row++) block[row] = block[0];
        if (compute(is_copied ? block : given, padded, map, is_copied ? block : found)) return 1;
        for (size_t row = 0; is_float32 && row < count; row++)
            ((float *)result)[start + row] = (float)block[row];
        if (is_copied && !is_float32) memcpy(found, block, count * sizeof *block);
    }
    return 0;
}

/* Compiled for several processors. */
typedef int Fill(const void *scores, void *result, size_t rows, int is_float32, const double *map);
#define COMPILED_FOR(PROCESSOR, NAME)                                                              \
    PROCESSOR static int NAME(                                                                     \
        const void *scores, void *result, size_t rows, int is_float32, const double *map) {        \
        return is_float32 ? fill_blocks(scores, result, rows, 1, map)                              \
                          : fill_blocks(scores, result, rows, 0, map);                             \
    }

COMPILED_FOR(, fill_anywhere)
static Fill *fill = fill_anywhere;

#if defined(__x86_64__)
#include <cpuid.h>

COMPILED_FOR(__attribute__((target("avx2,fma"))), fill_with_avx2)
COMPILED_FOR(__attribute__((target("avx512f,avx512vl,fma"))), fill_with_avx512)

/* 2 with AVX-512, 1 with AVX2, 0 otherwise. The compiler's own function for this needs a library
   that not every system has. */
static int processor_level(void) {
    unsigned a, b, c, d, states, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 0;
    /* The registers that the operating system saves: bits 1 and 2 for AVX, and 5 to 7 for AVX-512. */
    __asm__("xgetbv" : "=a"(states), "=d"(unused) : "c"(0));
    if ((states & 0x06) != 0x06) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
    const int has_avx512 = (b & bit_AVX512F) && (b & bit_AVX512VL) && (states & 0xe0) == 0xe0;
    return 1 + has_avx512;
}

/* Run the loops for the best level that this processor has, or a lower one; returns it. */
static int choose_processor(int level) {
    const int best = processor_level();
    const int chosen = level < best ? level : best;
    fill = chosen == 2 ? fill_with_avx512 : chosen == 1 ? fill_with_avx2 : fill_anywhere;
    return chosen;
}
#else
static int choose_processor(int level) { return 0 * level; }
#endif

/* Whether a number is finite and at most `limit`, without its sign. */
INLINE int is_within(double value, double limit) { return !any_invalid(&value, 1, limit); }

/* Whether every score that is looked up in a map with edges stays in it. */
static int has_valid_edges(const double *map, size_t bytes) {
    /* With finite differences of scores and a finite scale, no bucket is NaN. */
    if (!is_within(map[1] + fabs(map[2]), DBL_MAX) || !is_within(map[3], DBL_MAX)) return 0;
    for (int number = 4; number < 8; number++)
        if (!is_within(map[number], INT32_MAX) || map[number] < 0) return 0;
    const uint64_t buckets = (uint64_t)map[4] + 1, width = (uint64_t)map[5];
    const uint64_t bounds = (uint64_t)map[6], edges = (uint64_t)map[7];
    if (edges < 1 || bounds < edges + 2 * width) return 0;
    if (bytes < (8 + bounds + 4 * edges) * sizeof *map + buckets * sizeof(int32_t)) return 0;
    /* A search that starts at the last edge ends there. */
    for (uint64_t place = edges; place < bounds; place++)
        if (!is_within(map[8 + place], DBL_MAX) || map[8 + place] <= map[1]) return 0;
    const int32_t *first_edges = (const int32_t *)(map + 8 + bounds + 4 * edges);
    uint32_t largest = 0;
    for (uint64_t bucket = 0; bucket < buckets; bucket++)
        largest = (uint32_t)first_edges[bucket] > largest ? (uint32_t)first_edges[bucket] : largest;
    return largest < edges;
}

/* Whether bytes are a map that the loops can read. */
static int is_map(const double *map, size_t bytes) {
    static const size_t sizes[] = {11, 13, 11, 8, 8, 4};
    if (bytes < 2 * sizeof *map || (uintptr_t)map % sizeof *map) return 0;
    if (!is_within(map[0], LOG_ODDS + LINES) || !is_within(map[1], DBL_MAX) || map[1] < 0) return 0;
    const int kind = (int)map[0] & ~LOG_ODDS;
    if (kind < QUADRATIC || kind > RESCALE || bytes < sizes[kind] * sizeof *map) return 0;
    return (kind != LINES && kind != STEPS) || has_valid_edges(map, bytes);
}
