/* Loops that sum rows by segment and bin of the score; a part of `native.c`. */

/* Set present[value - low] of every value; values are at least `low`. */
#define MARK_PRESENT(NAME, INTEGER)                                                                \
    EXPORT void NAME(const INTEGER *values, size_t rows, int64_t low, uint8_t *present) {          \
        for (size_t row = 0; row < rows; row++) present[values[row] - low] = 1;                    \
    }

MARK_PRESENT(mark_present_int32, int32_t)
MARK_PRESENT(mark_present_int64, int64_t)

/* Write table[value - low] of every value. */
#define LOOK_UP(NAME, INTEGER)                                                                     \
    EXPORT void NAME(                                                                              \
        const INTEGER *values, size_t rows, int64_t low, const int32_t *table,                     \
        int32_t *restrict result) {                                                                \
        for (size_t row = 0; row < rows; row++) result[row] = table[values[row] - low];            \
    }

LOOK_UP(look_up_int32, int32_t)
LOOK_UP(look_up_int64, int64_t)

#if defined(__GNUC__)
#define PREFETCH(ADDRESS) __builtin_prefetch(ADDRESS, 0, 2)
#else
#define PREFETCH(ADDRESS) ((void)0)
#endif

/* Texts looked up at a time. */
#define TEXT_BLOCK ((size_t)256)

/* A hash table of texts, with open addressing: a slot is 0, or has the high half of the hash of a text
   and, in its low half, 1 + the number of the text. The number of slots is a power of 2. */
struct texts {
    const int64_t *offsets;
    const uint8_t *bytes;
};

INLINE uint64_t hash_of(const uint8_t *text, size_t size) {
    const uint64_t odd = 0x9E3779B97F4A7C15;
    uint64_t hash = size * odd;
    while (size) {
        uint64_t part = 0;
        const size_t some = size < sizeof part ? size : sizeof part;
        memcpy(&part, text, some);
        hash = (hash ^ part) * odd;
        hash ^= hash >> 32;
        text += some;
        size -= some;
    }
    return hash * odd;
}

INLINE size_t first_slot(uint64_t hash, size_t count) { return (size_t)(hash >> 8) & (count - 1); }

/* The slot of a text, or the free one where it would go. */
INLINE size_t text_slot(
    const uint8_t *text, size_t size, uint64_t hash, const struct texts *known,
    const uint64_t *slots, size_t count) {
    size_t slot = first_slot(hash, count);
    for (; slots[slot]; slot = (slot + 1) & (count - 1)) {
        if (slots[slot] >> 32 != hash >> 32) continue;
        const size_t number = (size_t)(slots[slot] & 0xFFFFFFFF) - 1;
        const int64_t start = known->offsets[number];
        if ((size_t)(known->offsets[number + 1] - start) != size) continue;
        if (memcmp(known->bytes + start, text, size) == 0) break;
    }
    return slot;
}

/* Insert the texts from number `first` on; of equal ones, the first. */
EXPORT void insert_texts(
    const int64_t *offsets, const uint8_t *bytes, size_t first, size_t stop, uint64_t *slots,
    size_t count) {
    const struct texts known = {offsets, bytes};
    for (size_t number = first; number < stop; number++) {
        const uint8_t *text = bytes + offsets[number];
        const size_t size = (size_t)(offsets[number + 1] - offsets[number]);
        const uint64_t hash = hash_of(text, size);
        const size_t slot = text_slot(text, size, hash, &known, slots, count);
        if (!slots[slot]) slots[slot] = (hash >> 32 << 32) | (uint64_t)(number + 1);
    }
}

/* The number of each text among the known ones, or -1. Slots and known texts are outside of the cache,
   so all that a block of texts will need is requested first. */
EXPORT void find_texts(
    const int64_t *offsets, const uint8_t *bytes, size_t texts, const int64_t *known_offsets,
    const uint8_t *known_bytes, const uint64_t *slots, size_t count, int32_t *restrict numbers) {
    const struct texts known = {known_offsets, known_bytes};
    uint64_t hashes[TEXT_BLOCK];
    for (size_t start = 0; start < texts; start += TEXT_BLOCK) {
        const size_t some = texts - start < TEXT_BLOCK ? texts - start : TEXT_BLOCK;
        const int64_t *first = offsets + start;
        for (size_t text = 0; text < some; text++) {
            hashes[text] = hash_of(bytes + first[text], (size_t)(first[text + 1] - first[text]));
            PREFETCH(slots + first_slot(hashes[text], count));
        }
        for (size_t text = 0; text < some; text++) {
            const uint64_t slot = slots[first_slot(hashes[text], count)];
            numbers[start + text] = (int32_t)(slot & 0xFFFFFFFF) - 1;
            if (slot) PREFETCH(known_offsets + numbers[start + text]);
        }
        for (size_t text = 0; text < some; text++)
            if (numbers[start + text] >= 0)
                PREFETCH(known_bytes + known_offsets[numbers[start + text]]);
        for (size_t text = 0; text < some; text++) {
            const size_t size = (size_t)(first[text + 1] - first[text]);
            const uint64_t hash = hashes[text];
            const size_t slot = text_slot(bytes + first[text], size, hash, &known, slots, count);
            numbers[start + text] = (int32_t)(slots[slot] & 0xFFFFFFFF) - 1;
        }
    }
}

/* Bins of the score per segment; `summary/_segment_native.py` has the same number. */
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
   have the same slot. */
INLINE int32_t slot_of(const struct bins *bins, double score) {
    const double last = (double)(SLOTS - 1);
    double place = (score - bins->low) * bins->scale;
    place = place > 0 ? place : 0;
    return (int32_t)(place < last ? place : last);
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

/* Add rows to sums by segment, as in `summary/_segment_cells.py`:
     cells       positive, total, total * score, by segment and bin of the score
     by_segment  positive^2, total^2, rows
   Returns 1, in the middle of the work, if a number is out of range. */
#define POOL_SEGMENTS(NAME, FLOAT, FIND)                                                           \
    WITH_AVX2_VARIANT EXPORT int NAME(                                                             \
        const FLOAT *scores, size_t rows, const int32_t *codes, const int32_t *numbers,            \
        size_t known, const void *positive, int positive_type, const double *edges,                \
        size_t edge_count, size_t count, const void *total, int total_type,                        \
        double *restrict cells, double *restrict by_segment) {                                     \
        int64_t found[SEGMENT_BLOCK];                                                              \
        struct segments segments = {numbers, known, count, {{0}, 0, 0, {0}}};                      \
        place_bins(&segments.bins, edges, edge_count);                                             \
        for (size_t start = 0; start < rows; start += SEGMENT_BLOCK) {                             \
            const size_t left = rows - start;                                                      \
            const size_t some = left < SEGMENT_BLOCK ? left : SEGMENT_BLOCK;                       \
            const size_t bytes = 3 * sizeof *cells;                                                \
            if (FIND(scores + start, codes + start, some, &segments, cells, bytes, found))         \
                return 1;                                                                          \
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
        return 0;                                                                                  \
    }

POOL_SEGMENTS(pool_segments_float32, float, find_cells_float32)
POOL_SEGMENTS(pool_segments_float64, double, find_cells_float64)

/* A cell of rows without weights: two thirds of the size, which is what a row waits for. */
struct count {
    double moment;
    uint32_t rows, positives;
};

/* As above, for labels of 0 and 1 in `positive`, of fewer than 2^32 rows. */
#define COUNT_SEGMENTS(NAME, FLOAT, FIND)                                                          \
    WITH_AVX2_VARIANT EXPORT int NAME(                                                             \
        const FLOAT *scores, size_t rows, const int32_t *codes, const int32_t *numbers,            \
        size_t known, const void *positive, int positive_type, const double *edges,                \
        size_t edge_count, size_t count, struct count *restrict cells) {                           \
        int64_t found[SEGMENT_BLOCK];                                                              \
        struct count left_out = {0, 0, 0};                                                         \
        struct segments segments = {numbers, known, count, {{0}, 0, 0, {0}}};                      \
        place_bins(&segments.bins, edges, edge_count);                                             \
        for (size_t start = 0; start < rows; start += SEGMENT_BLOCK) {                             \
            const size_t left = rows - start;                                                      \
            const size_t some = left < SEGMENT_BLOCK ? left : SEGMENT_BLOCK;                       \
            const size_t bytes = sizeof *cells;                                                    \
            if (FIND(scores + start, codes + start, some, &segments, cells, bytes, found))         \
                return 1;                                                                          \
            for (size_t row = 0; row < some; row++) {                                              \
                struct count *cell = found[row] < 0 ? &left_out : cells + found[row];              \
                cell->moment += scores[start + row];                                               \
                cell->rows += 1;                                                                   \
                cell->positives += positive_type != ABSENT                                         \
                                   && value_at(positive, positive_type, start + row) != 0;         \
            }                                                                                      \
        }                                                                                          \
        return 0;                                                                                  \
    }

COUNT_SEGMENTS(count_segments_float32, float, find_cells_float32)
COUNT_SEGMENTS(count_segments_float64, double, find_cells_float64)

/* Add counts to as many cells. */
EXPORT void add_counts(const struct count *counts, size_t size, double *restrict cells) {
    for (size_t cell = 0; cell < size; cell++) {
        cells[3 * cell] += counts[cell].positives;
        cells[3 * cell + 1] += counts[cell].rows;
        cells[3 * cell + 2] += counts[cell].moment;
    }
}

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

/* Two types of cells, for the loops below. */
struct sums {
    double positives, rows, moment;
};

/* The number of cells of each segment that have rows. */
#define COUNT_OCCUPIED(NAME, CELL)                                                                 \
    EXPORT void NAME(const CELL *cells, size_t segments, int64_t *restrict sizes) {                \
        for (size_t segment = 0; segment < segments; segment++) {                                  \
            const CELL *first = cells + SEGMENT_BINS * segment;                                    \
            int64_t size = 0;                                                                      \
            for (size_t bin = 0; bin < SEGMENT_BINS; bin++) size += first[bin].rows > 0;           \
            sizes[segment] = size;                                                                 \
        }                                                                                          \
    }

COUNT_OCCUPIED(count_occupied_cells, struct sums)
COUNT_OCCUPIED(count_occupied_counts, struct count)

/* Copy the cells that have rows, those of one segment after the other: positive, total and mean
   score. */
#define COPY_OCCUPIED(NAME, CELL)                                                                  \
    EXPORT void NAME(                                                                              \
        const CELL *cells, size_t segments, double *restrict positive, double *restrict total,     \
        double *restrict means) {                                                                  \
        size_t written = 0;                                                                        \
        for (size_t segment = 0; segment < segments; segment++) {                                  \
            /* Without branches; the last write may go to waste, here and not in the result. */    \
            double found[3][SEGMENT_BINS];                                                         \
            size_t size = 0;                                                                       \
            const CELL *first = cells + SEGMENT_BINS * segment;                                    \
            for (const CELL *cell = first; cell < first + SEGMENT_BINS; cell++) {                  \
                found[0][size] = cell->positives;                                                  \
                found[1][size] = cell->rows;                                                       \
                found[2][size] = cell->moment / cell->rows;                                        \
                size += cell->rows > 0;                                                            \
            }                                                                                      \
            memcpy(positive + written, found[0], size * sizeof(double));                           \
            memcpy(total + written, found[1], size * sizeof(double));                              \
            memcpy(means + written, found[2], size * sizeof(double));                              \
            written += size;                                                                       \
        }                                                                                          \
    }

COPY_OCCUPIED(copy_occupied_cells, struct sums)
COPY_OCCUPIED(copy_occupied_counts, struct count)
