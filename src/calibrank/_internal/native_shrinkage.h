/* Loops that fit changes of log odds by segment; a part of `native.c`. */

/* Cells of a segment handled at a time. */
#define CELLS ((size_t)64)

/* The problem of one segment, as in `curves/_shrinkage.py`. */
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

/* The log loss of all cells, whose log odds change by an intercept and a slope per segment. This
   loop and the next give an error, in the middle of the work, if a segment has cells beyond the
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
   deviations `tau` and `kappa` (0: stays 0), their posterior variances and covariance, and, unless
   `log_marginal` is NULL, its log marginal likelihood relative to no change. */
WITH_AVX512_VARIANT const char *find_modes(const Argument *a) {
    const double *positive = a[0].data, *total = a[1].data, *offset = a[2].data, *x = a[3].data;
    const int64_t *starts = a[4].data;
    const double *dispersion = a[5].data, tau = a[6].real, kappa = a[7].real;
    double *intercepts = a[10].data, *slopes = a[11].data, *variances = a[12].data;
    double *slope_variances = a[13].data, *covariances = a[14].data;
    double *log_marginal = a[15].data;
    const double precision_a = tau > 0 ? 1 / (tau * tau) : 0;
    const double precision_c = kappa > 0 ? 1 / (kappa * kappa) : 0;
    for (size_t number = 0; number < a[5].size; number++) {
        struct range range;
        if (find_range(starts + number, a[0].size, &range)) return OUTSIDE;
        const size_t first = range.first;
        const struct segment problem = {
            positive + first, total + first, offset + first, x + first,
            range.stop - first, dispersion[number]};
        double point[2], at[5];
        find_mode(&problem, precision_a, precision_c, (int)a[8].integer, a[9].real, point, at);
        /* Relative to the prior precision, so that both limits of 0 are exact. */
        const double aa = 1 + at[2] * tau * tau;
        const double cc = 1 + at[4] * kappa * kappa;
        const double ac = at[3] * tau * kappa;
        const double determinant = aa * cc - ac * ac;
        intercepts[number] = point[0];
        slopes[number] = point[1];
        variances[number] = tau * tau * cc / determinant;
        slope_variances[number] = kappa * kappa * aa / determinant;
        covariances[number] = -tau * kappa * ac / determinant;
        if (log_marginal == NULL) continue;
        const double penalty =
            point[0] * point[0] * precision_a + point[1] * point[1] * precision_c;
        /* Rounding may leave the determinant just below 1. */
        log_marginal[number] = improvement(&problem, point[0], point[1]) - penalty / 2
                               - logarithm(determinant > 1 ? determinant : 1) / 2;
    }
    return NULL;
}

/* positive, total, offset, x, starts, dispersion, tau, kappa, most_steps, tolerance, intercepts,
   slopes, variances, slope_variances, covariances, log_marginal */
METHOD(segment_modes, "ddddldrrzrDDDDDO", a) {
    for (int column = 1; column < 4; column++)
        if (a[column].size != a[0].size) return SIZES;
    for (int column = 10; column < 16; column++)
        if (!has_rows(a + column, a[5].size)) return SIZES;
    return a[4].size != a[5].size + 1 ? SIZES : find_modes(a);
}
