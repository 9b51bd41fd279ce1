/* Loops that fit changes of log odds by segment; a part of `native.c`. */

/* Cells of a segment handled at a time: sums over them have one part per lane, so that loops over
   lanes vectorise. */
enum { LANES = 8 };

/* The problem of one segment, as in `terms/_modes.py`. */
struct segment {
    const double *columns[4]; /* positive, total, offset, x */
    size_t cells;
    size_t room; /* cells up to the end of the columns: those of other segments follow */
    double scale; /* 1 / dispersion */
};

struct lanes {
    const double *positive, *total, *offset, *x;
    double kept[LANES]; /* 0 for lanes beyond the last cell */
    double padded[4][LANES];
};

/* Cells from number `start` on. */
INLINE void take_lanes(const struct segment *problem, size_t start, struct lanes *result) {
    const double *from[4];
    for (int column = 0; column < 4; column++) from[column] = problem->columns[column] + start;
    if (problem->room - start < LANES)
        for (int column = 0; column < 4; column++) {
            memset(result->padded[column], 0, sizeof result->padded[column]);
            memcpy(result->padded[column], from[column], (problem->room - start) * sizeof(double));
            from[column] = result->padded[column];
        }
    const int left = problem->cells - start < LANES ? (int)(problem->cells - start) : LANES;
    for (int lane = 0; lane < LANES; lane++) result->kept[lane] = lane < left ? 1.0 : 0.0;
    result->positive = from[0];
    result->total = from[1];
    result->offset = from[2];
    result->x = from[3];
}

INLINE double sum_of(const double *lanes) {
    const double first = (lanes[0] + lanes[4]) + (lanes[1] + lanes[5]);
    return first + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

/* Gradient (2 numbers) and Hessian (3) of a segment's loss at a change of its log odds. */
INLINE void derivatives(
    const struct segment *problem, double intercept, double slope, double *result) {
    double g_a[LANES] = {0}, g_c[LANES] = {0};
    double h_aa[LANES] = {0}, h_ac[LANES] = {0}, h_cc[LANES] = {0};
    for (size_t start = 0; start < problem->cells; start += LANES) {
        struct lanes cells;
        take_lanes(problem, start, &cells);
        for (int lane = 0; lane < LANES; lane++) {
            const double x = cells.x[lane];
            const double p = sigmoid(cells.offset[lane] + intercept + slope * x);
            const double mass = cells.kept[lane] * cells.total[lane] * p;
            const double residual = mass - cells.kept[lane] * cells.positive[lane];
            const double weight = mass * (1 - p);
            g_a[lane] += residual;
            g_c[lane] += residual * x;
            h_aa[lane] += weight;
            h_ac[lane] += weight * x;
            h_cc[lane] += weight * x * x;
        }
    }
    const double *sums[5] = {g_a, g_c, h_aa, h_ac, h_cc};
    for (int number = 0; number < 5; number++)
        result[number] = problem->scale * sum_of(sums[number]);
}

/* The log loss of a negative, log(1 + e^z); that of a positive is lower by z. */
INLINE double log_loss(double z) { return (z > 0 ? z : 0) + log1p_exp(z); }

/* The cells of segment g are those from starts[g] to starts[g + 1]. */
struct range {
    size_t first, stop;
};

/* Returns 1 if they are not all among so many cells. */
static inline int find_range(const int64_t *starts, size_t cells, struct range *range) {
    range->first = (size_t)starts[0];
    range->stop = (size_t)starts[1];
    return range->first > range->stop || range->stop > cells;
}

/* Cells whose losses are computed before they are added. */
#define CELLS ((size_t)64)

/* The log loss of all cells, whose log odds change by an intercept and a slope per segment. This
   loop and the next two give an error, in the middle of the work, if a segment has cells beyond the
   last. */
WITH_AVX512_VARIANT const char *sum_losses(const Argument *a) {
    const double *positive = a[0].data, *total = a[1].data, *log_odds = a[2].data;
    const int64_t *starts = a[3].data;
    const double *intercepts = a[4].data, *slopes = a[5].data;
    double losses[CELLS];
    double sum = 0;
    for (size_t segment = 0; segment < a[4].size; segment++) {
        struct range range;
        if (find_range(starts + segment, a[0].size, &range)) return OUTSIDE;
        for (size_t start = range.first; start < range.stop; start += CELLS) {
            const size_t left = range.stop - start;
            const size_t count = left < CELLS ? left : CELLS;
            for (size_t cell = 0; cell < count; cell++) {
                const double z = intercepts[segment] + slopes[segment] * log_odds[start + cell];
                losses[cell] = total[start + cell] * log_loss(z) - positive[start + cell] * z;
            }
            for (size_t cell = 0; cell < count; cell++) sum += losses[cell];
        }
    }
    *(double *)a[6].data = sum;
    return NULL;
}

/* positive, total, log_odds, starts, intercepts, slopes, loss */
METHOD(changed_loss, "dddlddD", a) {
    const size_t cells = a[0].size, segments = a[4].size;
    if (a[1].size != cells || a[2].size != cells || a[3].size != segments + 1) return SIZES;
    return a[5].size != segments || a[6].size != 1 ? SIZES : sum_losses(a);
}

/* The loss of a segment with a change. */
INLINE double loss_of(const struct segment *problem, double intercept, double slope) {
    double sums[LANES] = {0};
    for (size_t start = 0; start < problem->cells; start += LANES) {
        struct lanes cells;
        take_lanes(problem, start, &cells);
        for (int lane = 0; lane < LANES; lane++) {
            const double z = cells.offset[lane] + intercept + slope * cells.x[lane];
            const double loss = cells.total[lane] * log_loss(z) - cells.positive[lane] * z;
            sums[lane] += cells.kept[lane] * loss;
        }
    }
    return problem->scale * sum_of(sums);
}

/* The prior of a segment's change: intercept ~ N(mean, tau^2), slope ~ N(0, kappa^2). */
struct prior {
    double tau, kappa, mean;
};

struct mode {
    double u, v;           /* intercept = mean + tau u, slope = kappa v */
    double h_uu, h_uv, h_vv; /* Hessian of the loss and the prior, by u and v */
    double g_u, g_v;
};

INLINE struct mode mode_at(
    const struct segment *problem, const struct prior *prior, double u, double v) {
    const double tau = prior->tau, kappa = prior->kappa;
    double at[5];
    derivatives(problem, prior->mean + tau * u, kappa * v, at);
    const struct mode result = {
        u, v, 1 + tau * tau * at[2], tau * kappa * at[3], 1 + kappa * kappa * at[4],
        tau * at[0] + u, kappa * at[1] + v};
    return result;
}

/* Newton's method for the posterior mode of one segment, from given u and v on. The prior of both is
   standard normal, so that a standard deviation of 0 needs no case of its own. */
INLINE struct mode find_mode(
    const struct segment *problem, const struct prior *prior, double u, double v) {
    const int most_steps = 50;
    /* A step of this size is not worth the derivatives after it: they change by less. */
    const double tolerance = 1e-10;
    struct mode at = mode_at(problem, prior, u, v);
    for (int step = 0; step < most_steps; step++) {
        const double determinant = at.h_uu * at.h_vv - at.h_uv * at.h_uv;
        double step_u = (at.h_vv * at.g_u - at.h_uv * at.g_v) / determinant;
        double step_v = (at.h_uu * at.g_v - at.h_uv * at.g_u) / determinant;
        if (fabs(step_u) * prior->tau < tolerance && fabs(step_v) * prior->kappa < tolerance) {
            at.u -= step_u;
            at.v -= step_v;
            break;
        }
        /* The loss is convex: a step is too long if the loss increases at its end nearly as fast as
           it decreases at its start. */
        double descent = at.g_u * step_u + at.g_v * step_v;
        struct mode next = at;
        for (int halved = 0; halved < most_steps; halved++) {
            next = mode_at(problem, prior, at.u - step_u, at.v - step_v);
            if (next.g_u * step_u + next.g_v * step_v >= -0.9 * descent) break;
            step_u /= 2;
            step_v /= 2;
            descent /= 2;
        }
        at = next;
    }
    return at;
}

/* Coordinates (a, b) in which the posterior covariance at a mode is 1. */
struct coordinates {
    double u, v; /* changes of u and v by a; b changes v alone */
    double other;
};

INLINE struct coordinates coordinates_at(const struct mode *at) {
    const double volume = at->h_uu * at->h_vv - at->h_uv * at->h_uv;
    const double u = sqrt(at->h_vv / volume);
    const struct coordinates result = {u, -at->h_uv / (volume * u), 1 / (u * sqrt(volume))};
    return result;
}

/* What the log marginal likelihood is above that of Laplace's approximation, by the next term of its
   expansion: Shun and McCullagh (1995), Eq. 2. The results are that of all, that of changes by a
   alone, and by how much b makes the mean of a larger. */
INLINE void expand(
    const struct segment *problem, const struct prior *prior, const struct mode *at,
    const struct coordinates *to, double *result) {
    const double own = prior->tau * to->u, turned = prior->kappa * to->v;
    const double other = prior->kappa * to->other;
    const double intercept = prior->mean + prior->tau * at->u, slope = prior->kappa * at->v;
    double third[4][LANES] = {{0}}, fourth[2][LANES] = {{0}};
    for (size_t start = 0; start < problem->cells; start += LANES) {
        struct lanes cells;
        take_lanes(problem, start, &cells);
        for (int lane = 0; lane < LANES; lane++) {
            const double x = cells.x[lane];
            const double p = sigmoid(cells.offset[lane] + intercept + slope * x);
            const double weight = cells.kept[lane] * cells.total[lane] * p * (1 - p);
            const double skew = weight * (1 - 2 * p), tail = weight * (1 - 6 * p * (1 - p));
            const double a = own + turned * x, b = other * x;
            const double aa = a * a, bb = b * b;
            third[0][lane] += skew * a * aa;
            third[1][lane] += skew * aa * b;
            third[2][lane] += skew * a * bb;
            third[3][lane] += skew * b * bb;
            fourth[0][lane] += tail * aa * aa;
            fourth[1][lane] += tail * (aa + bb) * (aa + bb);
        }
    }
    double sums[4];
    for (int kind = 0; kind < 4; kind++) sums[kind] = problem->scale * sum_of(third[kind]);
    const double first = sums[0] + sums[2], second = sums[1] + sums[3];
    const double squares = sums[0] * sums[0] + 3 * (sums[1] * sums[1] + sums[2] * sums[2])
        + sums[3] * sums[3];
    const double all = problem->scale * sum_of(fourth[1]);
    result[0] = (first * first + second * second - all) / 8 + squares / 12;
    result[1] = sums[0] * sums[0] * 5 / 24 - problem->scale * sum_of(fourth[0]) / 8;
    result[2] = -sums[2] / 2;
    result[3] = -sums[0] / 2;
}

/* What the log marginal likelihood, and the posterior mean of the intercept, are above those of
   Laplace's approximation. Where labels are few, the posterior is far from normal: it is integrated
   over a, and expanded in what is left. Gauss and Hermite's rule has nine nodes: expansions are
   wrong by 0.007 where a positive is rare, which adds up over a hundred thousand levels. */
INLINE void find_beyond(
    const struct segment *problem, const struct prior *prior, const struct mode *at, double loss,
    double *result) {
    static const double nodes[5] = {
        0, 1.0232556637891326, 2.07684797867783, 3.20542900285647, 4.512745863399783};
    static const double weights[5] = {
        0.40634920634920635, 0.24409750289493953, 0.04991640676521782, 0.0027891413212317692,
        2.2345844007746607e-05};
    const double smallest = 1e-3;
    const struct coordinates to = coordinates_at(at);
    double expanded[4];
    expand(problem, prior, at, &to, expanded);
    result[0] = expanded[0];
    result[1] = prior->tau * to.u * (expanded[2] + expanded[3]);
    if (fabs(expanded[0]) < smallest && fabs(expanded[1]) < smallest) return;
    double sum = 0, moment = 0;
    for (int place = -4; place <= 4; place++) {
        const double node = place < 0 ? -nodes[-place] : nodes[place];
        const double u = at->u + node * to.u, v = at->v + node * to.v;
        const double change = loss_of(problem, prior->mean + prior->tau * u, prior->kappa * v) - loss
            + (u * u + v * v - at->u * at->u - at->v * at->v - node * node) / 2;
        const double mass = weights[place < 0 ? -place : place] * exp(-change);
        sum += mass;
        moment += mass * node;
    }
    result[0] += log(sum) - expanded[1];
    result[1] += prior->tau * to.u * (moment / sum - expanded[3]);
}

/* The problem of a segment; returns 1 if it has cells beyond the last. */
static inline int find_segment(const Argument *a, size_t number, struct segment *problem) {
    struct range range;
    if (find_range((const int64_t *)a[4].data + number, a[0].size, &range)) return 1;
    for (int column = 0; column < 4; column++)
        problem->columns[column] = (const double *)a[column].data + range.first;
    problem->cells = range.stop - range.first;
    problem->room = a[0].size - range.first;
    problem->scale = 1 / ((const double *)a[5].data)[number];
    return 0;
}

/* For each prior and segment: the posterior mode of its intercept (less the prior's mean) and slope,
   their posterior variances and covariance, and, if asked for, its log marginal likelihood relative
   to no change, and how far its posterior mean is above the mode.
   The mode under one prior is where the search for that under the next starts. */
WITH_AVX512_VARIANT const char *find_modes(const Argument *a) {
    const struct prior *priors = a[6].data;
    const size_t segments = a[5].size;
    const int with_marginal = a[7].integer != 0;
    for (size_t number = 0; number < segments; number++) {
        struct segment problem;
        if (find_segment(a, number, &problem)) return OUTSIDE;
        const double before = with_marginal ? loss_of(&problem, 0, 0) : 0;
        double intercept = 0, slope = 0;
        for (size_t place = 0; place < a[6].size / 3; place++) {
            const struct prior prior = priors[place];
            const double tau = prior.tau, kappa = prior.kappa;
            const struct mode mode = find_mode(
                &problem, &prior, tau > 0 ? (intercept - prior.mean) / tau : 0,
                kappa > 0 ? slope / kappa : 0);
            intercept = prior.mean + tau * mode.u;
            slope = kappa * mode.v;
            const double determinant = mode.h_uu * mode.h_vv - mode.h_uv * mode.h_uv;
            /* Rounding may leave the determinant just below 1. */
            const double volume = logarithm(determinant > 1 ? determinant : 1);
            const double after = with_marginal ? loss_of(&problem, intercept, slope) : 0;
            double beyond[2] = {0};
            if (with_marginal) find_beyond(&problem, &prior, &mode, after, beyond);
            const double results[7] = {
                tau * mode.u, slope, tau * tau * mode.h_vv / determinant,
                kappa * kappa * mode.h_uu / determinant, -tau * kappa * mode.h_uv / determinant,
                before - after - (mode.u * mode.u + mode.v * mode.v + volume) / 2 + beyond[0],
                beyond[1]};
            double *to = (double *)a[8].data + 7 * place * segments + number;
            for (int kind = 0; kind < 7; kind++) to[(size_t)kind * segments] = results[kind];
        }
    }
    return NULL;
}

static int has_problem(const Argument *a) {
    for (int column = 1; column < 4; column++)
        if (a[column].size != a[0].size) return 0;
    return a[4].size == a[5].size + 1;
}

/* positive, total, offset, x, starts, dispersion, priors (tau, kappa and mean of each),
   with_marginal, result (7 numbers of all segments, one after the other, for each prior) */
METHOD(segment_modes, "ddddlddzD", a) {
    if (a[6].size % 3 || 3 * a[8].size != 7 * a[6].size * a[5].size) return SIZES;
    return has_problem(a) ? find_modes(a) : SIZES;
}

/* First derivative and curvature of each segment's log likelihood by its intercept. */
WITH_AVX512_VARIANT const char *find_slopes(const Argument *a) {
    double *slopes = a[7].data, *curvatures = a[8].data;
    for (size_t number = 0; number < a[5].size; number++) {
        struct segment problem;
        double at[5];
        if (find_segment(a, number, &problem)) return OUTSIDE;
        derivatives(&problem, a[6].real, 0, at);
        slopes[number] = -at[0];
        curvatures[number] = at[2];
    }
    return NULL;
}

/* positive, total, offset, x, starts, dispersion, intercept, slopes, curvatures */
METHOD(segment_slopes, "ddddldrDD", a) {
    if (a[7].size != a[5].size || a[8].size != a[5].size) return SIZES;
    return has_problem(a) ? find_slopes(a) : SIZES;
}

/* Add the rows of a matrix, times a weight each, to the rows of a table. */
INLINE const char *add_weighted_rows(const Argument *a, size_t width) {
    const double *weights = a[1].data, *matrix = a[2].data;
    const int is_int32 = a[0].type == INT32;
    const size_t rows = a[0].size;
    for (size_t row = 0; row < rows; row++) {
        const uint64_t place = integer_at(a[0].data, is_int32, row);
        if (place >= (size_t)a[3].view.shape[0]) return OUTSIDE;
        double *restrict sums = (double *)a[3].data + place * width;
        for (size_t column = 0; column < width; column++)
            sums[column] += weights[row] * matrix[row * width + column];
    }
    return NULL;
}

/* A loop over a few columns is faster if their number is known to the compiler. */
WITH_AVX2_VARIANT const char *add_rows_of_any_width(const Argument *a) {
    const size_t width = (size_t)a[2].view.shape[1];
    if (width == 3) return add_weighted_rows(a, 3);
    return width == 2 ? add_weighted_rows(a, 2) : add_weighted_rows(a, width);
}

/* places, weights, matrix, table */
METHOD(add_rows, "nddD", a) {
    const Py_buffer *matrix = &a[2].view, *table = &a[3].view;
    if (matrix->ndim != 2 || table->ndim != 2 || matrix->shape[1] != table->shape[1]) return SIZES;
    if (a[1].size != a[0].size || (size_t)matrix->shape[0] != a[0].size) return SIZES;
    return add_rows_of_any_width(a);
}
