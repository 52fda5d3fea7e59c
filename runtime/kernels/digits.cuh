// C from sums of digits of base 256, which a thread makes order after order, the lowest first: see
// `schemes/integers.py`. What it puts aside lies as residues do, in `residue_tiles.cuh`; it is this
// thread that reads it again.

#include "result_values.cuh"

constexpr int ORDERS = A_DIGITS + B_DIGITS - 1;

// The products of an order.
__device__ __forceinline__ int least_digit(int order) { return max(order - B_DIGITS + 1, 0); }
__device__ __forceinline__ int most_digit(int order) { return min(order, A_DIGITS - 1); }

// Puts the lowest bytes of an order's sums aside; the rest begins the next order's. thread: which of
// the 128 that make 64 rows.
__device__ __forceinline__ void carry(unsigned char *bytes, int (&sum)[REGISTERS], int thread) {
    bytes += thread * UNIT;
#pragma unroll
    for (int i = 0; i < REGISTERS; i += UNIT, bytes += 128 * UNIT) {
        unsigned word[UNIT / 4];
#pragma unroll
        for (int j = 0; j < UNIT / 4; j++) {
            int *of = sum + i + 4 * j;
            word[j] = __byte_perm(__byte_perm(of[0], of[1], 0x0040),
                                  __byte_perm(of[2], of[3], 0x0040), 0x5410);
#pragma unroll
            for (int e = 0; e < 4; e++) of[e] >>= 8;
        }
        *(uint4 *)bytes = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

// (m, n) values from c on, rows `leading` apart. paired: two can be written at once. symmetric: those
// on or below the diagonal are written twice, the others not at all.
struct Matrix {
    Value *c;
    int m, n;
    long long leading;
    bool paired, symmetric;
};

// 64 rows of C, from a row and a column on, of the last order's sums. bytes: those of the first
// order; those of each following one are `apart` bytes further.
__device__ __forceinline__ void store_values(const Matrix &c, int row, int column,
                                             const int (&sum)[REGISTERS], int thread,
                                             const unsigned char *bytes, long long apart) {
    row += (thread >> 5) * 16 + (thread >> 2 & 7), column += (thread & 3) * 2;
    bytes += thread * UNIT;
    Value *to = c.c + row * c.leading + column;
#pragma unroll
    for (int i = 0; i < REGISTERS; i += UNIT, bytes += 128 * UNIT) {
        uint4 aside[ORDERS];
#pragma unroll
        for (int order = 0; order < ORDERS - 1; order++)
            aside[order] = *(const uint4 *)(bytes + order * apart);
#pragma unroll
        for (int j = 0; j < UNIT / 4; j++) {
            Value value[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int low = 0;
#pragma unroll
                for (int order = 0; order < ORDERS - 1; order++) {
                    const uint4 &of = aside[order];
                    const unsigned word = j == 0 ? of.x : j == 1 ? of.y : j == 2 ? of.z : of.w;
                    low |= (word >> 8 * e & 255) << 8 * order;
                }
                const int high = sum[i + 4 * j + e];
                // Exact in float64: at most 47 bits.
                value[e] = ORDERS == 1 ? (Value)high
                                       : (Value)((double)high * (1 << 8 * (ORDERS - 1)) + low);
            }
            const int place = 2 * (i + 4 * j), at = column + place;
#pragma unroll
            for (int below = 0; below < 2; below++) {
                const int here_row = row + 8 * below;
                if (here_row >= c.m) continue;
                const int end = c.symmetric ? min(c.n, here_row + 1) : c.n;
                Value *here = to + 8 * below * c.leading + place;
                const Value first = value[2 * below], second = value[2 * below + 1];
                if (c.paired && at + 1 < end) {
                    Pair both;
                    both.x = first, both.y = second;
                    *(Pair *)here = both;
                } else {
                    if (at < end) here[0] = first;
                    if (at + 1 < end) here[1] = second;
                }
                if (!c.symmetric) continue;
                Value *image = c.c + at * c.leading + here_row;
                if (at < end) image[0] = first;
                if (at + 1 < end) image[c.leading] = second;
            }
        }
    }
}
