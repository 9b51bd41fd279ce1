/* Training of factor models on a CPU (`models/engines/cpu.py`); a part of `native.c`.

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

/* Up to so many deferred steps are taken at once, but not among the first steps of a run, when the
   bias corrections of Adam change fast. */
enum { MOST_AT_ONCE = 15, FIRST_AT_ONCE = 1000 };

/* What some steps without a gradient have in common for all numbers. */
typedef struct {
    float kept, added;    /* second moment: kept * second + added * (first value^2 + last value^2) */
    float sum, added_sum; /* the sum of all m: sum * m + added_sum * value */
    float before_middle;  /* the mean step of m's share in that sum - the middle, of all steps */
} Deferred;

/* Columns of a table that are summed to one part of a score. A thread has some of these blocks, and
   the parts are added in the same order for every number of threads. */
#define COLUMN_BLOCK ((size_t)32)

typedef struct {
    float *table, *first, *second; /* parameters and both moments of Adam, one row after the other */
    const float *sizes;            /* per step: learning rate and factor, both bias-corrected */
    size_t rows, width;
    float decay;
    Deferred deferred[MOST_AT_ONCE + 1]; /* by number of steps */
} Adam;

/* One step of some numbers. */
INLINE void adam_step(
    float *restrict table, float *restrict first, float *restrict second,
    const float *restrict gradient, size_t count, const float *size, float decay) {
    const float rate = size[0], factor = size[1];
    for (size_t column = 0; column < count; column++) {
        const float slope = (gradient ? gradient[column] : 0) + decay * table[column];
        first[column] = BETA1 * first[column] + (1 - BETA1) * slope;
        second[column] = BETA2 * second[column] + (1 - BETA2) * slope * slope;
        const float scale = sqrtf(second[column]) * factor + ADAM_EPSILON;
        table[column] -= rate * first[column] / scale;
    }
}

/* Numbers whose steps are taken together: their intermediate values stay in the first-level cache. */
enum { TOGETHER = 64 };

/* `length` steps without a gradient, of TOGETHER numbers, as the power of a matrix.

   With u = (1 - b1) decay and m = first moment / u, a step without a gradient is m <- b1 m + value,
   value <- value - p m, where p = u rate / (sqrt(second) factor + epsilon) changes by about 0.05%
   per step. For a constant p, the matrix of (value, m) is
       T = [1 - p, -p b1; 1, b1],    T^n = a_n (T - trace / 2) + trace(T^n) / 2,
       trace(T^2n) = trace(T^n)^2 - 2 b1^n,    a_2n = a_n trace(T^n),    a_1 = 1
   so T to the powers 2, 4, 8, ... takes three operations each. p is taken from the middle of the
   steps, and for the decreasing part of the first m from the mean of its steps. Where p is above 1,
   values are of the size of decay * rate and would oscillate: 1 dampens them. */
INLINE void adam_steps(
    float *restrict values, float *restrict means, float *restrict squares, const Adam *adam,
    int64_t step, int length) {
    float p[TOGETHER], half_traces[TOGETHER], a[TOGETHER];
    const Deferred *steps = adam->deferred + length;
    const float *sizes = adam->sizes + 2 * step;
    const float factor = sizes[-1], ratio = factor / sizes[2 * length - 1];
    const float unit = (1 - BETA1) * adam->decay, inverse_unit = 1 / unit;
    const float rate = sizes[0] * unit, inverse_rate = factor / rate;
    for (size_t place = 0; place < TOGETHER; place++) {
        const float value = values[place], square = squares[place];
        const float mean = means[place] * inverse_unit;
        const float p_first = rate / (sqrtf(square) * factor + ADAM_EPSILON);
        const float end = value - p_first * (mean * steps->sum + value * steps->added_sum);
        const float start_square = value * value;
        const float end_square = end * end < start_square ? end * end : start_square;
        const float last_square = steps->kept * square + steps->added * (start_square + end_square);
        /* last p / first p = sqrt(square / last_square), from its series around 1 */
        const float inverse = p_first * inverse_rate;
        const float grown = last_square * inverse * inverse - 1;
        const float by = grown < 0.5f ? grown : 0.5f;
        const float change = ratio * (1 - by * (0.5f - 0.375f * by)) - 1;
        const float p_middle = p_first * (1 + 0.5f * change);
        p[place] = p_middle < 1 ? p_middle : 1;
        means[place] = mean * (1 + steps->before_middle * change);
        half_traces[place] = 0.5f * (1 + BETA1 - p[place]);
        a[place] = 1;
        squares[place] = steps->kept * square + steps->added * start_square;
    }
    float power = BETA1;
    for (int left = length; left; left >>= 1) {
        if (left & 1)
            for (size_t place = 0; place < TOGETHER; place++) {
                const float value = values[place], mean = means[place];
                const float h = 0.5f * (1 - BETA1 - p[place]);
                const float x = h * value - BETA1 * p[place] * mean, y = value - h * mean;
                values[place] = a[place] * x + half_traces[place] * value;
                means[place] = a[place] * y + half_traces[place] * mean;
            }
        for (size_t place = 0; place < TOGETHER; place++) {
            const float trace = 2 * half_traces[place];
            a[place] *= trace;
            half_traces[place] = trace * half_traces[place] - power;
        }
        power *= power;
    }
    for (size_t place = 0; place < TOGETHER; place++) {
        squares[place] += steps->added * (values[place] * values[place]);
        means[place] *= unit;
    }
}

/* The same of any number of columns: the last ones are copied to where there is room for more. */
INLINE void adam_steps_of(
    float *table, float *first, float *second, size_t count, const Adam *adam, int64_t step,
    int length) {
    size_t column = 0;
    for (; column + TOGETHER <= count; column += TOGETHER)
        adam_steps(table + column, first + column, second + column, adam, step, length);
    if (column == count) return;
    float copies[3][TOGETHER] = {{0}};
    float *parts[3] = {table + column, first + column, second + column};
    for (int part = 0; part < 3; part++)
        for (size_t place = 0; place < count - column; place++)
            copies[part][place] = parts[part][place];
    adam_steps(copies[0], copies[1], copies[2], adam, step, length);
    for (int part = 0; part < 3; part++)
        for (size_t place = 0; place < count - column; place++)
            parts[part][place] = copies[part][place];
}

/* Take the deferred steps of some columns of a row. */
INLINE void catch_up_columns(
    const Adam *adam, size_t row, size_t start, size_t count, int64_t last, int64_t now) {
    const size_t place = row * adam->width + start;
    float *table = adam->table + place;
    float *first = adam->first + place, *second = adam->second + place;
    int64_t step = last + 1;
    while (step <= now) {
        const int64_t left = now - step + 1;
        const int64_t length = left < MOST_AT_ONCE ? left : MOST_AT_ONCE;
        if (length > 1 && step >= FIRST_AT_ONCE) {
            adam_steps_of(table, first, second, count, adam, step, (int)length);
            step += length;
        } else {
            adam_step(table, first, second, NULL, count, adam->sizes + 2 * step, adam->decay);
            step++;
        }
    }
}

enum { PARTS = 16 };

/* Sums in a fixed order, whatever the width of the processor's registers. */
INLINE float sum_of_parts(float *parts) {
    for (int half = PARTS / 2; half; half /= 2)
        for (int part = 0; part < half; part++) parts[part] += parts[part + half];
    return parts[0];
}

INLINE float score_difference(
    const float *user, const float *positive, const float *negative, size_t count) {
    float parts[PARTS] = {0};
    size_t column = 0;
    for (; column + PARTS <= count; column += PARTS)
        for (size_t part = 0; part < PARTS; part++)
            parts[part] += user[column + part] * (positive[column + part] - negative[column + part]);
    for (size_t part = 0; column + part < count; part++)
        parts[part] += user[column + part] * (positive[column + part] - negative[column + part]);
    return sum_of_parts(parts);
}

/* Wait until all threads have been here as often as this one. */
#ifdef _WIN32
__declspec(dllimport) int __stdcall SwitchToThread(void);
#define YIELD() ((void)SwitchToThread())
#else
#include <sched.h>
#define YIELD() ((void)sched_yield())
#endif
enum { SPINS = 2000 };

static void wait_for_all(int64_t *arrived, int64_t expected) {
    int spins = 0;
    __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < expected)
        if (++spins > SPINS) YIELD();
}

INLINE void fetch_row(const Adam *adam, size_t row, size_t start, size_t count) {
    for (size_t column = start; column < start + count; column += 16) {
        __builtin_prefetch(adam->table + row * adam->width + column);
        __builtin_prefetch(adam->first + row * adam->width + column);
        __builtin_prefetch(adam->second + row * adam->width + column);
    }
}

/* Prepared by the caller: see `train_bpr`. */
typedef struct {
    Adam adam;
    const int64_t *rows;
    const float *importance;
    int64_t *last, *slots, *arrived;
    float *gradients, *parts;
    size_t steps, triples, start, count; /* of columns */
    int64_t before, threads;
} Epoch;

INLINE void catch_up_batch(const Epoch *e, const int64_t *rows, int64_t now) {
    const size_t places = 3 * e->triples;
    for (size_t place = 0; place < places; place++) {
        const size_t row = (size_t)rows[place];
        if (place + 4 < places) fetch_row(&e->adam, (size_t)rows[place + 4], e->start, e->count);
        if (e->last[row] < now)
            catch_up_columns(&e->adam, row, e->start, e->count, e->last[row], now);
        e->last[row] = now;
    }
}

/* The gradient of a row, 0 where a batch first needs it. */
INLINE float *gradient_of(const Epoch *e, int64_t row, int64_t *used) {
    float *gradient = e->gradients + (size_t)(e->slots[row] < 0 ? *used : e->slots[row]) * e->count;
    if (e->slots[row] < 0) {
        e->slots[row] = (*used)++;
        memset(gradient, 0, e->count * sizeof *gradient);
    }
    return gradient;
}

/* One part of each score difference per block of columns. */
INLINE void add_parts(const Epoch *e, const int64_t *rows, float *parts) {
    const float *table = e->adam.table + e->start;
    const size_t width = e->adam.width;
    for (size_t column = 0; column < e->count; column += COLUMN_BLOCK) {
        const size_t count = e->count - column < COLUMN_BLOCK ? e->count - column : COLUMN_BLOCK;
        float *part = parts + (e->start + column) / COLUMN_BLOCK * e->triples;
        for (size_t triple = 0; triple < e->triples; triple++)
            part[triple] = score_difference(
                table + (size_t)rows[triple] * width + column,
                table + (size_t)rows[e->triples + triple] * width + column,
                table + (size_t)rows[2 * e->triples + triple] * width + column, count);
    }
}

/* The loss is -log sigmoid(margin), with slope -sigmoid(-margin). */
INLINE void add_gradients(
    const Epoch *e, const int64_t *rows, const float *importance, const float *parts) {
    const size_t width = e->adam.width, blocks = (width + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    const float *table = e->adam.table + e->start;
    int64_t used = 0;
    for (size_t triple = 0; triple < e->triples; triple++) {
        const int64_t user = rows[triple];
        const int64_t positive = rows[e->triples + triple], negative = rows[2 * e->triples + triple];
        const float *restrict of_user = table + (size_t)user * width;
        const float *restrict of_positive = table + (size_t)positive * width;
        const float *restrict of_negative = table + (size_t)negative * width;
        float margin = 0;
        for (size_t block = 0; block < blocks; block++) margin += parts[block * e->triples + triple];
        const float slope = -importance[triple] * (float)sigmoid(-(double)margin);
        float *restrict to_user = gradient_of(e, user, &used);
        float *restrict to_positive = gradient_of(e, positive, &used);
        float *restrict to_negative = gradient_of(e, negative, &used);
        /* These rows differ, except where a batch is padded and all that is added is 0. */
#pragma GCC ivdep
        for (size_t column = 0; column < e->count; column++) {
            const float difference = of_positive[column] - of_negative[column];
            to_user[column] += slope * difference;
            to_positive[column] += slope * of_user[column];
            to_negative[column] -= slope * of_user[column];
        }
    }
}

INLINE void step_batch(const Epoch *e, const int64_t *rows, int64_t now) {
    const Adam *adam = &e->adam;
    for (size_t place = 0; place < 3 * e->triples; place++) {
        const int64_t row = rows[place];
        if (e->slots[row] < 0) continue; /* an earlier place has taken the step */
        const size_t at = (size_t)row * adam->width + e->start;
        const float *gradient = e->gradients + (size_t)e->slots[row] * e->count;
        adam_step(
            adam->table + at, adam->first + at, adam->second + at, gradient, e->count,
            adam->sizes + 2 * now, adam->decay);
        e->last[row] = now;
        e->slots[row] = -1;
    }
}

WITH_TRAINING_VARIANTS void run_epoch(const Epoch *e) {
    const size_t blocks = (e->adam.width + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    for (size_t row = 0; row < e->adam.rows; row++) {
        e->last[row] = e->before;
        e->slots[row] = -1;
    }
    for (size_t step = 0; step < e->steps; step++) {
        const int64_t now = e->before + 1 + (int64_t)step;
        const int64_t *rows = e->rows + 3 * e->triples * step;
        /* Other threads may still read the parts of the step before. */
        float *parts = e->parts + (step % 2) * blocks * e->triples;
        catch_up_batch(e, rows, now - 1);
        add_parts(e, rows, parts);
        if (e->threads > 1) wait_for_all(e->arrived, e->threads * (int64_t)(step + 1));
        add_gradients(e, rows, e->importance + step * e->triples, parts);
        step_batch(e, rows, now);
    }
    const int64_t last = e->before + (int64_t)e->steps;
    for (size_t row = 0; row < e->adam.rows; row++)
        catch_up_columns(&e->adam, row, e->start, e->count, e->last[row], last);
}

static int are_rows(const Argument *rows, size_t size) {
    for (size_t place = 0; place < rows->size; place++)
        if ((uint64_t)((const int64_t *)rows->data)[place] >= size) return 0;
    return 1;
}

/* Whether four arrays are a table, its moments and the step sizes up to `now`. */
static int is_adam(const Argument *a, int64_t now) {
    return a[0].view.ndim == 2 && a[0].size && a[1].size == a[0].size && a[2].size == a[0].size &&
           now >= 0 && a[3].size / 2 > (size_t)now;
}

static Adam adam_of(const Argument *a, double decay) {
    const Py_ssize_t *shape = a[0].view.shape;
    /* Without decay nothing is added to a moment; nor is, after rounding, with the least decay. */
    Adam adam = {a[0].data, a[1].data, a[2].data, a[3].data,
                 (size_t)shape[0], (size_t)shape[1], decay > 1e-15 ? (float)decay : 1e-15f, {{0}}};
    double kept = 1, power = 1, sum = 0, moment = 0;
    for (int length = 1; length <= MOST_AT_ONCE; length++) {
        kept *= BETA2;
        power *= BETA1;
        sum += power;
        moment += power * length;
        const Deferred deferred = {
            (float)kept, (float)(0.5 * (1 - kept) * decay * decay), (float)sum,
            (float)((length - sum) / (1 - BETA1)), (float)(moment / sum / length - 0.5)};
        adam.deferred[length] = deferred;
    }
    return adam;
}

/* Train BPR on the batches of one epoch, in some columns of the table: table, first and second
   moments (rows x width), step sizes, rows [step, role, triple], importance [step, triple]; to
   write to: last step and slot of each row, gradients (3 * triples * columns) and, shared by all
   threads, parts (2 * blocks * triples) and arrivals (0); decay, steps before this epoch, and
   which thread of how many. */
METHOD(train_bpr, "SSSslsLLSSLrzzz", a) {
    const Py_buffer *batches = &a[5].view;
    const int64_t before = a[12].integer, thread = a[13].integer, threads = a[14].integer;
    if (batches->ndim != 2 || before < 0 || a[10].size != 1) return SIZES;
    const size_t steps = (size_t)batches->shape[0], triples = (size_t)batches->shape[1];
    if (!is_adam(a, before + (int64_t)steps) || a[4].size != 3 * a[5].size) return SIZES;
    const Adam adam = adam_of(a, a[11].real);
    const size_t blocks = (adam.width + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    if (a[6].size != adam.rows || a[7].size != adam.rows || a[9].size != 2 * blocks * triples)
        return SIZES;
    if (thread < 0 || thread >= threads || !are_rows(a + 4, adam.rows)) return OUTSIDE;
    const size_t start = blocks * (size_t)thread / (size_t)threads * COLUMN_BLOCK;
    size_t stop = blocks * (size_t)(thread + 1) / (size_t)threads * COLUMN_BLOCK;
    if (stop > adam.width) stop = adam.width;
    if (a[8].size < 3 * triples * (stop - start)) return SIZES;
    const Epoch epoch = {adam,      a[4].data,  a[5].data, a[6].data, a[7].data,
                         a[10].data, a[8].data, a[9].data, steps,     triples,
                         start,     stop - start, before,  threads};
    run_epoch(&epoch);
    return NULL;
}

/* Scale a row into the unit ball. */
INLINE void project(float *row, size_t width) {
    float parts[PARTS] = {0};
    size_t start = 0;
    for (; start + PARTS <= width; start += PARTS)
        for (size_t part = 0; part < PARTS; part++)
            parts[part] += row[start + part] * row[start + part];
    for (size_t part = 0; start + part < width; part++)
        parts[part] += row[start + part] * row[start + part];
    const float squares = sum_of_parts(parts);
    const float scale = squares > 1 ? 1 / sqrtf(squares) : 1;
    for (size_t column = 0; column < width; column++) row[column] *= scale;
}

INLINE void step_row(const Adam *adam, size_t row, const float *gradient, int64_t now, int in_ball) {
    const size_t at = row * adam->width;
    adam_step(
        adam->table + at, adam->first + at, adam->second + at, gradient, adam->width,
        adam->sizes + 2 * now, adam->decay);
    if (in_ball) project(adam->table + at, adam->width);
}

WITH_TRAINING_VARIANTS void catch_up_rows_of(
    const Adam *adam, int64_t *last, const int64_t *rows, size_t count, int64_t now, int in_ball) {
    for (size_t place = 0; place < count; place++) {
        const size_t row = (size_t)rows[place];
        if (in_ball)
            for (int64_t step = last[row] + 1; step <= now; step++)
                step_row(adam, row, NULL, step, 1);
        else
            catch_up_columns(adam, row, 0, adam->width, last[row], now);
        if (last[row] < now) last[row] = now;
    }
}

/* Gradients of a row that occurs more than once are added up where it first occurs. */
WITH_TRAINING_VARIANTS void step_rows_of(
    const Adam *adam, int64_t *last, const int64_t *rows, size_t count, float *gradients,
    int64_t *slots, int64_t now, int in_ball) {
    const size_t width = adam->width;
    for (size_t place = 0; place < count; place++) slots[rows[place]] = -1;
    for (size_t place = 0; place < count; place++) {
        int64_t *slot = slots + rows[place];
        if (*slot < 0) {
            *slot = (int64_t)place;
            continue;
        }
        const float *from = gradients + place * width;
        float *to = gradients + (size_t)*slot * width;
#pragma GCC ivdep
        for (size_t column = 0; column < width; column++) to[column] += from[column];
    }
    for (size_t place = 0; place < count; place++) {
        if (slots[rows[place]] != (int64_t)place) continue;
        step_row(adam, (size_t)rows[place], gradients + place * width, now, in_ball);
        last[rows[place]] = now;
    }
}

/* Take the deferred steps of rows: table, first and second moments, step sizes, last step of each
   row, rows, decay, step, and whether rows stay in the unit ball */
METHOD(catch_up_rows, "SSSsLlrzz", a) {
    const int64_t now = a[7].integer;
    if (!is_adam(a, now) || a[4].size != (size_t)a[0].view.shape[0]) return SIZES;
    if (!are_rows(a + 5, a[4].size)) return OUTSIDE;
    for (size_t row = 0; row < a[4].size; row++)
        if (((const int64_t *)a[4].data)[row] < 0) return OUTSIDE;
    const Adam adam = adam_of(a, a[6].real);
    catch_up_rows_of(&adam, a[4].data, a[5].data, a[5].size, now, a[8].integer != 0);
    return NULL;
}

/* Take a step for rows with gradients, which are overwritten: the same arguments, with the gradients
   and a slot of each row, to write to, before the decay */
METHOD(step_rows, "SSSsLlSLrzz", a) {
    const int64_t now = a[9].integer;
    if (!is_adam(a, now) || a[4].size != (size_t)a[0].view.shape[0] || a[7].size != a[4].size)
        return SIZES;
    const Adam adam = adam_of(a, a[8].real);
    if (a[6].size != a[5].size * adam.width) return SIZES;
    if (!are_rows(a + 5, a[4].size)) return OUTSIDE;
    step_rows_of(
        &adam, a[4].data, a[5].data, a[5].size, a[6].data, a[7].data, now, a[10].integer != 0);
    return NULL;
}

/* Take a step for every number: table, first and second moments, step sizes, gradients, decay, step */
WITH_TRAINING_VARIANTS void step_table_of(const Argument *a) {
    adam_step(
        a[0].data, a[1].data, a[2].data, a[4].data, a[0].size,
        (const float *)a[3].data + 2 * a[6].integer, (float)a[5].real);
}

METHOD(step_table, "SSSssrz", a) {
    if (!is_adam(a, a[6].integer) || a[4].size != a[0].size) return SIZES;
    step_table_of(a);
    return NULL;
}

/* A symmetric sparse matrix in CSR format, times a table of `width` columns. */
typedef struct {
    const int64_t *starts;
    const int32_t *columns;
    const float *values;
    size_t width;
} Sparse;

WITH_TRAINING_VARIANTS void multiply_rows(
    const Sparse *matrix, const int64_t *rows, size_t count, const float *base, const float *table,
    float factor, float *result) {
    const size_t width = matrix->width;
    for (size_t place = 0; place < count; place++) {
        const size_t row = (size_t)rows[place];
        float *restrict target = result + place * width;
        memcpy(target, base + row * width, width * sizeof *target);
        for (int64_t edge = matrix->starts[row]; edge < matrix->starts[row + 1]; edge++) {
            const float value = matrix->values[edge];
            const float *restrict source = table + (size_t)matrix->columns[edge] * width;
            for (size_t column = 0; column < width; column++)
                target[column] += value * source[column];
        }
        for (size_t column = 0; column < width; column++) target[column] *= factor;
    }
}

WITH_TRAINING_VARIANTS void scatter_rows(
    const Sparse *matrix, const int64_t *rows, size_t count, const float *some, float *result) {
    const size_t width = matrix->width;
    for (size_t place = 0; place < count; place++) {
        const size_t row = (size_t)rows[place];
        const float *restrict source = some + place * width;
        for (int64_t edge = matrix->starts[row]; edge < matrix->starts[row + 1]; edge++) {
            const float value = matrix->values[edge];
            float *restrict target = result + (size_t)matrix->columns[edge] * width;
            for (size_t column = 0; column < width; column++)
                target[column] += value * source[column];
        }
    }
}

/* Whether starts, columns and values are a matrix with these rows and columns. */
static int is_sparse(const Argument *a, size_t rows) {
    const int64_t *starts = a[0].data;
    const uint32_t *columns = a[1].data;
    if (a[0].size != rows + 1 || a[1].size != a[2].size || starts[0] != 0) return 0;
    if ((uint64_t)starts[rows] != a[1].size) return 0;
    for (size_t row = 0; row < rows; row++)
        if (starts[row] > starts[row + 1]) return 0;
    for (size_t edge = 0; edge < a[1].size; edge++)
        if (columns[edge] >= rows) return 0;
    return 1;
}

/* (base + matrix @ table) * factor in some rows: starts, columns, values, rows, base, table, factor,
   result (one row per place) */
METHOD(graph_rows, "lislssrS", a) {
    if (a[5].view.ndim != 2 || a[4].size != a[5].size) return SIZES;
    const size_t rows = (size_t)a[5].view.shape[0], width = (size_t)a[5].view.shape[1];
    const Sparse matrix = {a[0].data, a[1].data, a[2].data, width};
    if (!is_sparse(a, rows) || a[7].size != a[3].size * width) return SIZES;
    if (!are_rows(a + 3, rows)) return OUTSIDE;
    multiply_rows(
        &matrix, a[3].data, a[3].size, a[4].data, a[5].data, (float)a[6].real, a[7].data);
    return NULL;
}

/* Add matrix @ x to the result, where x is 0 but in some rows: starts, columns, values, rows, these
   rows of x, result. A batch has few rows, so this visits far fewer edges than a full product. */
METHOD(graph_scatter, "lislsS", a) {
    if (a[5].view.ndim != 2) return SIZES;
    const size_t rows = (size_t)a[5].view.shape[0], width = (size_t)a[5].view.shape[1];
    const Sparse matrix = {a[0].data, a[1].data, a[2].data, width};
    if (!is_sparse(a, rows) || a[4].size != a[3].size * width) return SIZES;
    if (!are_rows(a + 3, rows)) return OUTSIDE;
    scatter_rows(&matrix, a[3].data, a[3].size, a[4].data, a[5].data);
    return NULL;
}

WITH_TRAINING_VARIANTS int32_t count_from(const float *scores, size_t size, float least) {
    int32_t count = 0;
    for (size_t column = 0; column < size; column++) count += scores[column] >= least;
    return count;
}

/* How many scores of a row are at least a number: scores, rows, numbers, counts */
METHOD(count_at_least, "slsL", a) {
    if (a[0].view.ndim != 2 || a[2].size != a[1].size || a[3].size != a[1].size) return SIZES;
    const size_t rows = (size_t)a[0].view.shape[0], width = (size_t)a[0].view.shape[1];
    if (width > INT32_MAX) return SIZES;
    if (!are_rows(a + 1, rows)) return OUTSIDE;
    for (size_t place = 0; place < a[1].size; place++) {
        const size_t row = (size_t)((const int64_t *)a[1].data)[place];
        ((int64_t *)a[3].data)[place] = count_from(
            (const float *)a[0].data + row * width, width, ((const float *)a[2].data)[place]);
    }
    return NULL;
}
