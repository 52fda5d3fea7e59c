// Residues of sums of products, which a thread holds as wgmma and mma.sync leave them: of each row
// and that 8 below, two neighbours in each 8 columns. COUNT: moduli; REGISTERS: sums of 64 rows.
// A_DIGITS, B_DIGITS: of products of digits, how many either operand has; 0: of residues.

#ifndef A_DIGITS
#define A_DIGITS 0
#define B_DIGITS 0
#define A_BYTES "s8"
#define B_BYTES "s8"
#endif

constexpr int PIECE = 64 * STEP;  // bytes of a step of 64 rows, which lie together
// Steps of K whose sums stay below 2^30: 2^16 · 127² is less.
constexpr int SEGMENT = 65536 / STEP;

__constant__ unsigned short moduli[COUNT] = {MODULI};

// What is subtracted from a sum, and what is left: sum + ⌊p / 2⌋ modulo p, if |sum| < 2^30 or p = 256.
struct Reduction {
    u32 modulus, factor, offset;

    __device__ __forceinline__ Reduction(int index) {
        modulus = moduli[index];
        // ⌈2^39 / p⌉, of p above 128: for sums below 2^31 the quotient by it is exact.
        factor = (u32)(((1ull << 39) + modulus - 1) / modulus);
        offset = ((1u << 30) / modulus + 1) * modulus;  // a multiple above 2^30
        offset += modulus / 2;
    }
    __device__ __forceinline__ u32 operator()(int sum) const {
        const u32 shifted = (u32)sum + offset;
        return shifted - (__umulhi(shifted, factor) >> 7) * modulus;
    }
};

// A thread's sums, of 64 rows; thread: which of 128 it is. first: whether these are the tile's first;
// else those before are added.
__device__ __forceinline__ void store(unsigned char *out, const Reduction &reduced,
                                      const int (&sum)[REGISTERS], int thread, bool first) {
    unsigned char *to = out + thread * UNIT;
    const u32 half = reduced.modulus / 2;
#pragma unroll
    for (int i = 0; i < REGISTERS; i += UNIT, to += 128 * UNIT) {
        u32 word[UNIT / 4], before[UNIT / 4] = {};
        if (!first) {
            const uint4 bytes = *(const uint4 *)to;
            before[0] = bytes.x, before[1] = bytes.y, before[2] = bytes.z, before[3] = bytes.w;
        }
#pragma unroll
        for (int j = 0; j < UNIT / 4; j++) {
            u32 byte[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int add = first ? 0 : (int)(before[j] >> 8 * e & 255) - (int)half;
                byte[e] = reduced(sum[i + 4 * j + e] + add);
            }
            word[j] = __byte_perm(__byte_perm(byte[0], byte[1], 0x0040),
                                  __byte_perm(byte[2], byte[3], 0x0040), 0x5410);
        }
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

#if A_DIGITS
#include "digits.cuh"
#endif
