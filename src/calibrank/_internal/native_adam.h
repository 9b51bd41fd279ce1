/* Adam with deferred steps (`native_training.h`); a part of `native.c`.

   Adam with weight decay updates every row of the table at every step, although a batch has
   gradients for only a few. The steps of a row without a gradient depend on that row alone. They are
   deferred and made up for, while the row is in cache, when a batch next needs the row. */

/* Vectors of 64 bytes with fused products: the processors that have AVX-512 at all have this level. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&        \
    __GNUC__ >= 12
#define WITH_TRAINING_VARIANTS VARIANTS("arch=x86-64-v4", "arch=x86-64-v3")
#else
#define WITH_TRAINING_VARIANTS WITH_AVX512_VARIANT
#endif

/* Adam's defaults (Kingma and Ba, 2015), as torch has them. */
#define BETA1 0.9f
#define BETA2 0.999f
#define ADAM_EPSILON 1e-8f

/* Columns of a table that are handled alike, and summed to one part of a score. A thread has some of
   these blocks, so no digit depends on the number of threads. */
#define COLUMN_BLOCK ((size_t)32)

/* Up to so many deferred steps are taken at once, but no more than a share of the steps before them:
   the bias corrections of Adam change fast at first. */
enum { MOST_AT_ONCE = 63, SHARE_BEFORE = 32 };

/* What some steps without a gradient have in common for all numbers: see `take_steps`. */
typedef struct {
    float a[3], e[3];           /* coefficients of 1, p and p^2 */
    float kept, kept_in_middle; /* of the second moment: after all steps, and in their middle */
    float by_first, by_value;   /* mean step of a change by m and by the value, less the middle */
} Deferred;

static Deferred deferred[MOST_AT_ONCE + 1]; /* by number of steps */

static void prepare_deferred(void) {
    double a[3] = {1}, e[3] = {1}, power = BETA1, sum = BETA1, moment = BETA1;
    for (int length = 1; length <= MOST_AT_ONCE; length++) {
        /* In a step, m changes the value by b1^step m, and the value by (1 - b1^step) / (1 - b1). */
        const double middle = 0.5 * (length + 1), before = moment - middle * sum;
        Deferred *steps = deferred + length;
        steps->kept = (float)pow(BETA2, length);
        steps->kept_in_middle = (float)pow(BETA2, middle);
        steps->by_first = (float)(before / sum);
        steps->by_value = (float)(-before / (length - sum));
        for (int term = 2; term >= 0; term--) {
            steps->a[term] = (float)a[term];
            steps->e[term] = (float)e[term];
            a[term] = (term == 0) + BETA1 * a[term] - (term ? e[term - 1] : 0);
            e[term] += a[term];
        }
        power *= BETA1;
        sum += power;
        moment += power * (length + 1);
    }
}

typedef struct {
    float *table, *first, *second; /* parameters and both moments of Adam, one row after the other */
    const float *sizes;            /* per step: learning rate and factor, both bias-corrected */
    size_t rows, width, stride;
    float decay;
} Adam;

/* One step of a number; returns what the first moment was multiplied by. */
INLINE float step_once(float *value, float *first, float *second, float slope, const float *size) {
    *first = BETA1 * *first + (1 - BETA1) * slope;
    *second = BETA2 * *second + (1 - BETA2) * slope * slope;
    const float rate = size[0] / (sqrtf(*second) * size[1] + ADAM_EPSILON);
    *value -= rate * *first;
    return rate;
}

/* One step of some numbers. */
INLINE void adam_step(
    float *restrict table, float *restrict first, float *restrict second,
    const float *restrict gradient, size_t count, const float *size, float decay) {
    for (size_t column = 0; column < count; column++) {
        const float slope = (gradient ? gradient[column] : 0) + decay * table[column];
        step_once(table + column, first + column, second + column, slope, size);
    }
}

/* Steps without a gradient, as the power of a matrix.

   With u = (1 - b1) decay and m = first moment / u, a step without a gradient is m <- b1 m + value,
   value <- value - p m, where p = u rate, rate = size / (sqrt(second) factor + epsilon). For a
   constant p, n steps are
       value <- value - p (e value + b1 a m),    m <- a value + (1 - (1 - b1) a + p (a - e)) m,
       a_1 = e_1 = 1,    a_n+1 = 1 + b1 a_n - p e_n,    e_n+1 = e_n + a_n+1
   The rate grows by about 0.05% per step. It is taken from the middle of the steps, and corrected
   for the changes of a value that are larger before or after it. */
typedef struct {
    const Deferred *steps;
    float unit, size, factor, by_first, by_value;
    float added, added_in_middle; /* of squared values to the second moment */
    float ratio, slope; /* of the rate, to the one of the step before: see `advance_slowly` */
} Chunk;

INLINE Chunk chunk_of(const Adam *adam, int64_t step, int length) {
    const Deferred *steps = deferred + length;
    const float *start = adam->sizes + 2 * step, *stop = start + 2 * (length - 1);
    const float *low = start + 2 * ((length - 1) / 2), *high = start + 2 * (length / 2);
    const float size = 0.5f * (low[0] + high[0]), factor = 0.5f * (low[1] + high[1]);
    /* The rate grows by this share per step: by both corrections, and by the second moment. */
    const float corrected = length > 1 ? (stop[0] * start[1] / (start[0] * stop[1]) - 1) /
                                             (float)(length - 1) : 0;
    const float growth = corrected + 0.5f * (1 - BETA2);
    const float unit = (1 - BETA1) * adam->decay, squared_decay = adam->decay * adam->decay;
    const float added = (1 - steps->kept_in_middle) * squared_decay;
    const float inverse = start[-1] / start[-2];
    const float ratio = inverse * size / (factor * sqrtf(steps->kept_in_middle));
    const Chunk chunk = {
        steps, unit, size, factor, BETA1 * (1 + growth * steps->by_first),
        unit * (1 + growth * steps->by_value), 0.5f * (1 - steps->kept) * squared_decay, added,
        ratio, 0.5f * ratio * inverse * inverse * added / steps->kept_in_middle};
    return chunk;
}

INLINE void take_steps(
    float *value, float *first, float *second, float rate, float a, float e, const Chunk *chunk) {
    const float x = *value, m = *first, p = chunk->unit * rate;
    *value = x - rate * (chunk->by_value * e * x + chunk->by_first * a * m);
    *first = chunk->unit * a * x + (1 - (1 - BETA1) * a + p * (a - e)) * m;
    *second = chunk->steps->kept * *second + chunk->added * (x * x + *value * *value);
}

/* With the terms of a and e up to p^2, which suffice where p n is small. */
INLINE void take_few_steps(
    float *value, float *first, float *second, float rate, const Chunk *chunk) {
    const Deferred *steps = chunk->steps;
    const float p = chunk->unit * rate;
    const float a = steps->a[0] + p * (steps->a[1] + p * steps->a[2]);
    const float e = steps->e[0] + p * (steps->e[1] + p * steps->e[2]);
    take_steps(value, first, second, rate, a, e, chunk);
}

/* Steps of some columns, of which the one before may have a gradient. The rate of that step gives the
   rate of the others: in their middle, second is kept second + added value^2, and
   1 / sqrt(1 + x) = 1 - x / 2 for small x. */
INLINE void advance_slowly(
    float *restrict table, float *restrict first, float *restrict second,
    const float *restrict gradient, size_t count, const Adam *adam, int64_t step, int length) {
    const Chunk chunk = chunk_of(adam, step, length);
    const float *size = adam->sizes + 2 * (step - 1), decay = adam->decay;
    if (gradient)
        for (size_t column = 0; column < count; column++) {
            float value = table[column], mean = first[column], square = second[column];
            const float slope = gradient[column] + decay * value;
            const float last = step_once(&value, &mean, &square, slope, size);
            const float change = value * last;
            const float rate = last * (chunk.ratio - chunk.slope * (change * change));
            take_few_steps(&value, &mean, &square, rate, &chunk);
            table[column] = value;
            first[column] = mean;
            second[column] = square;
        }
    else
        for (size_t column = 0; column < count; column++) {
            float value = table[column], mean = first[column], square = second[column];
            const float middle = chunk.steps->kept_in_middle * square +
                                 chunk.added_in_middle * (value * value);
            const float rate = chunk.size / (sqrtf(middle) * chunk.factor + ADAM_EPSILON);
            take_few_steps(&value, &mean, &square, rate, &chunk);
            table[column] = value;
            first[column] = mean;
            second[column] = square;
        }
}

/* The same of values that weight decay changes fast, up to 16 steps at a time. T^2n = T^n T^n gives
   a_2n = a_n (2 - (1 - b1) a_n + p (a_n - 2 e_n)) and e_2n = e_n (2 - p e_n) + b1 a_n^2. Where p is
   above 1, values are of the size of decay * rate and would oscillate: 1 dampens them. */
INLINE void advance_quickly(
    float *restrict table, float *restrict first, float *restrict second,
    const float *restrict gradient, size_t count, const Adam *adam, int64_t step, int length) {
    float rates[COLUMN_BLOCK], a[COLUMN_BLOCK], e[COLUMN_BLOCK];
    if (gradient)
        adam_step(
            table, first, second, gradient, count, adam->sizes + 2 * (step - 1), adam->decay);
    for (int doublings = 4; doublings >= 0; doublings--)
        for (; length >> doublings; length -= 1 << doublings) {
            const Chunk chunk = chunk_of(adam, step, 1 << doublings);
            const Deferred *steps = chunk.steps;
            const float most = 1 / chunk.unit;
            for (size_t column = 0; column < count; column++) {
                const float value = table[column], square = second[column];
                const float start = chunk.size / (sqrtf(square) * chunk.factor + ADAM_EPSILON);
                const float end = value - start * (chunk.by_value * steps->e[0] * value +
                                                   chunk.by_first * steps->a[0] * first[column]);
                const float least = end * end < value * value ? end * end : value * value;
                const float middle = steps->kept_in_middle * square +
                                     chunk.added_in_middle * 0.5f * (value * value + least);
                const float rate = chunk.size / (sqrtf(middle) * chunk.factor + ADAM_EPSILON);
                rates[column] = rate < most ? rate : most;
                a[column] = e[column] = 1;
            }
            for (int doubling = 0; doubling < doublings; doubling++)
                for (size_t column = 0; column < count; column++) {
                    const float a_n = a[column], e_n = e[column], p = chunk.unit * rates[column];
                    a[column] = a_n * (2 - (1 - BETA1) * a_n + p * (a_n - 2 * e_n));
                    e[column] = e_n * (2 - p * e_n) + BETA1 * a_n * a_n;
                }
            for (size_t column = 0; column < count; column++)
                take_steps(
                    table + column, first + column, second + column, rates[column], a[column],
                    e[column], &chunk);
            step += 1 << doublings;
        }
}

/* Whether weight decay changes values by less than a tenth, p n / (1 - b1) < 0.1, in some steps. */
INLINE int are_slow(const float *second, size_t count, const Adam *adam, int64_t step, int length) {
    const float *size = adam->sizes + 2 * step;
    const float root = adam->decay * size[0] * (float)length / (0.1f * size[1]);
    const float least = root * root;
    float smallest = second[0];
    for (size_t column = 0; column < count; column++)
        smallest = second[column] < smallest ? second[column] : smallest;
    return smallest >= least;
}

/* Bring some columns of a row up to date: the step `last`, if its gradient is given, and then the
   steps without a gradient. */
INLINE void advance(
    const Adam *adam, size_t row, size_t start, size_t count, const float *gradient, int64_t last,
    int64_t now) {
    const size_t place = row * adam->stride + start;
    float *table = adam->table + place;
    float *first = adam->first + place, *second = adam->second + place;
    int64_t step = last + 1;
    while (gradient || step <= now) {
        int64_t length = now - step + 1;
        if (length > MOST_AT_ONCE) length = MOST_AT_ONCE;
        if (length > step / SHARE_BEFORE) length = step / SHARE_BEFORE;
        if (!length) {
            const float *size = adam->sizes + 2 * (gradient ? last : step);
            adam_step(table, first, second, gradient, count, size, adam->decay);
            step += !gradient;
        } else if (are_slow(second, count, adam, step, (int)length)) {
            advance_slowly(table, first, second, gradient, count, adam, step, (int)length);
        } else {
            for (size_t column = 0; column < count; column += COLUMN_BLOCK) {
                const size_t left = count - column;
                const size_t some = left < COLUMN_BLOCK ? left : COLUMN_BLOCK;
                const float *part = gradient ? gradient + column : NULL;
                if (are_slow(second + column, some, adam, step, (int)length))
                    advance_slowly(
                        table + column, first + column, second + column, part, some, adam, step,
                        (int)length);
                else
                    advance_quickly(
                        table + column, first + column, second + column, part, some, adam, step,
                        (int)length);
            }
        }
        gradient = NULL;
        step += length;
    }
}
