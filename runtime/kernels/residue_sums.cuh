// What both GEMMs of residues share: the problem, the tasks of blocks, and what becomes of the sums.
// A thread holds them as wgmma and mma.sync leave them: two neighbours of every 8 columns, in one row
// and in the row 8 below it.
//
// BLOCK_M, BLOCK_N: rows and columns of a task, which is a part of a tile. PARTS: how many parts a
// task has, of PART_ROWS rows each. REGISTERS: the sums of a part that a thread holds.

#include "residue_tiles.cuh"
#include "values.cuh"

#ifndef A_DIGITS
#define A_DIGITS 0
#define B_DIGITS 0
#endif

constexpr int PIECE = 64 * STEP;  // bytes of a step of 64 rows, which lie together
// Steps of K whose sums stay below 2^30: 2^16 · 127² is less.
constexpr int SEGMENT = 65536 / STEP;
constexpr int A_SLICES = A_DIGITS ? A_DIGITS : COUNT, B_SLICES = B_DIGITS ? B_DIGITS : COUNT;
constexpr int PART_BYTES = PART_ROWS == 64 ? UNITS * 128 * UNIT : PART_ROWS * 2 * UNIT;

// a, b: (rows / 64, slices, steps, 64, 64) bytes, where rows fill whole tiles. out: see
// `residue_tiles.cuh`. c: for digits, (m, n) values, rows `leading` apart; paired: whether two values
// can be written at once. triangle: 0, or the number of tasks of a symmetric C. Then elements on and
// below its diagonal are computed, and written to both places.
struct Problem {
    const unsigned char *a, *b;
    unsigned char *out;
    Value *c;
    int steps, tile_rows, tile_columns, group, m, n;
    long long leading;
    bool paired;
    int triangle;
    const int *gate;
    int wanted;

    __device__ __forceinline__ bool is_shut() const { return gate && *gate != wanted; }
    __device__ __forceinline__ u64 slice() const { return (u64)steps * PIECE; }  // of 64 rows, in bytes
};

// A part of C, or, of residues, a part modulo one number.
struct Task {
    int modulus;
    Tile part;  // in parts

    __device__ __forceinline__ Task(const Problem &p, int index) {
        const int of_one = parts(p);
        modulus = index / of_one;
        part = tile_of<BLOCK_M, BLOCK_N>(index - modulus * of_one, part_rows(p), part_columns(p),
                                         p.group, p.triangle);
    }
    static __device__ __forceinline__ int part_rows(const Problem &p) {
        return (p.m + BLOCK_M - 1) / BLOCK_M;
    }
    static __device__ __forceinline__ int part_columns(const Problem &p) {
        return (p.n + BLOCK_N - 1) / BLOCK_N;
    }
    static __device__ __forceinline__ int parts(const Problem &p) {
        return p.triangle ? p.triangle : part_rows(p) * part_columns(p);
    }
    static __device__ __forceinline__ int count(const Problem &p) {
        return parts(p) * (A_DIGITS ? 1 : COUNT);
    }
};

// The products of digits i and j have the order i + j. Residues have one order.
constexpr int MOST_A = A_DIGITS ? A_DIGITS - 1 : 0, MOST_B = B_DIGITS ? B_DIGITS - 1 : 0;
constexpr int ORDERS = MOST_A + MOST_B + 1;
__device__ __forceinline__ int least_digit(int order) { return max(order - MOST_B, 0); }
__device__ __forceinline__ int most_digit(int order) { return min(order, MOST_A); }

typedef int Sums[PARTS][REGISTERS];

__device__ __forceinline__ void clear(Sums &sum) {
#pragma unroll
    for (int i = 0; i < PARTS * REGISTERS; i++) sum[i / REGISTERS][i % REGISTERS] = 0;
}

__device__ __forceinline__ u32 four_bytes(const u32 (&of)[4]) {
    return __byte_perm(__byte_perm(of[0], of[1], 0x0040), __byte_perm(of[2], of[3], 0x0040), 0x5410);
}

// ---- residues --------------------------------------------------------------------------------------

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

// A thread's sums. first: whether these are the tile's first; else those before are added.
__device__ __forceinline__ void store(unsigned char *to, const Reduction &reduced,
                                      const int (&sum)[REGISTERS], bool first) {
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
            word[j] = four_bytes(byte);
        }
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

// ---- digits ----------------------------------------------------------------------------------------

// C from sums of digits of base 256, which a thread makes order after order, the lowest first: see
// `schemes/integers.py`. What it puts aside lies as residues do; it is this thread that reads it again.

// Puts the lowest bytes of an order's sums aside; the rest begins the next order's.
__device__ __forceinline__ void carry(unsigned char *bytes, int (&sum)[REGISTERS]) {
#pragma unroll
    for (int i = 0; i < REGISTERS; i += UNIT, bytes += 128 * UNIT) {
        u32 word[UNIT / 4];
#pragma unroll
        for (int j = 0; j < UNIT / 4; j++) {
            int *of = sum + i + 4 * j;
            word[j] = four_bytes((const u32(&)[4])*of);
#pragma unroll
            for (int e = 0; e < 4; e++) of[e] >>= 8;
        }
        *(uint4 *)bytes = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

// Writes C from the last order's sums, and from the bytes that lower orders put aside. row, column:
// the thread's first ones. bytes: those of the first order; each next order's are `apart` further.
__device__ __forceinline__ void store_values(const Problem &p, int row, int column,
                                             const int (&sum)[REGISTERS], const unsigned char *bytes,
                                             long long apart) {
    Value *to = p.c + row * p.leading + column;
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
                    const u32 word = j == 0 ? of.x : j == 1 ? of.y : j == 2 ? of.z : of.w;
                    low |= (word >> 8 * e & 255) << 8 * order;
                }
                const int high = sum[i + 4 * j + e];
                // Exact in float64: at most 47 bits.
                value[e] = ORDERS == 1 ? (Value)high
                                       : (Value)((double)high * (1 << 8 * (ORDERS - 1)) + low);
            }
            const int place = 2 * (i + 4 * j), at = column + place;
#pragma unroll
            for (int low = 0; low < 2; low++) {
                const int here = row + 8 * low;
                if (here >= p.m) continue;
                const Value x = value[2 * low], y = value[2 * low + 1];
                const int end = p.triangle ? min(p.n, here + 1) : p.n;
                store_some(to + 8 * low * p.leading + place, x, y, at, end, p.paired);
                if (p.triangle) store_apart(p.c + at * p.leading + here, p.leading, x, y, at, end);
            }
        }
    }
}

// ---- a task ----------------------------------------------------------------------------------------

// The row and column of C at which a warpgroup's, or warp's, part begins, and a thread's number in it.
struct Corner {
    int row, column, thread;
};

// Computes a task. add(sum, steps) adds the products of that many steps. where(part) finds the corner
// anew at each call, so that it occupies no register meanwhile.
template <typename Add, typename Where>
__device__ __forceinline__ void make(const Problem &p, const Task &task, Add add, Where where) {
    // This thread's bytes of the first part modulo a number, or of an order.
    auto bytes = [&](const Corner &from, int number) {
        const int tile_row = from.row / TILE_M, tile_column = from.column / TILE_N;
        const int tile = (number * p.tile_rows + tile_row) * p.tile_columns + tile_column;
        return p.out + from.thread * UNIT +
               unit_at(tile, (from.row - tile_row * TILE_M) / 64,
                       (from.column - tile_column * TILE_N) / 32);
    };
    if constexpr (A_DIGITS > 0) {
        Sums sum;
        clear(sum);
#pragma unroll 1
        for (int order = 0;; order++) {
            add(sum, (most_digit(order) - least_digit(order) + 1) * p.steps);
            if (order == ORDERS - 1) break;
            unsigned char *to = bytes(where(task.part), order);
#pragma unroll
            for (int i = 0; i < PARTS; i++) carry(to + i * PART_BYTES, sum[i]);
        }
        const Corner from = where(task.part);
        const int row = from.row + (from.thread >> 5) * 16 + (from.thread >> 2 & 7);
        const int column = from.column + (from.thread & 3) * 2;
        const unsigned char *aside = bytes(from, 0);
        const long long apart = (long long)p.tile_rows * p.tile_columns * TILE_M * TILE_N;
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            store_values(p, row + i * PART_ROWS, column, sum[i], aside + i * PART_BYTES, apart);
    } else {
        int begin = 0;
        do {
            const int end = min(begin + SEGMENT, p.steps);
            Sums sum;
            clear(sum);
            add(sum, end - begin);
            unsigned char *to = bytes(where(task.part), task.modulus);
            // The compiler knows `first`: code that adds to earlier sums takes half as long again.
            auto store_all = [&](bool first) {
                const Reduction reduced(task.modulus);
#pragma unroll
                for (int i = 0; i < PARTS; i++) store(to + i * PART_BYTES, reduced, sum[i], first);
            };
            if (begin == 0) store_all(true);
            else store_all(false);
            begin = end;
        } while (begin < p.steps);
    }
}

__device__ __forceinline__ void run(const Problem &p);  // defined by the GEMM

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
residue_gemm(const unsigned char *a, const unsigned char *b, unsigned char *out, void *values,
             long long steps, long long tile_rows, long long tile_columns, long long group_rows,
             long long m, long long n, long long leading, long long paired, long long triangle,
             const int *gate, long long wanted) {
    run({a, b, out, (Value *)values, (int)steps, (int)tile_rows, (int)tile_columns, (int)group_rows,
         (int)m, (int)n, leading, paired != 0, (int)triangle, gate, (int)wanted});
}
