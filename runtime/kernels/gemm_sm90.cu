// C = A·B from packed slices, for Hopper (sm_90a).
//
//   warpgroup 0, one thread   producer: copies a step (64 bytes of K) of all slices of A's and B's
//                             tile into a ring of STAGES buffers, by bulk copies. Packing has laid a
//                             tile's step out as wgmma wants it: a copy is one run of bytes a slice.
//   warpgroups 1, 2, …        each multiplies 64 rows of the tile by all its columns: every term of
//                             a step, from slices that were loaded once. Accumulators are registers.
//
//   Blocks persist and take the tiles in groups of rows. Sums are formed in one fixed order: two
//   runs give the same bits.
//
// A last wave of few tiles is cut along K: blocks add their integers in memory, the last one stores.
//
// PROMOTE 0: one accumulator per weight over a whole segment of K; where there are several segments
// (exponent blocks, or more K than INT32 holds) each is added into C in memory.
// PROMOTE 1: sums are added into registers every INTERVAL half steps, which is a block of integers,
// so that nothing but C leaves the chip. The consumers take turns: one multiplies, one promotes.
// DEFERRED > 0: of two accumulators only the one of weight 0 is promoted, every so many steps, while
// the other's products are under way. The other, whose weight makes what is cut off from it small, is
// added once, in the end.
// IN_REGISTERS: slices of A, the highest first, that go through registers.
// GROUPED 1: units are powers of two, shared by 16 rows of A and by 8 columns of B.
// SYMMETRIC 1: B is A transposed, and only the tiles up to the diagonal are made: see `finish`.

#include "gemm.cuh"

#ifndef SYMMETRIC
#define SYMMETRIC 0
#endif

constexpr int CONSUMERS = TILE_M / 64;
constexpr int A_SLICE = TILE_M * STEP, B_SLICE = TILE_N * STEP;
constexpr int STAGE = COUNT_A * A_SLICE + COUNT_B * B_SLICE;
constexpr int THREADS = 128 * (CONSUMERS + 1);

#include "wgmma.cuh"
#include "ring.cuh"
// The order in which blocks take tiles of C and segments of K, for Hopper.

#if SYMMETRIC
#include "triangle.cuh"
#endif

struct Tile {
    int product, row, column;
};

// Tiles of a group of rows are taken column by column, so that what runs at a time is nearly
// square and its operands stay in L2.
__device__ __forceinline__ Tile tile_at(const Problem &p, int index) {
    int rows = (p.a.rows + TILE_M - 1) / TILE_M;
#if SYMMETRIC
    const int product = index / p.triangle;
    const int2 tile = Triangle<TILE_M, TILE_N>::at(index - product * p.triangle, rows);
    return {product, tile.x * TILE_M, tile.y * TILE_N};
#else
    int columns = (p.b.rows + TILE_N - 1) / TILE_N;
    int product = index / (rows * columns);
    int place = index - product * rows * columns;
    int first = place / (p.group * columns) * p.group;
    int height = min(p.group, rows - first);
    place -= first * columns;
    int column = place / height;
    int row = first + place - column * height;
    return {product, row * TILE_M, column * TILE_N};
#endif
}

__device__ __forceinline__ int tile_count(const Problem &p) {
    if (SYMMETRIC) return p.triangle * p.batch;
    return (p.a.rows + TILE_M - 1) / TILE_M * ((p.b.rows + TILE_N - 1) / TILE_N) * p.batch;
}

// The upper of the two rows that a thread holds.
__device__ __forceinline__ int my_row(const Tile &tile, int group) {
    return tile.row + group * 64 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7);
}

// A segment ends where an exponent block does, or where INT32 accumulators are full.
__device__ __forceinline__ int segment_end(const Problem &p, int begin) {
    int end = min(begin + p.segment_steps, p.steps);
    return p.blocks > 1 ? min(end, (begin / p.steps_per_block + 1) * p.steps_per_block) : end;
}

// What a block does next: a tile, or a part of one along K.
struct Work {
    int tile, begin, end;
    bool part;
};

// The block's item number `round`; tile −1 after the last.
__device__ __forceinline__ Work work_at(const Problem &p, int count, int round) {
    int item = blockIdx.x + round * gridDim.x, whole = count - p.tail;
    if (item < whole) return {item, 0, p.steps, false};
    item -= whole;
    if (item >= p.tail * p.split) return {-1, 0, 0, false};
    int part = item % p.split;
    return {whole + item / p.split, (int)((long long)p.steps * part / p.split),
            (int)((long long)p.steps * (part + 1) / p.split), true};
}

#include "epilogue.cuh"

__device__ __forceinline__ void produce(const Problem &p, Ring ring) {
    int count = tile_count(p);
    for (int round = 0;; round++) {
        Work work = work_at(p, count, round);
        if (work.tile < 0) return;
        Tile tile = tile_at(p, work.tile);
        const unsigned char *a = p.a.slices + tile.product * p.a.slices_stride + tile.row * STEP;
        const unsigned char *b = p.b.slices + tile.product * p.b.slices_stride + tile.column * STEP;
        const u64 a_slice = (u64)p.a.rows8 * STEP, b_slice = (u64)p.b.rows8 * STEP;
        a += work.begin * COUNT_A * a_slice;
        b += work.begin * COUNT_B * b_slice;
        for (int step = work.begin; step < work.end; step++, ring.advance()) {
            u32 barrier = ring.barrier(), to = ring.buffer();
            ring.wait_for_room();
#pragma unroll
            for (int s = 0; s < COUNT_A; s++, a += a_slice)
                copy(to + s * A_SLICE, a, A_SLICE, barrier);
            to += COUNT_A * A_SLICE;
#pragma unroll
            for (int s = 0; s < COUNT_B; s++, b += b_slice)
                copy(to + s * B_SLICE, b, B_SLICE, barrier);
        }
    }
}

// The terms of some half steps of 32 bytes of K. Slices of A that several terms use may go through
// registers: shared memory is then read once for all of them.
struct Multiplier {
    int group;        // of 64 rows
    u32 my_fragment;  // ldmatrix: this lane names a row of 16 bytes in the group's slices

    __device__ __forceinline__ Multiplier(int group) : group(group) {
        // 8 lanes to a matrix: rows 0-7, rows 8-15, then both again 16 bytes further.
        int lane = threadIdx.x & 31, row = group * 64 + (threadIdx.x >> 5 & 3) * 16 + (lane & 15);
        my_fragment = row * STEP + (((lane >> 4) ^ (row >> 1 & 3)) << 4);
    }

    __device__ __forceinline__ void load(u32 (&f)[IN_REGISTERS + 1][4], u32 a, int half) const {
#pragma unroll
        for (int s = 0; s < IN_REGISTERS; s++)
            load_fragment(f[s], a + s * A_SLICE + (my_fragment ^ half * 32));
    }

    // One half of the stage at `a`, whose fragments have been loaded, for accumulators GROUP and on.
    // keep: whether it adds to what they hold.
    template <int GROUP, int HELD>
    __device__ __forceinline__ void issue(Sum (&acc)[HELD][REGISTERS],
                                          u32 (&f)[IN_REGISTERS + 1][4], u32 a, int half,
                                          int keep) const {
        fence_registers();
#pragma unroll
        for (int t = term_end(GROUP - 1), g = GROUP; t < term_end(GROUP + HELD - 1); t++) {
            if (t == term_end(g)) g++;
            int left = term(t).left, add = t == term_end(g - 1) ? keep : 1;
            u64 there = describe(a + COUNT_A * A_SLICE + term(t).right * B_SLICE + half * 32);
            if (left < IN_REGISTERS) multiply(acc[g - GROUP], f[left], there, add);
            else
                multiply(acc[g - GROUP],
                         describe(a + left * A_SLICE + group * 64 * STEP + half * 32), there, add);
        }
        commit();
    }
};

// Products read fragments until they are done: until then no other value may get their registers.
__device__ __forceinline__ void keep_until_here(u32 (&f)[IN_REGISTERS + 1][4]) {
#pragma unroll
    for (int s = 0; s < IN_REGISTERS; s++)
        asm volatile("" : "+r"(f[s][0]), "+r"(f[s][1]), "+r"(f[s][2]), "+r"(f[s][3])::"memory");
}

#if !PROMOTE

// Adds a part's sums to those of the tile's other parts. Whether all parts have been added, and then
// `acc` holds the tile's. Sums of integers do not depend on the order.
__device__ __forceinline__ bool complete(const Problem &p, int tail, int group,
                                         Sum (&acc)[ACCUMULATORS][REGISTERS]) {
#if ELEMENT == ELEMENT_INT8
    __shared__ int parts_before;
    int threads = 128 * CONSUMERS, thread = threadIdx.x - 128;
    int *sums =
        p.parts + (p.tail + 31) / 32 * 32 + (u64)tail * ACCUMULATORS * REGISTERS * threads + thread;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS * REGISTERS; i++)
        asm volatile("red.global.add.s32 [%0], %1;" ::"l"(sums + i * threads),
                     "r"(acc[i / REGISTERS][i % REGISTERS])
                     : "memory");
    __threadfence();
    asm volatile("bar.sync 1, %0;" ::"n"(128 * CONSUMERS) : "memory");
    if (thread == 0) parts_before = atomicAdd(p.parts + tail, 1);
    asm volatile("bar.sync 1, %0;" ::"n"(128 * CONSUMERS) : "memory");
    if (parts_before != p.split - 1) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < ACCUMULATORS * REGISTERS; i++)
        acc[i / REGISTERS][i % REGISTERS] = __ldcg(sums + i * threads);
#endif
    return true;
}

__device__ __forceinline__ void consume(const Problem &p, Ring ring, int group) {
    const Multiplier multiplier(group);
    const int count = tile_count(p);
    for (int round = 0;; round++) {
        const Work work = work_at(p, count, round);
        if (work.tile < 0) return;
        const Tile tile = tile_at(p, work.tile);
        int begin = work.begin;
        do {
            int end = min(segment_end(p, begin), work.end);
            Sum acc[ACCUMULATORS][REGISTERS];
#pragma unroll
            for (int i = 0; i < ACCUMULATORS * REGISTERS; i++)
                acc[i / REGISTERS][i % REGISTERS] = 0;
            u32 f[2][IN_REGISTERS + 1][4] = {};
            for (int step = begin; step < end; step++) {
                ring.wait_for_data();
                u32 a = ring.buffer();
                multiplier.load(f[0], a, 0);
                multiplier.issue<0>(acc, f[0], a, 0, 1);
                wait_products<1>();  // all but those just issued: the stage before this is free
                keep_until_here(f[1]);
                if (step != begin) ring.release_last();
                multiplier.load(f[1], a, 1);
                multiplier.issue<0>(acc, f[1], a, 1, 1);
                wait_products<1>();
                keep_until_here(f[0]);
                ring.advance();
            }
            int scales[SHARE];
            fetch(scales, p, tile, group, p.blocks > 1 ? begin / p.steps_per_block : 0);
            wait_products<0>();
            keep_until_here(f[1]);
            if (end != begin) ring.release_last();
            if (work.part && !complete(p, work.tile - (count - p.tail), group, acc)) break;
            Partial sum[REGISTERS];
#pragma unroll
            for (int i = 0; i < REGISTERS; i++) sum[i] = combined(acc, i);
            asm volatile("" ::: "memory");  // nothing of the epilogue earlier: registers are full
            finish(p, tile, group, scales, work.part || begin == 0, work.part || end == p.steps,
                   sum);
            begin = end;
        } while (begin < work.end);
    }
}

#elif DEFERRED

// Floating-point sums in two accumulators, of which only the one of weight 0 is promoted. For Hopper.
//
// A step's products of weight 0 are issued first, then those of the other accumulator. While the
// tensor cores make the latter, the former are added to totals in registers, every DEFERRED steps:
// promotion costs no time of theirs, and consumers need no turns.

static_assert(ACCUMULATORS == 2 && weight(1) == 0, "one accumulator beside that of weight 0");
static_assert(IN_REGISTERS == 0, "slices of A are read from shared memory");

constexpr int LATE = 0, PROMOTED = 1;

__device__ __forceinline__ void consume(const Problem &p, Ring ring, int group) {
    const Multiplier multiplier(group);
    const int count = tile_count(p);
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        const Tile tile = tile_at(p, index);
        Sum total[REGISTERS], late[1][REGISTERS], sum[1][REGISTERS];
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) total[i] = late[0][i] = 0;
        u32 none[IN_REGISTERS + 1][4] = {};
        for (int step = 0; step < p.steps; step++) {
            ring.wait_for_data();
            const u32 a = ring.buffer();
            multiplier.issue<PROMOTED>(sum, none, a, 0, step % DEFERRED != 0);
            multiplier.issue<PROMOTED>(sum, none, a, 1, 1);
            multiplier.issue<LATE>(late, none, a, 0, 1);
            multiplier.issue<LATE>(late, none, a, 1, 1);
            wait_products<2>();  // those of weight 0 are done, and with them the step before
            if (step) ring.release_last();
            if (step % DEFERRED == DEFERRED - 1 || step == p.steps - 1) {
#pragma unroll
                for (int i = 0; i < REGISTERS; i++) total[i] = rounded::add(total[i], sum[0][i]);
            }
            ring.advance();
        }
        int units[SHARE];
        fetch(units, p, tile, group, 0);
        wait_products<0>();
        if (p.steps) ring.release_last();
#pragma unroll
        for (int i = 0; i < REGISTERS; i++)
            total[i] = rounded::multiply_add(late[0][i], Precision<float>::power(weight(LATE)),
                                             total[i]);
        finish(p, tile, group, units, true, true, total);
    }
}


#else

#include "ping_pong.cuh"

#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm(const __grid_constant__ Problem p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const Ring ring(memory, barriers);
    if (is_shut(p)) return;
    divide([&] { produce(p, ring); }, [&](int group) { consume(p, ring, group); });
}
