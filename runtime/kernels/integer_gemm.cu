// C = A·B modulo 2^(8 COUNT), of integers as digits of base 256 within [−128, 127], for Hopper:
//
//     A·B = Σ_o S_o 256^o,    S_o = Σ_{i+j=o} A_i·B_j,    of orders o < COUNT: others vanish.
//
// Blocks and warps are those of `residue_gemm.cu`; a tile's products are made order after order, the
// highest first, of no more digits than the operands have: used[0] of A, used[1] of B.
//
// Modulo 2^32 sums may wrap: those of an order are multiplied by 256, and go on as the next order's.
// Of 64 bits that holds from order 4 on; S_3 … S_0, which must stay below 2^31, are added to C one
// by one. Integer: the type of C; Pair: of two of it.

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

struct Result {  // (m, n) integers, rows `leading` apart; paired: two can be written at once
    Integer *c;
    int m, n;
    long long leading;
    bool paired;
};

__device__ __forceinline__ void produce_digits(const Problem &p, const Digits &digits, u32 buffers,
                                               u32 full, u32 empty) {
    const u64 a_slice = (u64)p.tile_rows * A_STAGE, b_slice = (u64)p.tile_columns * B_STAGE;
    Ring ring;
    for (int index = blockIdx.x; index < p.tile_rows * p.tile_columns; index += gridDim.x) {
        const Tile tile = tile_at(index, p.tile_rows, p.tile_columns, p.group);
#pragma unroll 1
        for (int order = digits.last_order(); order >= 0; order--)
#pragma unroll 1
            for (int left = digits.least(order); left <= digits.most(order); left++) {
                const unsigned char *a = p.a + left * a_slice + tile.row * A_STAGE;
                const unsigned char *b = p.b + (order - left) * b_slice + tile.column * B_STAGE;
                for (int step = 0; step < p.steps; step++, ring.advance()) {
                    const u32 barrier = full + 8 * ring.stage, to = buffers + ring.stage * STAGE;
                    wait(empty + 8 * ring.stage, ring.parity ^ 1);
                    expect(barrier, STAGE);
                    copy(to, a, A_STAGE, barrier);
                    copy(to + A_STAGE, b, B_STAGE, barrier);
                    a += COUNT * a_slice, b += COUNT * b_slice;
                }
            }
    }
}

// Writes sums of 64 rows, from a row and a column on, times 2^shift, or adds them to what is there.
__device__ __forceinline__ void write(const Result &c, int row, int column,
                                      const int (&sum)[REGISTERS], int thread, int shift, bool adds) {
    row += (thread >> 5) * 16 + (thread >> 2 & 7), column += (thread & 3) * 2;
#pragma unroll
    for (int i = 0; i < REGISTERS; i += 2) {
        // In each 8 columns two neighbours of a row, then of the row 8 below.
        const int y = row + (i & 2) * 4, x = column + i / 4 * 8;
        if (y >= c.m || x >= c.n) continue;
        Integer *to = c.c + y * c.leading + x;
        Integer one = (Integer)((long long)sum[i] << shift);
        Integer two = (Integer)((long long)sum[i + 1] << shift);
        if (c.paired && x + 1 < c.n) {
            Pair both = {};
            if (adds) both = *(Pair *)to;
            both.x += one, both.y += two;
            *(Pair *)to = both;
        } else {
            to[0] = adds ? to[0] + one : one;
            if (x + 1 < c.n) to[1] = adds ? to[1] + two : two;
        }
    }
}

__device__ __forceinline__ void consume_digits(const Problem &p, const Digits &digits, const Result &c,
                                               u32 buffers, u32 full, u32 empty, int consumer) {
    const u32 mine = buffers + consumer * DEPTH * 64 * STEP;
    Ring ring;
    for (int index = blockIdx.x; index < p.tile_rows * p.tile_columns; index += gridDim.x) {
        const Tile tile = tile_at(index, p.tile_rows, p.tile_columns, p.group);
        Sum sum[DEPTH][REGISTERS];
        clear(sum);
        bool adds = false;
#pragma unroll 1
        for (int order = digits.last_order(); order >= 0; order--) {
            const int products = digits.most(order) - digits.least(order) + 1;
            add(sum, products * p.steps, ring, mine, buffers, full, empty);
            if (order > WRAPS) {
#pragma unroll
                for (int i = 0; i < DEPTH * REGISTERS; i++) sum[i / REGISTERS][i % REGISTERS] <<= 8;
                continue;
            }
#pragma unroll
            for (int d = 0; d < DEPTH; d++)
                write(c, tile.row * TILE_M + (consumer * DEPTH + d) * 64, tile.column * TILE_N, sum[d],
                      threadIdx.x & 127, 8 * order, adds);
            if (order) clear(sum), adds = true;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
integer_gemm(const unsigned char *a, const unsigned char *b, Integer *values, const int *used,
             long long steps, long long tile_rows, long long tile_columns, long long group_rows,
             long long m, long long n, long long leading, long long paired) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const Problem p = {a, b, nullptr, (int)steps, (int)tile_rows, (int)tile_columns, (int)group_rows};
    const Result c = {values, (int)m, (int)n, leading, paired != 0};
    const u32 buffers = (u32)__cvta_generic_to_shared(memory);
    const u32 full = (u32)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) make_ring(full, empty);
    __syncthreads();
    follow();
    const Digits digits = {max(used[0], 1), max(used[1], 1)};
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be uniform
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) produce_digits(p, digits, buffers, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume_digits(p, digits, c, buffers, full, empty, group - 1);
    }
}
