// Arithmetic of residues: scales of rows, entries as integers modulo p_1 … p_COUNT, and the remainder
// theorem. What it computes, `schemes/residues.py` says. COUNT: moduli; MODULI: these, largest first;
// COMPLEX: whether entries are complex.

#include "launch.cuh"

#ifndef COMPLEX
#define COMPLEX 0
#endif
#ifndef RECORD
#define RECORD 0  // whether what `schemes/crt.py` asks of rows is recorded
#define CLIP 0
#endif

constexpr int REALS = COMPLEX ? 2 : 1;  // of an entry

template <int I> struct Index {
    static constexpr int value = I;
};

// f(Index<0>()), …, f(Index<END − 1>()): so that what depends on the index is a constant.
template <int END, int I = 0, typename F> __device__ __forceinline__ void each(F f) {
    if constexpr (I < END) {
        f(Index<I>());
        each<END, I + 1>(f);
    }
}

__host__ __device__ constexpr int modulus(int index) {
    constexpr int all[] = {MODULI};
    return all[index];
}

// In [−p/2, p/2).
__host__ __device__ constexpr int symmetric(u64 number, int p) {
    const int rest = (int)(number % p);
    return 2 * rest >= p ? rest - p : rest;
}

__host__ __device__ constexpr u64 power_modulo(int exponent, int p) {
    u64 power = 1;
    for (int i = 0; i < exponent; i++) power = power * 2 % p;
    return power;
}

// ---- scales --------------------------------------------------------------------------------------

__device__ __forceinline__ double power(int exponent) {  // of two, in the normal range
    return __hiloint2double((exponent + 1023) << 20, 0);
}

// The largest |entry| of a row, by the bits of its parts. low: of entries whose upper half is 0.
struct Largest {
    u32 high = 0, low = 0;

    __device__ __forceinline__ void take(double x) {
        high = max(high, (u32)__double2hiint(x) & 0x7fffffff);
        low = max(low, (u32)__double2loint(x));
    }
    __device__ __forceinline__ void take(const Largest &other) {
        high = max(high, other.high);
        low = max(low, other.low);
    }
    __device__ __forceinline__ bool finite() const { return high < 0x7ff00000; }
    // Whether there is a scale: the row is neither zeros nor has it NaN or Inf.
    __device__ __forceinline__ bool scaled() const { return finite() && (high | low) != 0; }
    // Integers below 2^21 have no bit in their lower half. Exact where there is one row's largest.
    __device__ __forceinline__ bool may_be_small_integers() const {
        return low == 0 && high < (u32)(1023 + 21) << 20;
    }
    // e with 2^(e−1) ≤ |entry| < 2^e.
    __device__ __forceinline__ int exponent() const {
        if (high >= 1u << 20) return (int)(high >> 20) - 1022;
        return high ? -1010 - __clz(high) : -1042 - __clz(low);  // subnormal
    }
};

constexpr int ESTIMATE = 15;  // bits of a row's largest entry by which its norm is bounded

// ⌈|x| · 2^(15−e)⌉², an integer below 2^31.
struct Square {
    double one, two;

    __device__ __forceinline__ Square(int exponent) {
        const int shift = ESTIMATE - exponent, half = shift >> 1;
        one = power(half);
        two = power(shift - half);
    }
    // 2^52 + ⌈|x| · 2^(15−e)⌉, whose lower half is the integer.
    __device__ __forceinline__ double steps(double x) const {
        // Rounded up in each step, as all of it is: what is not 0 stays so.
        return __dadd_ru(__dmul_ru(__dmul_ru(fabs(x), one), two), 0x1p52);
    }
    __device__ __forceinline__ double operator()(double x) const {
        const double ceiling = __dadd_rn(steps(x), -0x1p52);
        return ceiling * ceiling;
    }
};

__device__ __forceinline__ void lower(u64 *place, double number) {  // to a number ≥ 0, if it is less
    const u64 bits = (u64)__double_as_longlong(number);
    if (bits < *(volatile u64 *)place) atomicMin(place, bits);
}

constexpr double ROUND = 0x1.8p52 + 0x1p31;  // x + ROUND has RN(x) + 2^31 in its lower half

// The largest entry and the largest of opposite sign, at least 0, if all are integers below 2^30.
struct Bounds {
    u32 largest = 0, opposite = 0;

    __device__ __forceinline__ void fail() { largest = 1u << 31; }
    __device__ __forceinline__ void take(double x) {
        const double sum = __dadd_rn(x, ROUND);
        const int whole = (int)((u32)__double2loint(sum) ^ 1u << 31);
        // Of |x| < 2^30 the sum's lower half is all of it: what is beyond, or NaN, is no sum of these.
        if (__dadd_rn(sum, -ROUND) != x || !(fabs(x) < 0x1p30)) fail();
        else if (whole > 0) largest = max(largest, (u32)whole);
        else opposite = max(opposite, (u32)-whole);
    }
    // Of all that were here, 2^40 less these, each a double: 0 where not all are such integers.
    __device__ __forceinline__ void record_warp(u64 *record) const {
        const u32 top = __reduce_max_sync(~0u, largest), bottom = __reduce_max_sync(~0u, opposite);
        if (threadIdx.x % 32) return;
        const bool failed = top >> 31;
        lower(record + 4, failed ? 0.0 : 0x1p40 - top);
        lower(record + 5, failed ? 0.0 : 0x1p40 - bottom);
    }
};

// Of y = ⌈|x| · 2^(15−e)⌉ and z = min(y, CLIP) of a row: Σ y, Σ z, Σ z². See `schemes/crt.py`.
struct Dense {
    u32 sum = 0, clipped = 0, squares = 0;

    // Adds an entry's facts to the record, if there is one, and returns y².
    __device__ __forceinline__ double take(double x, const Square &square) {
        if (!RECORD) return square(x);
        const double steps = square.steps(x);
        const u32 y = (u32)__double2loint(steps), z = min(y, (u32)CLIP);
        sum += y;
        clipped += z;
        squares += z * z;
        const double ceiling = __dadd_rn(steps, -0x1p52);
        return ceiling * ceiling;
    }
};

// The smallest agreements and shares of all rows that were here, each a double.
__device__ __forceinline__ void record_row(u64 *record, double k, double sum, double clipped,
                                           double clipped_squares, double squares) {
    double along = fmax(sum - k, 0.0);
    along = __dmul_rn(along, along);
    lower(record, __ddiv_rn(along, __dmul_rn(k, squares)));
    lower(record + 1, __ddiv_rn(along, __dmul_rn(k, squares)));
    along = fmax(clipped - k, 0.0);
    along = __dmul_rn(along, along);
    lower(record + 2, __ddiv_rn(along, __dmul_rn(k, clipped_squares)));
    lower(record + 3, __ddiv_rn(along, __dmul_rn(k, squares)));
}

__device__ __forceinline__ void record_unfit(u64 *record) {
    for (int i = 0; i < 6; i++) lower(record + i, 0);
}

// s = f + 15 − e, with the largest f for which sum · 4^f ≤ limit. sum > 0.
__device__ __forceinline__ int scale_of(int exponent, double sum, double limit) {
    const int difference = (__double2hiint(limit) >> 20) - (__double2hiint(sum) >> 20);
    const double top = __hiloint2double((__double2hiint(limit) & 0xfffff) | 0x3ff00000,
                                        __double2loint(limit));
    const double mine = __hiloint2double((__double2hiint(sum) & 0xfffff) | 0x3ff00000,
                                         __double2loint(sum));
    int f = difference >> 1;
    if ((difference & 1) == 0 && mine > top) f--;
    return f + ESTIMATE - exponent;
}

// ---- entries modulo p ----------------------------------------------------------------------------

constexpr int WORD_BITS = 28;  // of all words of an integer but the highest
#ifndef WORDS
#define WORDS 2
#endif

// x · 2^s, rounded, in words that are offset by 2^31: Σ (word_j − 2^31) · 2^(28 j).
struct Scale {
    double one, two;

    __device__ __forceinline__ Scale(int scale) {
        one = power(scale >> 1);  // what this loses of tiny entries, they lose anyway
        two = power(scale - (scale >> 1));
    }
    __device__ __forceinline__ void operator()(double x, u32 (&word)[WORDS]) const {
        double rest = __dmul_rn(__dmul_rn(x, one), two);
#pragma unroll
        for (int j = WORDS - 1; j > 0; j--) {
            constexpr double UNIT = 1 << WORD_BITS;
            double unit = UNIT;
            if (j == 2) unit *= UNIT;
            const double sum = __fma_rn(rest, 1 / unit, ROUND);
            word[j] = (u32)__double2loint(sum);
            rest = __fma_rn(__dadd_rn(sum, -ROUND), -unit, rest);
        }
        word[0] = (u32)__double2loint(__dadd_rn(rest, ROUND));
    }
};

__device__ __forceinline__ int dot(u32 bytes, u32 weights, int sum) {  // bytes without a sign
    int found;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(found) : "r"(bytes), "r"(weights), "r"(sum));
    return found;
}

// What the bytes of word j count modulo p, `factor` times.
__host__ __device__ constexpr u32 byte_weights(int p, int j, int factor) {
    u32 all = 0;
    for (int byte = 0; byte < 4; byte++) {
        const u64 count = power_modulo(WORD_BITS * j + 8 * byte, p) * factor;
        all |= (u32)(symmetric(count, p) & 255) << 8 * byte;
    }
    return all;
}

// A float next below `near` from which sums of weighted bytes begin, as an integer: what they are too
// large by, because of the offsets, is taken off modulo p. So the float is the integer modulo p, and
// sums, each below 2^19, leave it between 2^23 and 2^24, where its bits count units.
__host__ __device__ constexpr int start_of(int p, int factor, int near) {
    u64 offsets = 0;
    for (int j = 0; j < WORDS; j++) offsets += power_modulo(31 + WORD_BITS * j, p);
    return near - (int)((near + offsets * factor) % p);
}

constexpr int OF_FLOAT = 0x4b000000 - (1 << 23);  // bits of a float between 2^23 and 2^24, less it

// `sum`, and the weighted bytes of these words, `FACTOR` times.
template <int P, int FACTOR = 1>
__device__ __forceinline__ int weighted(const u32 (&word)[WORDS], int sum) {
    each<WORDS>([&](auto index) {
        constexpr int j = decltype(index)::value;
        constexpr u32 weights = byte_weights(P, j, FACTOR);
        sum = dot(word[j], weights, sum);
    });
    return sum;
}

// The residue in [−p/2, p/2), in the lowest byte, of a float by its bits; of complex entries it may be
// one beyond, within a byte.
template <int P> __device__ __forceinline__ u32 reduced(int bits) {
    constexpr float inverse = 1.0f / P;
    float number = __int_as_float(bits);
    // As a float, 1 / 255 is off by nearly half a unit: of numbers near 2^23 that is too much.
    if constexpr (P == 255) number -= 255 * 256 * 136;
    // quotient = RN(number / p) in the bits of a float, whose other bits are 0 modulo 256.
    const float quotient = __fmaf_rn(number, inverse, 0x1.8p23f);
    return (u32)bits - (u32)__float_as_int(quotient) * P;
}

template <int P> __device__ __forceinline__ u32 residue(const u32 (&word)[WORDS]) {
    if constexpr (P == 256) return word[0];
    constexpr int start = OF_FLOAT + start_of(P, 1, (1 << 23) + (1 << 19));
    return reduced<P>(weighted<P>(word, start));
}

// The least s with s² ≡ −1 modulo p.
__host__ __device__ constexpr int root_of(int p) {
    int root = 1;
    while ((root * root + 1) % p) root++;
    return root;
}

// Residues of re + s im and of re − s im.
template <int P>
__device__ __forceinline__ void residues(const u32 (&re)[WORDS], const u32 (&im)[WORDS], u32 &plus,
                                         u32 &minus) {
    constexpr int root = root_of(P), near = (1 << 23) + (1 << 21);
    constexpr int first = OF_FLOAT + start_of(P, 1 + root, near);
    constexpr int second = OF_FLOAT + start_of(P, 1 + P - root, near);
    const int one = weighted<P>(re, 0), other = weighted<P, root>(im, 0);
    plus = reduced<P>(one + other + first);
    minus = reduced<P>(one - other + second);
}

// ---- the theorem ---------------------------------------------------------------------------------

#ifdef PARTS

// From Python, of C or of its real and its imaginary part: (COUNT, PARTS) weights, times SCALE; the sum
// of part_lj · (SCALE + what the bytes that stand for 0 are), less 0, from which sums of parts begin;
// parts of P, and 1 / P; and what parts are multiples of.
__constant__ double weights[REALS][COUNT][PARTS] = {WEIGHTS};
__constant__ double starts[REALS][PARTS] = {STARTS};
__constant__ double product[PARTS] = {PRODUCT};
__constant__ double units[PARTS] = {PART_UNITS};

// RN(number / unit) · unit, for |number| < 2^51 units.
__device__ __forceinline__ double rounded_to(double number, double unit) {
    const double round = 0x1.8p52 * unit;
    return __dadd_rn(__dadd_rn(number, round), -round);
}

// sum + error = a + b, where |a| ≥ |b| or a is 0.
__device__ __forceinline__ double fast_two_sum(double a, double b, double &error) {
    const double sum = __dadd_rn(a, b);
    error = __dadd_rn(b, -__dadd_rn(sum, -a));
    return sum;
}

// The integer within P / 2 of which these are Σ_l part_lj · r_l, rounded to nearest even, once.
__device__ __forceinline__ double combined(double (&part)[PARTS]) {
    double top = part[0];
    if constexpr (PARTS > 1) top = __dadd_rn(top, part[1]);
    const double quotient = __dadd_rn(__fma_rn(top, INVERSE, 0x1.8p52), -0x1.8p52);
#pragma unroll
    for (int j = 0; j < PARTS; j++) part[j] = __fma_rn(-quotient, product[j], part[j]);
    if constexpr (PARTS == 1) return part[0];
    if constexpr (PARTS == 2) return __dadd_rn(part[0], part[1]);
    // From below, what a part has of the next one's units is added to that: then none overlap.
#pragma unroll
    for (int j = PARTS - 1; j > 0; j--) {
        const double carried = rounded_to(part[j], units[j - 1]);
        part[j] = __dadd_rn(part[j], -carried);
        part[j - 1] = __dadd_rn(part[j - 1], carried);
    }
    double sum = part[PARTS - 1], rest = 0, error;
#pragma unroll
    for (int j = PARTS - 2; j >= 0; j--) {
        sum = fast_two_sum(part[j], sum, error);
        if (j == PARTS - 2) rest = error;
        else {
            // To odd, where it is not exact: so the last rounding is as if it were the only one.
            double lost;
            rest = fast_two_sum(error, rest, lost);
            if (lost != 0 && (__double2loint(rest) & 1) == 0)
                rest = __longlong_as_double(__double_as_longlong(rest) +
                                            ((lost > 0) == (rest > 0) ? 1 : -1));
        }
    }
    return __dadd_rn(sum, rest);
}

#endif
