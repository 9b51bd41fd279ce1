/* Ranks of held-out items (`models/validation.py`); a part of `native.c`. */

/* Users whose scores are computed at once, which fit the registers, and items side by side. */
enum { SCORED_USERS = 6, SCORED_ITEMS = 16 };

/* Items are in panels: [panel, column of the vectors, item of the panel]. */
INLINE void score_panel(
    const float *const *users, const float *panel, size_t width, float *scores, size_t stride) {
    /* Of one type, so that compilers keep the sums in registers. */
    typedef float Items __attribute__((vector_size(SCORED_ITEMS * sizeof(float))));
    Items sums[SCORED_USERS] = {{0}};
    for (size_t column = 0; column < width; column++) {
        Items items;
        memcpy(&items, panel + column * SCORED_ITEMS, sizeof items);
#pragma GCC unroll 6
        for (size_t user = 0; user < SCORED_USERS; user++)
            sums[user] += users[user][column] * items;
    }
    for (size_t user = 0; user < SCORED_USERS; user++)
        memcpy(scores + user * stride, sums + user, sizeof sums[user]);
}

INLINE int64_t count_from(const float *scores, size_t size, float least) {
    int32_t count = 0;
    for (size_t column = 0; column < size; column++) count += scores[column] >= least;
    return count;
}

/* The arguments of `count_better`. */
typedef struct {
    const float *users, *panels, *least;
    const int64_t *who, *starts, *training, *columns, *places, *own;
    int64_t *counts;
    size_t rows, width, items, pairs, trained, known;
} Ranking;

/* Put the training items of a user last; returns whether all numbers lie inside. */
INLINE int hide_training(const Ranking *r, size_t row, float *scores) {
    const int64_t start = r->starts[r->who[row]], stop = r->starts[r->who[row] + 1];
    if (start < 0 || stop > (int64_t)r->trained) return 0;
    for (int64_t place = start; place < stop; place++) {
        if ((uint64_t)r->training[place] >= r->known) return 0;
        const int64_t column = r->columns[r->training[place]];
        if (column >= (int64_t)r->items) return 0;
        if (column >= 0) scores[column] = -FLT_MAX;
    }
    return 1;
}

/* Returns whether all numbers lie inside. */
WITH_TRAINING_VARIANTS int count_better_of(const Ranking *r, float *scores) {
    const size_t stride = (r->items + SCORED_ITEMS - 1) / SCORED_ITEMS * SCORED_ITEMS;
    size_t pair = 0;
    for (size_t first = 0; first < r->rows; first += SCORED_USERS) {
        const float *users[SCORED_USERS];
        for (size_t user = 0; user < SCORED_USERS; user++) {
            const size_t row = first + user < r->rows ? first + user : r->rows - 1;
            users[user] = r->users + row * r->width;
        }
        for (size_t item = 0; item < stride; item += SCORED_ITEMS)
            score_panel(users, r->panels + item * r->width, r->width, scores + item, stride);
        for (size_t user = 0; user < SCORED_USERS && first + user < r->rows; user++) {
            float *row = scores + user * stride;
            if (!hide_training(r, first + user, row)) return 0;
            for (; pair < r->pairs && (size_t)r->places[pair] == first + user; pair++) {
                const int64_t own = r->own[pair];
                if (own >= (int64_t)r->items) return 0;
                r->counts[pair] = count_from(row, r->items, r->least[pair]) -
                                  (own >= 0 && row[own] >= r->least[pair]);
            }
        }
    }
    return pair == r->pairs;
}

/* How many items score at least as high as each pair's, by inner products, but for the training items
   of its user and its own: vectors of users, items in panels (see `score_panel`); the number of each
   user, where the training items of each number start, these items, and the column of each item (-1
   for none); the row of each pair, ascending, its own column, its score, its count; room for scores of
   six users; items */
METHOD(count_better, "ssllllllsLSz", a) {
    if (a[0].view.ndim != 2 || a[1].view.ndim != 3 || a[11].integer < 0) return SIZES;
    const size_t rows = (size_t)a[0].view.shape[0], width = (size_t)a[0].view.shape[1];
    const size_t panels = (size_t)a[1].view.shape[0], items = (size_t)a[11].integer;
    const size_t pairs = a[6].size;
    if ((size_t)a[1].view.shape[1] != width || a[1].view.shape[2] != SCORED_ITEMS ||
        panels != (items + SCORED_ITEMS - 1) / SCORED_ITEMS || a[2].size != rows ||
        a[7].size != pairs || a[8].size != pairs || a[9].size != pairs || !a[3].size ||
        a[10].size != SCORED_USERS * SCORED_ITEMS * panels)
        return SIZES;
    if (!are_rows(a + 2, a[3].size - 1)) return OUTSIDE;
    const Ranking ranking = {
        a[0].data, a[1].data, a[8].data, a[2].data, a[3].data, a[4].data, a[5].data, a[6].data,
        a[7].data, a[9].data, rows, width, items, pairs, a[4].size, a[5].size};
    return count_better_of(&ranking, a[10].data) ? NULL : OUTSIDE;
}
