// C = alpha · A·B + beta · C_in from packed slices, for Hopper (sm_90a).
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
// GROUPED 1: units are powers of two, shared by 16 rows of A and by 8 columns of B.
// SYMMETRIC 1: B is A transposed, and only the tiles up to the diagonal are made: see `finish`.

#include "gemm.cuh"

#ifndef TILE_N
#define TILE_N 128
#define STAGES 4
#endif
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef IN_REGISTERS
#define IN_REGISTERS 2
#endif
#ifndef PROMOTE
#define PROMOTE 0
#endif
#ifndef INTERVAL
#define INTERVAL 4
#endif
#ifndef GROUPED
#define GROUPED 0
#endif
#ifndef DEFERRED
#define DEFERRED 0
#endif
#ifndef WIDE
#define WIDE 0
#endif
#ifndef SYMMETRIC
#define SYMMETRIC 0
#endif

#include "wgmma.cuh"
#include "units.cuh"

constexpr int CONSUMERS = TILE_M / 64;
constexpr int A_SLICE = TILE_M * STEP, B_SLICE = TILE_N * STEP;
constexpr int STAGE = COUNT_A * A_SLICE + COUNT_B * B_SLICE;
constexpr int THREADS = 128 * (CONSUMERS + 1);

#include "rasterisation.cuh"
#include "epilogue.cuh"

struct Ring {  // where the producer, or a consumer, stands in the ring of stages
    int stage = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ int before() const { return stage ? stage - 1 : STAGES - 1; }
};

__device__ __forceinline__ void produce(const Problem &p, u32 buffers, u32 full, u32 empty) {
    int count = tile_count(p);
    Ring ring;
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
            u32 barrier = full + 8 * ring.stage, to = buffers + ring.stage * STAGE;
            wait(empty + 8 * ring.stage, ring.parity ^ 1);
            expect(barrier, STAGE);
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

__device__ __forceinline__ void consume(const Problem &p, u32 buffers, u32 full, u32 empty,
                                        int group) {
    const Multiplier multiplier(group);
    const int count = tile_count(p);
    Ring ring;
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
                wait(full + 8 * ring.stage, ring.parity);
                u32 a = buffers + ring.stage * STAGE;
                multiplier.load(f[0], a, 0);
                multiplier.issue<0>(acc, f[0], a, 0, 1);
                wait_products<1>();  // all but those just issued: the stage before this is free
                keep_until_here(f[1]);
                if (step != begin) release(empty + 8 * ring.before());
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
            if (end != begin) release(empty + 8 * ring.before());
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

#include "deferred.cuh"

#else

#include "ping_pong.cuh"

#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm(const __grid_constant__ Problem p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    u32 buffers = (u32)__cvta_generic_to_shared(memory);
    u32 full = (u32)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s),
                         "r"(ARRIVALS * CONSUMERS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    follow();
    if (is_shut(p)) return;
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be uniform
    // 168 registers a thread at launch are 24 and 240: a block has no more to hand out.
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) produce(p, buffers, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume(p, buffers, full, empty, group - 1);
    }
}
