/* Loops that sum rows by segment and bin of the score; a part of `native.c`. */

INLINE uint64_t integer_at(const void *values, int is_int32, size_t row) {
    return (uint64_t)(is_int32 ? ((const int32_t *)values)[row] : ((const int64_t *)values)[row]);
}

/* Set present[value - low] of every value: values, low, present */
METHOD(mark_present, "nzM", a) {
    const void *values = a[0].data;
    int8_t *present = a[2].data;
    const int is_int32 = a[0].type == INT32;
    const size_t rows = a[0].size, size = a[2].size;
    const uint64_t low = (uint64_t)a[1].integer;
    for (size_t row = 0; row < rows; row++) {
        const uint64_t place = integer_at(values, is_int32, row) - low;
        if (place >= size) return OUTSIDE;
        present[place] = 1;
    }
    return NULL;
}

/* Write table[value - low] of every value: values, low, table, result */
METHOD(look_up, "nziI", a) {
    const void *values = a[0].data;
    const int32_t *table = a[2].data;
    int32_t *restrict result = a[3].data;
    const int is_int32 = a[0].type == INT32;
    const size_t rows = a[0].size, size = a[2].size;
    const uint64_t low = (uint64_t)a[1].integer;
    if (a[3].size != rows) return SIZES;
    for (size_t row = 0; row < rows; row++) {
        const uint64_t place = integer_at(values, is_int32, row) - low;
        if (place >= size) return OUTSIDE;
        result[row] = table[place];
    }
    return NULL;
}

#if defined(__GNUC__)
#define PREFETCH(ADDRESS) __builtin_prefetch((const void *)(ADDRESS), 0, 2)
#else
#define PREFETCH(ADDRESS) ((void)0)
#endif

/* Texts looked up at a time. */
#define TEXT_BLOCK ((size_t)256)

/* Texts in the memory of Arrow: the bytes of text k are those from offsets[k] to offsets[k + 1]. */
struct texts {
    const int64_t *offsets;
    const uint8_t *bytes;
    size_t count, size; /* of texts and of bytes */
};

struct text {
    const uint8_t *bytes;
    size_t size;
};

/* Offsets that leave the bytes give an empty text. */
INLINE struct text text_at(const struct texts *texts, size_t number) {
    const uint64_t start = (uint64_t)texts->offsets[number];
    const uint64_t stop = (uint64_t)texts->offsets[number + 1];
    const struct text empty = {texts->bytes, 0};
    if (start > stop || stop > texts->size) return empty;
    const struct text found = {texts->bytes + start, stop - start};
    return found;
}

INLINE uint64_t hash_of(struct text text) {
    const uint64_t odd = 0x9E3779B97F4A7C15;
    uint64_t hash = text.size * odd;
    while (text.size) {
        uint64_t part = 0;
        const size_t some = text.size < sizeof part ? text.size : sizeof part;
        memcpy(&part, text.bytes, some);
        hash = (hash ^ part) * odd;
        hash ^= hash >> 32;
        text.bytes += some;
        text.size -= some;
    }
    return hash * odd;
}

/* A hash table of texts, with open addressing: a slot is 0, or has the high half of the hash of a text
   and, in its low half, 1 + the number of the text. The number of slots is a power of 2. */
struct table {
    struct texts texts;
    uint64_t *slots;
    size_t count;
};

INLINE uint64_t *first_slot(const struct table *table, uint64_t hash) {
    return table->slots + ((size_t)(hash >> 8) & (table->count - 1));
}

/* The number of the text in a slot, or -1. */
INLINE int32_t number_in(const struct table *table, const uint64_t *slot) {
    const uint64_t number = *slot & 0xFFFFFFFF;
    return number <= table->texts.count ? (int32_t)number - 1 : -1;
}

/* The slot of a text, or the free one where it would go; NULL if there is none. */
INLINE uint64_t *slot_of_text(const struct table *table, struct text text, uint64_t hash) {
    uint64_t *slot = first_slot(table, hash);
    for (size_t tried = 0; tried < table->count; tried++) {
        if (!*slot) return slot;
        const int32_t number = *slot >> 32 == hash >> 32 ? number_in(table, slot) : -1;
        if (number >= 0) {
            const struct text known = text_at(&table->texts, (size_t)number);
            if (known.size == text.size && !memcmp(known.bytes, text.bytes, text.size)) return slot;
        }
        slot = slot + 1 < table->slots + table->count ? slot + 1 : table->slots;
    }
    return NULL;
}

static struct texts texts_of(const Argument *offsets, const Argument *bytes) {
    const struct texts result = {offsets->data, bytes->data, offsets->size - 1, bytes->size};
    return result;
}

static int has_slots(const Argument *slots, const Argument *offsets) {
    const size_t size = slots->size;
    return size && !(size & (size - 1)) && offsets->size && offsets->size <= INT32_MAX;
}

/* Insert the texts from number `first` on, once each: offsets, bytes, first, slots */
METHOD(insert_texts, "ltzU", a) {
    const struct table table = {texts_of(a, a + 1), a[3].data, a[3].size};
    if (!has_slots(a + 3, a)) return SIZES;
    for (size_t number = (size_t)a[2].integer; number < table.texts.count; number++) {
        const struct text text = text_at(&table.texts, number);
        const uint64_t hash = hash_of(text);
        uint64_t *slot = slot_of_text(&table, text, hash);
        if (!slot) return SIZES;
        if (!*slot) *slot = (hash >> 32 << 32) | (uint64_t)(number + 1);
    }
    return NULL;
}

/* The number of each text among the known ones, or -1. Slots and known texts are outside of the
   cache, so all that a block of texts will need is requested first: offsets, bytes, known_offsets,
   known_bytes, slots, numbers */
METHOD(find_texts, "ltltuI", a) {
    const struct texts all = texts_of(a, a + 1), *texts = &all;
    const struct table known = {texts_of(a + 2, a + 3), a[4].data, a[4].size}, *table = &known;
    int32_t *restrict numbers = a[5].data;
    if (a[0].size != a[5].size + 1 || !has_slots(a + 4, a + 2)) return SIZES;
    uint64_t hashes[TEXT_BLOCK];
    for (size_t start = 0; start < texts->count; start += TEXT_BLOCK) {
        const size_t left = texts->count - start, some = left < TEXT_BLOCK ? left : TEXT_BLOCK;
        for (size_t text = 0; text < some; text++) {
            hashes[text] = hash_of(text_at(texts, start + text));
            PREFETCH(first_slot(table, hashes[text]));
        }
        for (size_t text = 0; text < some; text++) {
            numbers[start + text] = number_in(table, first_slot(table, hashes[text]));
            if (numbers[start + text] >= 0) PREFETCH(table->texts.offsets + numbers[start + text]);
        }
        for (size_t text = 0; text < some; text++)
            if (numbers[start + text] >= 0)
                PREFETCH((uintptr_t)known.texts.bytes +
                         (uintptr_t)known.texts.offsets[numbers[start + text]]);
        for (size_t text = 0; text < some; text++) {
            const uint64_t *slot =
                slot_of_text(table, text_at(texts, start + text), hashes[text]);
            numbers[start + text] = slot ? number_in(table, slot) : -1;
        }
    }
    return NULL;
}

/* Bins of the score per segment; `summary/_cells.py` has the same number. */
#define SEGMENT_BINS ((size_t)64)

/* Few enough rows that all cells prefetched for them stay in the second-level cache. */
#define SEGMENT_BLOCK ((size_t)1024)

/* The range of the edges in slots of equal width. Most have no edge, so that a score's slot has told
   its bin; where many edges share a slot, a search finds it. */
#define SLOTS ((size_t)4096)

struct bins {
    double edges[SEGMENT_BINS];
    double low, scale;
    uint8_t before[SLOTS + 1]; /* number of edges in earlier slots */
};

/* Rounding never reverses the order of two scores here, so an edge and a score that is equal to it
   have the same slot. NaN has one, too. */
INLINE int32_t slot_of(const struct bins *bins, double score) {
    const double last = (double)(SLOTS - 1);
    double place = (score - bins->low) * bins->scale;
    place = place > 0 ? place : 0;
    return (int32_t)(place < last ? place : last) & (int32_t)(SLOTS - 1);
}

static void place_bins(struct bins *bins, const double *edges, size_t count) {
    const double range = count ? edges[count - 1] - edges[0] : 0;
    const double scale = range > 0 ? (double)(SLOTS - 1) / range : 0;
    memcpy(bins->edges, edges, count * sizeof *edges);
    bins->low = count ? edges[0] : 0;
    bins->scale = scale < 1e250 ? scale : 0; /* times the largest score it stays finite */
    size_t edge = 0;
    for (size_t slot = 0; slot < SLOTS; slot++) {
        while (edge < count && (size_t)slot_of(bins, edges[edge]) < slot) edge++;
        bins->before[slot] = (uint8_t)edge;
    }
    bins->before[SLOTS] = (uint8_t)count;
}

/* The number of edges at or below a score, given its slot. */
INLINE size_t bin_of(const struct bins *bins, double score, int32_t slot) {
    size_t bin = bins->before[slot];
    size_t left = bins->before[slot + 1] - bin;
    while (left) {
        const size_t half = (left + 1) / 2;
        const int is_above = bins->edges[bin + half - 1] <= score;
        bin += is_above ? half : 0;
        left = is_above ? left - half : half - 1;
    }
    return bin;
}

/* Segments that rows belong to: `numbers` holds the segment of each code below `known`. */
struct segments {
    const int32_t *numbers;
    size_t known, count;
    struct bins bins;
};

/* The cell (bin of a segment) of each row of a block, or -1 where the segment is negative: such rows
   are left out. With 1e5 segments nearly every row's cell is outside of the cache, so all cells of
   a block are requested, from a table of so many bytes per cell, before the first is used. Returns
   1 if a number is out of range, which only a bug in the caller can cause. */
#define FIND_CELLS(NAME, FLOAT)                                                                    \
    INLINE int NAME(                                                                               \
        const FLOAT *scores, const int32_t *codes, size_t rows, const struct segments *segments,   \
        const void *table, size_t bytes, int64_t *cells) {                                         \
        int32_t slots[SEGMENT_BLOCK];                                                              \
        for (size_t row = 0; row < rows; row++)                                                    \
            slots[row] = slot_of(&segments->bins, scores[row]);                                    \
        for (size_t row = 0; row < rows; row++) {                                                  \
            const uint32_t code = (uint32_t)codes[row];                                            \
            if (code >= segments->known) return 1;                                                 \
            const int64_t segment = segments->numbers[code];                                       \
            if (segment >= (int64_t)segments->count) return 1;                                     \
            const size_t bin = bin_of(&segments->bins, scores[row], slots[row]);                   \
            cells[row] = segment < 0 ? -1 : segment * (int64_t)SEGMENT_BINS + (int64_t)bin;        \
            PREFETCH((const char *)table + bytes * (size_t)(segment < 0 ? 0 : cells[row]));        \
        }                                                                                          \
        return 0;                                                                                  \
    }

FIND_CELLS(find_cells_float32, float)
FIND_CELLS(find_cells_float64, double)

/* Add rows to sums by segment, as in `summary/_cells.py`:
     cells       positive, total, total * score, by segment and bin of the score
     by_segment  positive^2, total^2, rows
   An error, in the middle of the work, if a number is out of range. */
#define POOL_SEGMENTS(NAME, FLOAT, FIND)                                                           \
    WITH_AVX2_VARIANT const char *NAME(const Argument *a) {                                        \
        const FLOAT *scores = a[0].data;                                                           \
        const int32_t *codes = a[1].data;                                                          \
        const void *positive = a[3].data;                                                          \
        const int positive_type = a[3].type;                                                       \
        const size_t rows = a[0].size;                                                             \
        const void *total = a[5].data;                                                             \
        const int total_type = a[5].type;                                                          \
        double *restrict cells = a[6].data, *restrict by_segment = a[7].data;                      \
        int64_t found[SEGMENT_BLOCK];                                                              \
        struct segments segments = {a[2].data, a[2].size, a[7].size / 3, {{0}, 0, 0, {0}}};        \
        place_bins(&segments.bins, a[4].data, a[4].size);                                          \
        for (size_t start = 0; start < rows; start += SEGMENT_BLOCK) {                             \
            const size_t left = rows - start;                                                      \
            const size_t some = left < SEGMENT_BLOCK ? left : SEGMENT_BLOCK;                       \
            const size_t bytes = 3 * sizeof *cells;                                                \
            if (FIND(scores + start, codes + start, some, &segments, cells, bytes, found))         \
                return OUTSIDE;                                                                    \
            for (size_t row = 0; row < some; row++) {                                              \
                if (found[row] < 0) continue;                                                      \
                const double weight =                                                              \
                    total_type == ABSENT ? 1 : value_at(total, total_type, start + row);           \
                const double mass =                                                                \
                    positive_type == ABSENT ? 0 : value_at(positive, positive_type, start + row);  \
                double *sums = cells + 3 * (size_t)found[row];                                     \
                double *squares = by_segment + 3 * ((size_t)found[row] / SEGMENT_BINS);            \
                sums[0] += mass;                                                                   \
                sums[1] += weight;                                                                 \
                sums[2] += weight * scores[start + row];                                           \
                squares[0] += mass * mass;                                                         \
                squares[1] += weight * weight;                                                     \
                squares[2] += 1;                                                                   \
            }                                                                                      \
        }                                                                                          \
        return NULL;                                                                               \
    }

POOL_SEGMENTS(pool_segments_float32, float, find_cells_float32)
POOL_SEGMENTS(pool_segments_float64, double, find_cells_float64)

/* Whether rows of scores, codes, numbers of segments, positive and edges can be summed. */
static int has_segments(const Argument *a) {
    return a[1].size == a[0].size && has_rows(a + 3, a[0].size) && a[4].size < SEGMENT_BINS;
}

/* scores, codes, numbers, positive, edges, total, cells, by_segment */
METHOD(pool_segments, "fiicdcDD", a) {
    if (!has_segments(a) || !has_rows(a + 5, a[0].size)) return SIZES;
    if (a[7].size % 3 || a[6].size != SEGMENT_BINS * a[7].size) return SIZES;
    return a[0].type == FLOAT32 ? pool_segments_float32(a) : pool_segments_float64(a);
}

/* A cell of rows without weights: two thirds of the size, which is what a row waits for. */
struct count {
    double moment;
    uint32_t rows, positives;
};

/* As above, for labels of 0 and 1 in `positive`, of fewer than 2^32 rows. */
#define COUNT_SEGMENTS(NAME, FLOAT, FIND)                                                          \
    WITH_AVX2_VARIANT const char *NAME(const Argument *a) {                                        \
        const FLOAT *scores = a[0].data;                                                           \
        const int32_t *codes = a[1].data;                                                          \
        const void *positive = a[3].data;                                                          \
        const int positive_type = a[3].type;                                                       \
        const size_t rows = a[0].size;                                                             \
        struct count *restrict cells = a[5].data;                                                  \
        const size_t count = a[5].size / 2 / SEGMENT_BINS;                                         \
        int64_t found[SEGMENT_BLOCK];                                                              \
        struct count left_out = {0, 0, 0};                                                         \
        struct segments segments = {a[2].data, a[2].size, count, {{0}, 0, 0, {0}}};                \
        place_bins(&segments.bins, a[4].data, a[4].size);                                          \
        for (size_t start = 0; start < rows; start += SEGMENT_BLOCK) {                             \
            const size_t left = rows - start;                                                      \
            const size_t some = left < SEGMENT_BLOCK ? left : SEGMENT_BLOCK;                       \
            const size_t bytes = sizeof *cells;                                                    \
            if (FIND(scores + start, codes + start, some, &segments, cells, bytes, found))         \
                return OUTSIDE;                                                                    \
            for (size_t row = 0; row < some; row++) {                                              \
                struct count *cell = found[row] < 0 ? &left_out : cells + found[row];              \
                cell->moment += scores[start + row];                                               \
                cell->rows += 1;                                                                   \
                cell->positives += positive_type != ABSENT                                         \
                                   && value_at(positive, positive_type, start + row) != 0;         \
            }                                                                                      \
        }                                                                                          \
        return NULL;                                                                               \
    }

COUNT_SEGMENTS(count_segments_float32, float, find_cells_float32)
COUNT_SEGMENTS(count_segments_float64, double, find_cells_float64)

/* scores, codes, numbers, positive, edges, counts */
METHOD(count_segments, "fiicdD", a) {
    if (!has_segments(a)) return SIZES;
    return a[0].type == FLOAT32 ? count_segments_float32(a) : count_segments_float64(a);
}

/* Add counts to as many cells: counts, cells */
METHOD(add_counts, "dD", a) {
    const struct count *counts = a[0].data;
    double *restrict cells = a[1].data;
    if (a[0].size % 2 || a[1].size < a[0].size / 2 * 3) return SIZES;
    for (size_t cell = 0; cell < a[0].size / 2; cell++) {
        cells[3 * cell] += counts[cell].positives;
        cells[3 * cell + 1] += counts[cell].rows;
        cells[3 * cell + 2] += counts[cell].moment;
    }
    return NULL;
}

/* The sums of a cell of rows with weights. */
struct sums {
    double positives, rows, moment;
};

/* The numbers of a cell, which is the last axis: 2 for counts, 3 for sums, otherwise 0. */
static size_t width_of(const Argument *cells) {
    const Py_buffer *view = &cells->view;
    if (view->ndim != 3 || (size_t)view->shape[1] != SEGMENT_BINS) return 0;
    return view->shape[2] == 2 || view->shape[2] == 3 ? (size_t)view->shape[2] : 0;
}

static size_t segments_of(const Argument *cells) { return (size_t)cells->view.shape[0]; }

/* Loops over the cells of segments, for both types of cells:
   - add the cells of some segments to those of others, which are given by their numbers
   - count the cells of each segment that have rows
   - copy the cells that have rows, those of one segment after the other: positive, total and mean
     score */
#define LOOPS_OVER_CELLS(ADD, COUNT, COPY, CELL)                                                   \
    static const char *ADD(const Argument *a) {                                                    \
        const int32_t *numbers = a[1].data;                                                        \
        for (size_t segment = 0; segment < a[1].size; segment++) {                                 \
            const size_t number = (uint32_t)numbers[segment];                                      \
            if (number >= segments_of(a + 2)) return OUTSIDE;                                      \
            const CELL *from = (const CELL *)a[0].data + SEGMENT_BINS * segment;                   \
            CELL *restrict to = (CELL *)a[2].data + SEGMENT_BINS * number;                         \
            for (size_t bin = 0; bin < SEGMENT_BINS; bin++) {                                      \
                to[bin].moment += from[bin].moment;                                                \
                to[bin].rows += from[bin].rows;                                                    \
                to[bin].positives += from[bin].positives;                                          \
            }                                                                                      \
        }                                                                                          \
        return NULL;                                                                               \
    }                                                                                              \
                                                                                                   \
    static const char *COUNT(const Argument *a) {                                                  \
        int64_t *restrict sizes = a[1].data;                                                       \
        for (size_t segment = 0; segment < a[1].size; segment++) {                                 \
            const CELL *first = (const CELL *)a[0].data + SEGMENT_BINS * segment;                  \
            int64_t size = 0;                                                                      \
            for (size_t bin = 0; bin < SEGMENT_BINS; bin++) size += first[bin].rows > 0;           \
            sizes[segment] = size;                                                                 \
        }                                                                                          \
        return NULL;                                                                               \
    }                                                                                              \
                                                                                                   \
    static const char *COPY(const Argument *a) {                                                   \
        size_t written = 0;                                                                        \
        for (size_t segment = 0; segment < segments_of(a); segment++) {                            \
            /* Without branches; the last write may go to waste, here and not in the result. */    \
            double found[3][SEGMENT_BINS];                                                         \
            size_t size = 0;                                                                       \
            const CELL *first = (const CELL *)a[0].data + SEGMENT_BINS * segment;                  \
            for (const CELL *cell = first; cell < first + SEGMENT_BINS; cell++) {                  \
                found[0][size] = cell->positives;                                                  \
                found[1][size] = cell->rows;                                                       \
                found[2][size] = cell->moment / cell->rows;                                        \
                size += cell->rows > 0;                                                            \
            }                                                                                      \
            if (size > a[1].size - written) return SIZES;                                          \
            for (int part = 0; part < 3; part++)                                                   \
                memcpy((double *)a[1 + part].data + written, found[part], size * sizeof(double));  \
            written += size;                                                                       \
        }                                                                                          \
        return NULL;                                                                               \
    }

LOOPS_OVER_CELLS(add_sums, count_occupied_sums, copy_occupied_sums, struct sums)
LOOPS_OVER_CELLS(merge_counts, count_occupied_counts, copy_occupied_counts, struct count)

/* cells, numbers, result */
METHOD(add_cells, "diD", a) {
    const size_t width = width_of(a);
    if (!width || width_of(a + 2) != width || segments_of(a) != a[1].size) return SIZES;
    return width == 2 ? merge_counts(a) : add_sums(a);
}

/* cells, sizes */
METHOD(count_occupied, "dL", a) {
    if (!width_of(a) || segments_of(a) != a[1].size) return SIZES;
    return width_of(a) == 2 ? count_occupied_counts(a) : count_occupied_sums(a);
}

/* cells, positive, total, means */
METHOD(copy_occupied, "dDDD", a) {
    if (!width_of(a) || a[2].size != a[1].size || a[3].size != a[1].size) return SIZES;
    return width_of(a) == 2 ? copy_occupied_counts(a) : copy_occupied_sums(a);
}
