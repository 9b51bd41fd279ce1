/* Exponentials and logarithms in float64, accurate to about 1e-16; a part of `native.c`.

   No function of the system's mathematics library is called, which loops could not vectorise. */

/* A function that is not inlined would be compiled for any processor, not for the loop's. */
#define INLINE static inline __attribute__((always_inline))

/* e^x = 2^k N / D, with k = round(x / ln 2) and |r| = |x - k ln 2| <= ln(2) / 2: N(r) / N(-r) is the
   Pade approximant of degree 6, with an error of 2e-19. Leaving it a fraction saves its division
   where it is part of another one. ln 2 is split so that k times its high part is exact (Cody and
   Waite). */
typedef struct { double numerator, denominator; } Fraction;

/* For x above -708.4 and up to 710, whose exponent bits are those of infinity. */
INLINE Fraction exponential_within(double x) {
    const double log2_e = 1.4426950408889634;
    const double ln2_high = 6.93147180369123816490e-01; /* 32 leading bits */
    const double ln2_low = 1.90821492927058770002e-10;
    const double rounder = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
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

INLINE Fraction exponential(double x) {
    /* Beyond these the exponent bits would overflow. At 710 the sigmoid is 0, as it is with the
       exponential of NumPy. */
    x = x > -708 ? x : -708;
    return exponential_within(x < 710 ? x : 710);
}

/* e^-|x| */
INLINE Fraction exponential_below(double x) {
    const double below = x > 0 ? -x : x;
    return exponential_within(below > -708 ? below : -708);
}

INLINE double sigmoid(double log_odds) {
    const Fraction odds_against = exponential(-log_odds);
    return odds_against.denominator / (odds_against.denominator + odds_against.numerator);
}

/* n / d for d from 1.67 to 3.3, without the divider, which takes longer than all else: 1 / d by a
   cubic polynomial, with an error of 2e-3, then 4e-9 by Halley's step, and the quotient corrected by
   its remainder. */
INLINE double quotient(double n, double d) {
    const double low = 1.7039004491722183 - 1.0674838853027615 * d;
    const double high = 0.29160835927294193 - 0.029336857069712466 * d;
    const double first = low + high * (d * d);
    const double error = 1 - first * d;
    const double inverse = first + first * (error + error * error);
    const double result = n * inverse;
    return result + (n - result * d) * inverse;
}

/* log(1 + f) = 2 atanh(s), s = f / (2 + f), for 1 + f from 1/sqrt(2) to sqrt(2): s times a
   polynomial in s^2, interpolated at Chebyshev nodes, with an error of 5e-18. */
INLINE double log_near_one(double s) {
    const double z = s * s;
    const double w = z * z;
    const double first = 0.666666666666667 + z * 0.39999999999899505;
    const double second = 0.28571428625975487 + z * 0.2222221113479508;
    const double third = 0.18182889125261723 + z * 0.15331721600556042;
    return s * (2 + z * (first + w * (second + w * (third + w * 0.14616449685043406))));
}

/* The logarithm of a number of at least 1 is power * log(2) + log_near_one(s). */
typedef struct { double power, s; } Factors;

INLINE Factors factors_of(double x) {
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
    const Factors result = {k - 4503599627370496.0, quotient(fraction - 1, fraction + 1)};
    return result;
}

INLINE double logarithm(double x) {
    const Factors factors = factors_of(x);
    const double low = factors.power * 1.90821492927058770002e-10 + log_near_one(factors.s);
    return factors.power * 6.93147180369123816490e-01 + low;
}

/* log(1 + e^-|x|) = 2 atanh(s), where s = n / (n + 2 d) if e^-|x| = n / d; up to s = 1/3, with an
   error of 8e-18. */
INLINE double log1p_exp_at(double s) {
    const double z = s * s;
    const double w = z * z;
    const double first = 0.6666666666666666 + z * 0.40000000000014585;
    const double second = 0.2857142856710876 + z * 0.22222222717427864;
    const double third = 0.18181789436132859 + z * 0.15385570064958623;
    const double fourth = 0.13314144209654935 + z * 0.12001072809590713;
    const double fifth = 0.08800738486144674 + z * 0.1616404561194353;
    return s * (2 + z * (first + w * (second + w * (third + w * (fourth + w * fifth)))));
}

INLINE double log1p_exp(double x) {
    const Fraction power = exponential_below(x);
    return log1p_exp_at(quotient(power.numerator, power.numerator + 2 * power.denominator));
}
