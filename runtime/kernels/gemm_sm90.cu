// C = alpha · A·B + beta · C_in from packed slices, for Hopper (sm_90a).
//
//   warpgroup 0, one thread   producer: copies a step (64 bytes of K) of all slices of A's and B's
//                             tile into a ring of STAGES buffers, by bulk copies. Packing has laid a
//                             tile's step out as wgmma wants it: a copy is one run of bytes a slice.
//   warpgroups 1, 2, …        each multiplies 64 rows of the tile by all its columns: every term of
//                             a step, from slices that were loaded once. Accumulators are registers.
//
//   Blocks persist and walk the tiles in groups of rows. Sums are formed in one fixed order: two
//   runs give the same bits.
//
// A last wave of few tiles is cut along K: blocks add their integers in memory, the last one stores.
//
// PROMOTE 0: one accumulator per weight over a whole segment of K; where there are several segments
// (exponent blocks, or more K than INT32 holds) each is added into C in memory.
// PROMOTE 1: sums are added into registers every INTERVAL half steps, which is a block of integers,
// so that nothing but C leaves the chip. The consumers take turns: one multiplies, one promotes.
// GROUPED 1: units are powers of two, shared by 16 rows of A and by 8 columns of B.

#include "problem.cuh"
#include "scheme.cuh"
#include "rounded.cuh"

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
#ifndef WIDE
#define WIDE 0
#endif

#include "wgmma.cuh"

#if WIDE
typedef double Value;
#else
typedef float Value;
#endif

constexpr int CONSUMERS = TILE_M / 64;
constexpr int STEP = 64;  // bytes of K
constexpr int A_SLICE = TILE_M * STEP, B_SLICE = TILE_N * STEP;
constexpr int STAGE = COUNT_A * A_SLICE + COUNT_B * B_SLICE;
constexpr int THREADS = 128 * (CONSUMERS + 1);

// ---- the walk over tiles and segments of K ----------------------------------------------------

struct Tile {
    int product, row, column;
};

// Tiles of a group of rows are walked column by column, so that what runs at a time is nearly
// square and its operands stay in L2.
__device__ __forceinline__ Tile tile_at(const Problem &p, int index) {
    int rows = (p.a.rows + TILE_M - 1) / TILE_M;
    int columns = (p.b.rows + TILE_N - 1) / TILE_N;
    int product = index / (rows * columns);
    int place = index - product * rows * columns;
    int first = place / (p.group * columns) * p.group;
    int height = min(p.group, rows - first);
    place -= first * columns;
    int column = place / height;
    int row = first + place - column * height;
    return {product, row * TILE_M, column * TILE_N};
}

__device__ __forceinline__ int tile_count(const Problem &p) {
    return (p.a.rows + TILE_M - 1) / TILE_M * ((p.b.rows + TILE_N - 1) / TILE_N) * p.batch;
}

// The upper of the two rows that a thread holds.
__device__ __forceinline__ int my_row(const Tile &tile, int group) {
    return tile.row + group * 64 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7);
}

// A segment ends where an exponent block does, or where INT32 accumulators are full.
__device__ __forceinline__ int segment_end(const Problem &p, int begin) {
    int end = min(begin + p.stretch, p.steps);
    return p.blocks > 1 ? min(end, (begin / p.steps_per_block + 1) * p.steps_per_block) : end;
}

// ---- what becomes of the accumulators ---------------------------------------------------------

#if ELEMENT == 0
typedef Value Partial;  // sums of integers are exact, and rounded to the result's type
#else
typedef float Partial;  // added in FP32 whatever the result's type
#endif

// The accumulators combined, the smallest weight first, each scaled to the next and added.
__device__ __forceinline__ Partial combined(Sum (&acc)[ACCUMULATORS][REGISTERS], int i) {
    Partial p = (Partial)acc[0][i];
#pragma unroll
    for (int g = 1; g < ACCUMULATORS; g++)
        p = rounded::multiply_add(p, Precision<Partial>::power(weight(g - 1) - weight(g)),
                                  (Partial)acc[g][i]);
    return p;
}

// A unit g · 2^E in two factors, since 2^(EA + EB) may be no normal number although C is. The first
// carries g, and gA · gB is exact: so a sum is rounded once, or once more where C is subnormal. The
// factors of the largest units, E = 113, still have products below 2^128.
struct Unit {
    Value one, two;
};

__device__ __forceinline__ Unit unit(int scale) {
    int e = scale >> 9, half = (e >> 1) - 5;
    return {(Value)(scale & 511) * Precision<Value>::power(half),
            Precision<Value>::power(e - half)};
}

// The unit of sums that finish() stores: promotion has scaled those of integers already.
__device__ __forceinline__ Unit last_unit(const int *scales, int row, int rows) {
    return PROMOTE && ELEMENT == 0 ? Unit{1, 1} : unit(row < rows ? __ldg(scales + row) : 0);
}

__device__ __forceinline__ const int *scales_of(const Operand &x, const Tile &tile, int block) {
    return (const int *)((const char *)x.scales + tile.product * x.scales_stride) +
           (u64)block * x.rows;
}

__device__ __forceinline__ Value scaled(Value x, const Unit &a, const Unit &b) {
    return rounded::multiply(rounded::multiply(x, a.one * b.one), a.two * b.two);
}

struct Destination {
    Value *c;           // the row of C, and of C_in
    const Value *c_in;
    int columns;       // of C; none where this row is past the end
    bool first, last;  // segment of K
};

// Adds a pair of neighbours in a row to C.
__device__ __forceinline__ void store(const Problem &p, const Destination &to, int column, Value x,
                                      Value y) {
    if (column >= to.columns) return;
    Value *c = to.c + column;
    bool both = column + 1 < to.columns;
    if (!to.first) {
        x = rounded::add(x, c[0]);
        if (both) y = rounded::add(y, c[1]);
    }
    if (to.last) {
        x = rounded::multiply((Value)p.alpha, x);
        y = rounded::multiply((Value)p.alpha, y);
        if (p.beta != 0.0) {
            x = rounded::multiply_add((Value)p.beta, to.c_in[column], x);
            if (both) y = rounded::multiply_add((Value)p.beta, to.c_in[column + 1], y);
        }
    }
    c[0] = x;
    if (both) c[1] = y;
}

__device__ __forceinline__ void store_pair(Value *c, Value x, Value y) {
#if WIDE
    *(double2 *)c = make_double2(x, y);
#else
    *(float2 *)c = make_float2(x, y);
#endif
}

// A thread holds of every 8 columns two neighbours, in its row of the upper 8 and of the lower 8.
template <typename Total>
__device__ __forceinline__ void finish(const Problem &p, int index, int group, int block,
                                       bool first, bool last, const Total (&sum)[REGISTERS]) {
    Tile tile = tile_at(p, index);
    int row = my_row(tile, group), column = tile.column + (threadIdx.x & 3) * 2, m = p.a.rows,
        n = p.b.rows;
    const int *scales_a = scales_of(p.a, tile, block), *scales_b = scales_of(p.b, tile, block);
    Value *c = (Value *)p.c + tile.product * p.c_stride;
    const Value *c_in = (const Value *)p.c_in + tile.product * p.c_in_stride;
#pragma unroll
    for (int low = 0; low < 2; low++) {
        int r = row + low * 8;
        Unit a = last_unit(scales_a, r, m);
        Destination to{c + r * p.c_leading, c_in + r * p.c_in_leading, r < m ? n : 0, first, last};
        // The usual case by itself, and free of tests.
        bool whole = first && last && p.alpha == 1.0 && p.beta == 0.0 && r < m &&
                     tile.column + TILE_N <= n && ((u64)to.c & (2 * sizeof(Value) - 1)) == 0;
        if (whole) {
#pragma unroll
            for (int i = 0; i < REGISTERS; i += 4) {
                int j = column + 2 * i;
                store_pair(to.c + j, scaled((Value)sum[i + 2 * low], a, last_unit(scales_b, j, n)),
                           scaled((Value)sum[i + 2 * low + 1], a, last_unit(scales_b, j + 1, n)));
            }
        } else {
#pragma unroll
            for (int i = 0; i < REGISTERS; i += 4) {
                int j = column + 2 * i;
                store(p, to, j, scaled((Value)sum[i + 2 * low], a, last_unit(scales_b, j, n)),
                      scaled((Value)sum[i + 2 * low + 1], a, last_unit(scales_b, j + 1, n)));
            }
        }
    }
}

// ---- roles ------------------------------------------------------------------------------------

struct Ring {  // where the producer, or a consumer, stands in the ring of stages
    int stage = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ int before() const { return stage ? stage - 1 : STAGES - 1; }
};

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

    // One half of the stage at `a`, for accumulators GROUP and on. keep: whether it adds to what
    // they hold.
    template <int GROUP, int HELD>
    __device__ __forceinline__ void issue(Sum (&acc)[HELD][REGISTERS],
                                          u32 (&f)[IN_REGISTERS + 1][4], u32 a, int half,
                                          int keep) const {
#pragma unroll
        for (int s = 0; s < IN_REGISTERS; s++)
            load_fragment(f[s], a + s * A_SLICE + (my_fragment ^ half * 32));
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
#if ELEMENT == 0
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
                multiplier.issue<0>(acc, f[0], a, 0, 1);
                wait_products<1>();  // all but those just issued: the stage before this is free
                keep_until_here(f[1]);
                if (step != begin) release(empty + 8 * ring.before());
                multiplier.issue<0>(acc, f[1], a, 1, 1);
                wait_products<1>();
                keep_until_here(f[0]);
                ring.advance();
            }
            wait_products<0>();
            keep_until_here(f[1]);
            if (end != begin) release(empty + 8 * ring.before());
            if (work.part && !complete(p, work.tile - (count - p.tail), group, acc)) break;
            Partial sum[REGISTERS];
#pragma unroll
            for (int i = 0; i < REGISTERS; i++) sum[i] = combined(acc, i);
            asm volatile("" ::: "memory");  // nothing of the epilogue earlier: registers are full
            int block = p.blocks > 1 ? begin / p.steps_per_block : 0;
            finish(p, work.tile, group, block, work.part || begin == 0, work.part || end == p.steps,
                   sum);
            begin = end;
        } while (begin < work.end);
    }
}

#else

// Consumers take turns to issue an interval's products: while one promotes, the other multiplies.
// Without turns the tensor cores serve both alternately, both finish together, and both promote.
__device__ __forceinline__ void wait_turn(int group) {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void pass_turn(int group) {
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group ^ 1)) : "memory");
}

#if ELEMENT == 0

// The scales of a block for what a thread holds: fetched while the block before is being multiplied.
struct BlockScales {
    static constexpr int COLUMNS = GROUPED ? REGISTERS / 4 : REGISTERS / 2;
    int a[2], b[COLUMNS];

    __device__ __forceinline__ void fetch(const Problem &p, const Tile &tile, int row, int block) {
        block = min(block, p.blocks - 1);
        int m = p.a.rows, n = p.b.rows, column = tile.column + (threadIdx.x & 3) * 2;
        const int *of_a = scales_of(p.a, tile, block), *of_b = scales_of(p.b, tile, block);
        a[0] = row < m ? __ldg(of_a + row) : 0;
        a[1] = row + 8 < m ? __ldg(of_a + row + 8) : 0;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            int j = GROUPED ? column + 8 * i : column + 8 * (i >> 1) + (i & 1);
            b[i] = j < n ? __ldg(of_b + j) : 0;
        }
    }

    // Whether every unit, and every product of two, is a normal float.
    __device__ __forceinline__ bool near() const {
        u32 furthest = max((u32)((a[0] >> 9) + 60), (u32)((a[1] >> 9) + 60));
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) furthest = max(furthest, (u32)((b[i] >> 9) + 60));
        return !WIDE && furthest <= 120;
    }

    __device__ __forceinline__ int column(int i) const {
        return b[GROUPED ? i >> 2 : (i >> 2) * 2 + (i & 1)];
    }
};

__device__ __forceinline__ float near_unit(int scale) {
    return (float)(scale & 511) * Precision<float>::power(scale >> 9);
}

// Adds the sums of one block to those of all before.
__device__ __forceinline__ void promote(Partial (&total)[REGISTERS],
                                        Sum (&acc)[ACCUMULATORS][REGISTERS],
                                        const BlockScales &scales) {
    if (scales.near()) {
        float a[2] = {near_unit(scales.a[0]), near_unit(scales.a[1])};
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) {
            float both = a[i >> 1 & 1] * near_unit(scales.column(i));
            // Units that are powers of two make an exact product: then it is rounded with the sum.
            if (GROUPED)
                total[i] = rounded::multiply_add(combined(acc, i), (Partial)both, total[i]);
            else
                total[i] =
                    rounded::add(total[i], rounded::multiply(combined(acc, i), (Partial)both));
        }
    } else {
        Unit a[2] = {unit(scales.a[0]), unit(scales.a[1])};
#pragma unroll
        for (int i = 0; i < REGISTERS; i++)
            total[i] = rounded::add(
                total[i], scaled(combined(acc, i), a[i >> 1 & 1], unit(scales.column(i))));
    }
}

#if INTERVAL > 1
// Steps that a consumer takes in one turn. Stages are free again when both have read them, and the
// last of a turn that does not end a block only when the next begins: a consumer that took more
// would wait for stages that the other cannot free before its own turn.
constexpr int MOST_STEPS = INTERVAL / 2 <= STAGES ? INTERVAL / 2 : STAGES - 1;
#endif

// One block, of half a step or of INTERVAL / 2 steps. Returns the first step after it.
__device__ __forceinline__ int consume_block(const Problem &p, const Multiplier &multiplier,
                                             const Tile &tile, int row, int step, Ring &ring,
                                             u32 buffers, u32 full, u32 empty,
                                             Partial (&total)[REGISTERS], BlockScales &scales) {
    int group = multiplier.group;
    Sum acc[ACCUMULATORS][REGISTERS];
    u32 f[2][IN_REGISTERS + 1][4] = {};
#if INTERVAL == 1
    wait(full + 8 * ring.stage, ring.parity);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        wait_turn(group);
        multiplier.issue<0>(acc, f[half], buffers + ring.stage * STAGE, half, 0);
        pass_turn(group);
        int block = 2 * step + half;
        BlockScales next;
        next.fetch(p, tile, row, block + 1);
        wait_products<0>();
        keep_until_here(f[half]);
        if (half) release(empty + 8 * ring.stage);
        if (block < p.blocks) promote(total, acc, scales);
        scales = next;
    }
    ring.advance();
    return step + 1;
#else
    const int begin = step, end = min(begin + INTERVAL / 2, p.steps);
    do {
        const int stop = min(step + MOST_STEPS, end);
        wait_turn(group);
        for (; step < stop; step++) {
            wait(full + 8 * ring.stage, ring.parity);
            u32 a = buffers + ring.stage * STAGE;
            multiplier.issue<0>(acc, f[0], a, 0, step != begin);
            wait_products<1>();  // all but those just issued: the stage before this is free
            keep_until_here(f[1]);
            if (step != begin) release(empty + 8 * ring.before());
            multiplier.issue<0>(acc, f[1], a, 1, 1);
            wait_products<1>();
            keep_until_here(f[0]);
            ring.advance();
        }
        pass_turn(group);
    } while (MOST_STEPS < INTERVAL / 2 && step < end);
    wait_products<0>();
    keep_until_here(f[1]);
    release(empty + 8 * ring.before());
    promote(total, acc, scales);
    scales.fetch(p, tile, row, end / (INTERVAL / 2));
    return end;
#endif
}

#else

struct BlockScales {  // of floating-point slices: one block, scaled in the end
    __device__ __forceinline__ void fetch(const Problem &, const Tile &, int, int) {}
};

// Multiplies HALVES of a step into accumulator GROUP and adds that to the total, then the next
// accumulator: one is enough, and leaves registers for a wide tile.
template <int GROUP, int HALVES>
__device__ __forceinline__ void consume_groups(const Multiplier &multiplier, u32 a, int half,
                                               Partial (&total)[REGISTERS]) {
    Sum acc[1][REGISTERS];
    u32 f[2][IN_REGISTERS + 1][4];
    wait_turn(multiplier.group);
    multiplier.issue<GROUP>(acc, f[0], a, half, 0);
    if (HALVES == 2) multiplier.issue<GROUP>(acc, f[1], a, 1, 1);
    pass_turn(multiplier.group);
    wait_products<0>();
    keep_until_here(f[0]);
    if (HALVES == 2) keep_until_here(f[1]);
#pragma unroll
    for (int i = 0; i < REGISTERS; i++)
        total[i] = weight(GROUP) ? rounded::multiply_add(
                                       acc[0][i], Precision<float>::power(weight(GROUP)), total[i])
                                 : rounded::add(total[i], acc[0][i]);
    if constexpr (GROUP + 1 < ACCUMULATORS)
        consume_groups<GROUP + 1, HALVES>(multiplier, a, half, total);
}

__device__ __forceinline__ int consume_block(const Problem &p, const Multiplier &multiplier,
                                             const Tile &tile, int row, int step, Ring &ring,
                                             u32 buffers, u32 full, u32 empty,
                                             Partial (&total)[REGISTERS], BlockScales &) {
    wait(full + 8 * ring.stage, ring.parity);
    u32 a = buffers + ring.stage * STAGE;
#if INTERVAL == 1
    consume_groups<0, 1>(multiplier, a, 0, total);
    consume_groups<0, 1>(multiplier, a, 1, total);
#else
    consume_groups<0, 2>(multiplier, a, 0, total);
#endif
    release(empty + 8 * ring.stage);
    ring.advance();
    return step + 1;
}

#endif

__device__ __forceinline__ void consume(const Problem &p, u32 buffers, u32 full, u32 empty,
                                        int group) {
    const Multiplier multiplier(group);
    const int count = tile_count(p);
    Ring ring;
    if (group == 1) pass_turn(group);  // the first turn is the other's
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        const Tile tile = tile_at(p, index);
        const int row = my_row(tile, group);
        Partial total[REGISTERS];
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) total[i] = 0;
        BlockScales scales;
        scales.fetch(p, tile, row, 0);
        for (int step = 0; step < p.steps;)
            step = consume_block(p, multiplier, tile, row, step, ring, buffers, full, empty, total,
                                 scales);
        finish(p, index, group, 0, true, true, total);
    }
}

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
                         "r"(CONSUMERS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
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
