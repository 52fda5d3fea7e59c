// C = A·B modulo 2^(8 COUNT), of integers as digits of base 256 within [−128, 127], for Hopper:
//
//     A·B = Σ_o S_o 256^o,    S_o = Σ_{i+j=o} A_i·B_j,    of orders o < COUNT: others vanish.
//
// Blocks and warps are those of `residue_gemm.cu`; a tile's products are made order after order, the
// highest first, of no more digits than the operands have: used[0] of A, used[1] of B.
//
// Modulo 2^32 sums may wrap: those of an order are multiplied by 256, and go on as the next order's.
// Of 64 bits that holds from order 4 on; S_3 … S_0, which must stay below 2^31, are added to C one
// by one. Value: the type of C; Pair: of two of it.

#include "residue_gemm.cu"

constexpr int WRAPS = COUNT > 4 ? 4 : 0;  // the order from which sums may wrap

// The digits of A and B that are multiplied.
struct Digits {
    int of_a, of_b;

    __device__ __forceinline__ int last_order() const { return min(of_a + of_b - 1, COUNT) - 1; }
    // Of A, in the products of an order.
    __device__ __forceinline__ int least(int order) const { return max(order - of_b + 1, 0); }
    __device__ __forceinline__ int most(int order) const { return min(order, of_a - 1); }
};

__device__ __forceinline__ void produce_digits(const Problem &p, const Digits &digits, Ring ring) {
    const u64 a_slice = (u64)p.tile_rows * A_STAGE, b_slice = (u64)p.tile_columns * B_STAGE;
    for (int index = blockIdx.x; index < p.tile_rows * p.tile_columns; index += gridDim.x) {
        const Tile tile = tile_at(index, p.tile_rows, p.tile_columns, p.group);
#pragma unroll 1
        for (int order = digits.last_order(); order >= 0; order--)
#pragma unroll 1
            for (int left = digits.least(order); left <= digits.most(order); left++) {
                const unsigned char *a = p.a + left * a_slice + tile.row * A_STAGE;
                const unsigned char *b = p.b + (order - left) * b_slice + tile.column * B_STAGE;
                for (int step = 0; step < p.steps; step++, ring.advance()) {
                    ring.wait_for_room();
                    copy(ring.buffer(), a, A_STAGE, ring.barrier());
                    copy(ring.buffer() + A_STAGE, b, B_STAGE, ring.barrier());
                    a += COUNT * a_slice, b += COUNT * b_slice;
                }
            }
    }
}

// Writes sums of 64 rows, from a row and a column on, times 2^shift, or adds them to what is there.
__device__ __forceinline__ void write(const Problem &p, int row, int column,
                                      const int (&sum)[REGISTERS], int thread, int shift, bool adds) {
    row += (thread >> 5) * 16 + (thread >> 2 & 7), column += (thread & 3) * 2;
#pragma unroll
    for (int i = 0; i < REGISTERS; i += 2) {
        // In each 8 columns two neighbours of a row, then of the row 8 below.
        const int y = row + (i & 2) * 4, x = column + i / 4 * 8;
        if (y >= p.m || x >= p.n) continue;
        Value *to = p.c + y * p.leading + x;
        Value one = (Value)((long long)sum[i] << shift), two = (Value)((long long)sum[i + 1] << shift);
        if (p.paired && x + 1 < p.n) {
            Pair both = {};
            if (adds) both = *(Pair *)to;
            both.x += one, both.y += two;
            *(Pair *)to = both;
        } else {
            to[0] = adds ? to[0] + one : one;
            if (x + 1 < p.n) to[1] = adds ? to[1] + two : two;
        }
    }
}

__device__ __forceinline__ void consume_digits(const Problem &p, const Digits &digits, Ring ring,
                                               int consumer) {
    for (int index = blockIdx.x; index < p.tile_rows * p.tile_columns; index += gridDim.x) {
        const Tile tile = tile_at(index, p.tile_rows, p.tile_columns, p.group);
        Sums sum;
        clear(sum);
        bool adds = false;
#pragma unroll 1
        for (int order = digits.last_order(); order >= 0; order--) {
            const int products = digits.most(order) - digits.least(order) + 1;
            add(sum, products * p.steps, ring, consumer);
            if (order > WRAPS) {
#pragma unroll
                for (int i = 0; i < PARTS * REGISTERS; i++) sum[i / REGISTERS][i % REGISTERS] <<= 8;
                continue;
            }
#pragma unroll
            for (int i = 0; i < PARTS; i++)
                write(p, tile.row * TILE_M + (consumer * PARTS + i) * 64, tile.column * TILE_N, sum[i],
                      threadIdx.x & 127, 8 * order, adds);
            if (order) clear(sum), adds = true;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
integer_gemm(const unsigned char *a, const unsigned char *b, Value *values, const int *used,
             long long steps, long long tile_rows, long long tile_columns, long long group_rows,
             long long m, long long n, long long leading, long long paired) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const Problem p = {a, b, nullptr, values, (int)steps, (int)tile_rows, (int)tile_columns,
                       (int)group_rows, (int)m, (int)n, leading, paired != 0};
    const Ring ring(memory, barriers);
    const Digits digits = {max(used[0], 1), max(used[1], 1)};
    divide([&] { produce_digits(p, digits, ring); },
           [&](int consumer) { consume_digits(p, digits, ring, consumer); });
}
