/* Training of factor models on a CPU (`models/cpu.py`); a part of `native.c`. */

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
enum { SPINS = 2000, AHEAD = 4 };

static void wait_for_all(int64_t *arrived, int64_t expected) {
    int spins = 0;
    __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < expected)
        if (++spins > SPINS) YIELD();
}

/* Prepared by the caller: see `train_bpr`. */
typedef struct {
    Adam adam;
    const int64_t *rows;
    const float *importance;
    int64_t *last, *arrived; /* the step of each row's gradient, and how often threads were here */
    float *parts;
    size_t steps, triples, start, count; /* of columns */
    int64_t before, threads;
} Epoch;

/* The second-level cache has room for more rows that are on their way than the first. */
INLINE void fetch_row(const Epoch *e, size_t row) {
    const float *start = e->adam.table + row * e->adam.stride + e->start;
    for (size_t kind = 0; kind < 4; kind++)
        for (size_t column = 0; column < e->count; column += 16)
            __builtin_prefetch(start + kind * e->adam.width + column, 0, 2);
}

INLINE float *gradient_of(const Epoch *e, size_t row) {
    return e->adam.table + row * e->adam.stride + 3 * e->adam.width + e->start;
}

/* Take the steps of a row up to one, beginning with the one that it has a gradient of. */
INLINE void catch_up(const Epoch *e, size_t row, int64_t now) {
    const int64_t last = e->last[row];
    const float *gradient = last > e->before ? gradient_of(e, row) : NULL;
    advance(&e->adam, row, e->start, e->count, gradient, last, now);
}

/* Bring the rows of a batch up to date, and set their gradients to 0. */
INLINE void catch_up_batch(const Epoch *e, const int64_t *rows, int64_t now) {
    const size_t places = 3 * e->triples;
    for (size_t place = 0; place < places; place++) {
        const size_t row = (size_t)rows[place];
        if (place + AHEAD < places) fetch_row(e, (size_t)rows[place + AHEAD]);
        if (e->last[row] == now) continue;
        catch_up(e, row, now - 1);
        memset(gradient_of(e, row), 0, e->count * sizeof(float));
        e->last[row] = now;
    }
}

/* One part of each score difference per block of columns. */
INLINE void add_parts(const Epoch *e, const int64_t *rows, float *parts) {
    const float *table = e->adam.table + e->start;
    const size_t stride = e->adam.stride;
    for (size_t column = 0; column < e->count; column += COLUMN_BLOCK) {
        const size_t count = e->count - column < COLUMN_BLOCK ? e->count - column : COLUMN_BLOCK;
        float *part = parts + (e->start + column) / COLUMN_BLOCK * e->triples;
        for (size_t triple = 0; triple < e->triples; triple++)
            part[triple] = score_difference(
                table + (size_t)rows[triple] * stride + column,
                table + (size_t)rows[e->triples + triple] * stride + column,
                table + (size_t)rows[2 * e->triples + triple] * stride + column, count);
    }
}

/* The loss is -log sigmoid(margin), with slope -sigmoid(-margin). */
INLINE void add_gradients(
    const Epoch *e, const int64_t *rows, const float *importance, const float *parts) {
    const size_t blocks = (e->adam.width + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    const size_t stride = e->adam.stride;
    const float *table = e->adam.table + e->start;
    float *gradients = gradient_of(e, 0);
    for (size_t triple = 0; triple < e->triples; triple++) {
        const size_t user = (size_t)rows[triple] * stride;
        const size_t positive = (size_t)rows[e->triples + triple] * stride;
        const size_t negative = (size_t)rows[2 * e->triples + triple] * stride;
        float margin = 0;
        for (size_t block = 0; block < blocks; block++) margin += parts[block * e->triples + triple];
        const float slope = -importance[triple] * (float)sigmoid(-(double)margin);
        /* These rows differ, except where a batch is padded and all that is added is 0. */
#pragma GCC ivdep
        for (size_t column = 0; column < e->count; column++) {
            const float by_user = slope * table[user + column];
            const float difference = table[positive + column] - table[negative + column];
            gradients[user + column] += slope * difference;
            gradients[positive + column] += by_user;
            gradients[negative + column] -= by_user;
        }
    }
}

WITH_TRAINING_VARIANTS void run_epoch(const Epoch *e) {
    const size_t blocks = (e->adam.width + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    for (size_t row = 0; row < e->adam.rows; row++) e->last[row] = e->before;
    for (size_t step = 0; step < e->steps; step++) {
        const int64_t now = e->before + 1 + (int64_t)step;
        const int64_t *rows = e->rows + 3 * e->triples * step;
        /* Other threads may still read the parts of the step before. */
        float *parts = e->parts + (step % 2) * blocks * e->triples;
        catch_up_batch(e, rows, now);
        add_parts(e, rows, parts);
        if (e->threads > 1) wait_for_all(e->arrived, e->threads * (int64_t)(step + 1));
        add_gradients(e, rows, e->importance + step * e->triples, parts);
    }
    const int64_t last = e->before + (int64_t)e->steps;
    for (size_t row = 0; row < e->adam.rows; row++) catch_up(e, row, last);
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
    const size_t rows = (size_t)a[0].view.shape[0], width = (size_t)a[0].view.shape[1];
    const Adam adam = {
        a[0].data, a[1].data, a[2].data, a[3].data, rows, width, width, (float)decay};
    return adam;
}

/* Train BPR on the batches of one epoch, in some columns of the table: the state (rows x 4 x width),
   which holds for each row its parameters, first and second moments, and room for its gradient;
   step sizes, rows [step, role, triple], importance [step, triple]; to write to: last step of each
   row and, shared by all threads, parts (2 * blocks * triples) and arrivals (0); decay, steps before
   this epoch, and which thread of how many. */
METHOD(train_bpr, "SslsLSLrzzz", a) {
    const Py_ssize_t *shape = a[0].view.shape, *batches = a[3].view.shape;
    const int64_t before = a[8].integer, thread = a[9].integer, threads = a[10].integer;
    if (a[0].view.ndim != 3 || shape[1] != 4 || a[3].view.ndim != 2 || before < 0) return SIZES;
    const size_t size = (size_t)shape[0], width = (size_t)shape[2];
    const size_t steps = (size_t)batches[0], triples = (size_t)batches[1];
    const size_t blocks = (width + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    if (a[1].size / 2 <= (size_t)before + steps || a[2].size != 3 * a[3].size ||
        a[4].size != size || a[5].size != 2 * blocks * triples || a[6].size != 1)
        return SIZES;
    /* Every thread has columns. */
    if (thread < 0 || thread >= threads || threads > (int64_t)blocks || !are_rows(a + 2, size))
        return OUTSIDE;
    const size_t start = blocks * (size_t)thread / (size_t)threads * COLUMN_BLOCK;
    size_t stop = blocks * (size_t)(thread + 1) / (size_t)threads * COLUMN_BLOCK;
    if (stop > width) stop = width;
    float *table = a[0].data;
    const Adam adam = {table, table + width, table + 2 * width, a[1].data, size, width, 4 * width,
                       (float)a[7].real};
    const Epoch epoch = {adam,  a[2].data, a[3].data, a[4].data,    a[6].data, a[5].data,
                         steps, triples,   start,     stop - start, before,    threads};
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
            advance(adam, row, 0, adam->width, NULL, last[row], now);
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
    if (!are_rows(a + 4, (size_t)now + 1)) return OUTSIDE;
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
