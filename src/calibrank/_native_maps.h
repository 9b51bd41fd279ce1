/* Loops that apply maps to scores; a part of `_native.c`, which includes it. */

/* Maps in float64, accurate to about 1e-15.

   A map is an array of float64: its kind, the largest valid score, and the constants of the kind,
   which `maps/_program.py` packs. No function of the system's mathematics library is called.

   A batch and a single score give the same digits. The compiler may fuse a product and a sum, which
   then round once, and need not do so in the same places of a vectorised loop and of the rows that
   remain after it. So all rows are computed CHUNK at a time, with padding. */
enum { QUADRATIC = 0, LOGARITHMIC = 1, SOFTPLUS = 2, LINES = 3, STEPS = 4, RESCALE = 5 };
#define CHUNK ((size_t)8)

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

/* Compute at most BLOCK rows, a multiple of CHUNK; `scores` may be `result`. */
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
    const size_t whole = rows - rows % CHUNK;
    double padded[CHUNK];
    if (whole && compute(scores, whole, map, result)) return 1;
    if (whole == rows) return 0;
    for (size_t row = 0; row < CHUNK; row++)
        padded[row] = scores[whole + row < rows ? whole + row : whole];
    if (compute(padded, CHUNK, map, padded)) return 1;
    memcpy(result + whole, padded, (rows - whole) * sizeof *result);
    return 0;
}

/* Write the probability of each score; returns 1 if one is invalid. `scores` may be `result`. */
static int probabilities_float64(
    const double *scores, double *result, size_t rows, const double *map) {
    for (size_t start = 0; start < rows; start += BLOCK) {
        const size_t count = rows - start < BLOCK ? rows - start : BLOCK;
        if (compute_padded(scores + start, count, map, result + start)) return 1;
    }
    return 0;
}

WITH_AVX512_VARIANT int probabilities_float32(
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

/* Functions that Python calls directly, as builtin functions (`_builtin.py`): ctypes takes as long
   for a call as 500 scores. Python's own functions are given as pointers, so that neither its headers
   nor its version matter here. */
typedef struct {
    size_t header; /* bytes of an object before its first field */
    double (*as_double)(void *);
    void *(*from_double)(double);
    const char *(*bytes_of)(void *);
    void *(*current_error)(void);
    void (*add_reference)(void *);
    void *(*release_lock)(void);
    void (*acquire_lock)(void *);
    void *float32, *float64, *yes, *no;
} Python;

static Python python;

EXPORT void use_python(const Python *given) { python = *given; }

/* The first fields of a NumPy array after its header, which are part of NumPy's binary interface. */
typedef struct {
    void *data;
    int dimensions;
    const ptrdiff_t *shape, *strides;
    void *base, *dtype;
} Array;

static inline const Array *fields_of(const void *array) {
    return (const Array *)((const char *)array + python.header);
}

static int fill(const Array *scores, const Array *result, size_t rows, const double *map) {
    if (scores->dtype == python.float64)
        return probabilities_float64(scores->data, result->data, rows, map);
    return probabilities_float32(scores->data, result->data, rows, map);
}

/* fill_probabilities(scores, result, map): arrays of one shape and type, contiguous and aligned, and
   the bytes of a map. False if the type is not float32 or float64, or a score is invalid. Other
   threads of Python run meanwhile if there are many scores. */
EXPORT void *fill_probabilities(void *module, void *const *arguments, ptrdiff_t count) {
    const Array *scores = fields_of(arguments[0]), *result = fields_of(arguments[1]);
    const double *map = (const double *)python.bytes_of(arguments[2]);
    size_t rows = 1;
    for (int axis = 0; axis < scores->dimensions; axis++) rows *= (size_t)scores->shape[axis];
    const int is_known = scores->dtype == python.float64 || scores->dtype == python.float32;
    void *lock = is_known && rows > 16 * BLOCK ? python.release_lock() : NULL;
    const int failed = !is_known || fill(scores, result, rows, map);
    if (lock) python.acquire_lock(lock);
    (void)module, (void)count;
    void *answer = failed ? python.no : python.yes;
    python.add_reference(answer);
    return answer;
}

/* probability_of_score(score, map): one valid score and the bytes of a map. */
EXPORT void *probability_of_score(void *module, void *const *arguments, ptrdiff_t count) {
    double score = python.as_double(arguments[0]);
    if (score == -1 && python.current_error()) return NULL; /* not a number */
    compute_padded(&score, 1, (const double *)python.bytes_of(arguments[1]), &score);
    (void)module, (void)count;
    return python.from_double(score);
}
