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
#include "epilogue.cuh"

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

__device__ __forceinline__ const int *scales_of(const Operand &x, const Tile &tile, int block) {
    return (const int *)((const char *)x.scales + tile.product * x.scales_stride) +
           (u64)block * x.rows;
}

__device__ __forceinline__ Unit unit(int scale) { return unit(scale & 511, scale >> 9); }

// Units of what a warpgroup stores: of its 64 rows, then of the tile's columns. Each of its threads
// fetches a few, while products are under way, and all find them in shared memory.
constexpr bool HAS_UNITS = !(PROMOTE && ELEMENT == 0);  // or promotion has scaled the sums already
constexpr int UNITS = 64 + TILE_N;
constexpr int SHARE = (UNITS + 127) / 128;

__device__ __forceinline__ void fetch(int (&scales)[SHARE], const Problem &p, const Tile &tile,
                                      int group, int block) {
    const int *of_a = scales_of(p.a, tile, block), *of_b = scales_of(p.b, tile, block);
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        int index = (threadIdx.x & 127) + 128 * i, row = tile.row + group * 64 + index,
            column = tile.column + index - 64;
        scales[i] = 0;
        if (index < 64 ? row < p.a.rows : index < UNITS && column < p.b.rows)
            scales[i] = load_now(index < 64 ? of_a + row : of_b + column);
    }
}

__device__ __forceinline__ void wait_group(int group) {  // for the other warps of the group
    asm volatile("bar.sync %0, 128;" ::"r"(3 + group) : "memory");
}

// Adds two neighbours to C, or the one that is one of its columns. first, last: segment of K.
__device__ __forceinline__ void add_two(const Problem &p, Value *c, const Value *c_in, Value x,
                                        Value y, int columns, bool first, bool last) {
    if (columns <= 0) return;
    bool both = columns > 1;
    if (!first) {
        x = rounded::add(x, c[0]);
        if (both) y = rounded::add(y, c[1]);
    }
    if (last) {
        x = rounded::multiply((Value)p.alpha, x);
        y = rounded::multiply((Value)p.alpha, y);
        if (p.beta != 0.0) {
            x = rounded::multiply_add((Value)p.beta, c_in[0], x);
            if (both) y = rounded::multiply_add((Value)p.beta, c_in[1], y);
        }
    }
    c[0] = x;
    if (both) c[1] = y;
}

// A thread holds of every 8 columns two neighbours, in its row of the upper 8 and of the lower 8.
template <typename Total>
__device__ __forceinline__ void finish(const Problem &p, const Tile &tile, int group,
                                       const int (&scales)[SHARE], bool first, bool last,
                                       const Total (&sum)[REGISTERS]) {
    __shared__ __align__(16) Unit made[CONSUMERS][HAS_UNITS ? UNITS : 1];
    Unit *units = made[group];
    const int row = my_row(tile, group), side = (threadIdx.x & 3) * 2;
    Unit a[2] = {};
    if constexpr (HAS_UNITS) {
        wait_group(group);  // nobody reads those of the tile before any more
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            int index = (threadIdx.x & 127) + 128 * i;
            if (index < UNITS) units[index] = unit(scales[i]);
        }
        wait_group(group);
        a[0] = units[row - tile.row - group * 64];
        a[1] = units[row - tile.row - group * 64 + 8];
        units += 64 + side;
    }
    auto value = [&](int i, const Unit &b) {
        return HAS_UNITS ? scaled((Value)sum[i], a[i >> 1 & 1], b) : (Value)sum[i];
    };

    const int m = p.a.rows, n = p.b.rows;
    const long long below = 8 * p.c_leading;
    Value *c = (Value *)p.c + tile.product * p.c_stride + row * p.c_leading + tile.column + side;
    const bool plain = p.alpha == 1.0 && p.beta == 0.0 && tile.row + (group + 1) * 64 <= m &&
                       tile.column + TILE_N <= n;
    const bool paired[2] = {is_paired(c), is_paired(c + below)};
    // The usual cases by themselves, and free of tests.
    if (plain && !first && paired[0] && paired[1]) {
        Value before[REGISTERS];  // all asked for before any is used
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 2)
            load_two(before[i], before[i + 1], c + 2 * (i & ~3) + (i >> 1 & 1) * below);
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 4, c += 8) {
            Unit b[2];
            load_units(b, units + 2 * i);
#pragma unroll
            for (int low = 0; low < 2; low++) {
                int j = i + 2 * low;
                store_two(c + low * below, rounded::add(value(j, b[0]), before[j]),
                          rounded::add(value(j + 1, b[1]), before[j + 1]), true);
            }
        }
    } else if (plain && first) {
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 4, c += 8) {
            Unit b[2];
            load_units(b, units + 2 * i);
#pragma unroll
            for (int low = 0; low < 2; low++)
                store_two(c + low * below, value(i + 2 * low, b[0]), value(i + 2 * low + 1, b[1]),
                          paired[low]);
        }
    } else {
        const Value *c_in = (const Value *)p.c_in + tile.product * p.c_in_stride +
                            row * p.c_in_leading + tile.column + side;
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 4, c += 8, c_in += 8) {
            Unit b[2];
            load_units(b, units + 2 * i);
#pragma unroll
            for (int low = 0; low < 2; low++) {
                int columns = row + low * 8 < m ? n - tile.column - side - 2 * i : 0;
                add_two(p, c + low * below, c_in + low * 8 * p.c_in_leading,
                        value(i + 2 * low, b[0]), value(i + 2 * low + 1, b[1]), columns, first,
                        last);
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
    const int *of_a, *of_b;  // the first block's
    int rows, columns;       // of A and of B from there on

    static __device__ __forceinline__ int place(int i) {
        return GROUPED ? 8 * i : 8 * (i >> 1) + (i & 1);
    }

    __device__ __forceinline__ BlockScales(const Problem &p, const Tile &tile, int row) {
        int column = tile.column + (threadIdx.x & 3) * 2;
        of_a = scales_of(p.a, tile, 0) + row, of_b = scales_of(p.b, tile, 0) + column;
        rows = p.a.rows - row, columns = p.b.rows - column;
        fetch(p, 0);
    }

    __device__ __forceinline__ void fetch(const Problem &p, int block) {
        block = min(block, p.blocks - 1);
        const int *from_a = of_a + (u64)block * p.a.rows, *from_b = of_b + (u64)block * p.b.rows;
        if (rows > 8 && columns > place(COLUMNS - 1)) {  // nearly always, and free of tests
            a[0] = __ldg(from_a), a[1] = __ldg(from_a + 8);
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) b[i] = __ldg(from_b + place(i));
        } else {
            a[0] = rows > 0 ? __ldg(from_a) : 0, a[1] = rows > 8 ? __ldg(from_a + 8) : 0;
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) b[i] = place(i) < columns ? __ldg(from_b + place(i)) : 0;
        }
    }

    // Whether every unit, and every product of two, is a normal float.
    __device__ __forceinline__ bool near() const {
        int least = min(a[0], a[1]), most = max(a[0], a[1]);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) least = min(least, b[i]), most = max(most, b[i]);
        return !WIDE && least >> 9 >= -60 && most >> 9 <= 60;
    }

    __device__ __forceinline__ int column(int i) const {
        return b[GROUPED ? i >> 2 : (i >> 2) * 2 + (i & 1)];
    }
};

__device__ __forceinline__ float near_unit(int scale) {
    // The significand of units that groups share is 256: then one step moves E to its place.
    if (GROUPED) return __int_as_float((scale << 14) + ((8 + 127) << 23) - (256 << 14));
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
                                             int step, Ring &ring, u32 buffers, u32 full, u32 empty,
                                             Partial (&total)[REGISTERS], BlockScales &scales) {
    int group = multiplier.group;
    Sum acc[ACCUMULATORS][REGISTERS];
    u32 f[2][IN_REGISTERS + 1][4] = {};
#if INTERVAL == 1
    wait(full + 8 * ring.stage, ring.parity);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 a = buffers + ring.stage * STAGE;
        multiplier.load(f[half], a, half);
        wait_turn(group);
        multiplier.issue<0>(acc, f[half], a, half, 0);
        pass_turn(group);
        int block = 2 * step + half;
        BlockScales next = scales;
        next.fetch(p, block + 1);
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
            multiplier.load(f[0], a, 0);
            multiplier.issue<0>(acc, f[0], a, 0, step != begin);
            wait_products<1>();  // all but those just issued: the stage before this is free
            keep_until_here(f[1]);
            if (step != begin) release(empty + 8 * ring.before());
            multiplier.load(f[1], a, 1);
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
    scales.fetch(p, end / (INTERVAL / 2));
    return end;
#endif
}

#else

struct BlockScales {  // of floating-point slices: one block, scaled in the end
    __device__ __forceinline__ BlockScales(const Problem &, const Tile &, int) {}
};

// Multiplies HALVES of a step into accumulator GROUP and adds that to the total, then the next
// accumulator: one is enough, and leaves registers for a wide tile.
template <int GROUP, int HALVES>
__device__ __forceinline__ void consume_groups(const Multiplier &multiplier, u32 a, int half,
                                               Partial (&total)[REGISTERS]) {
    Sum acc[1][REGISTERS];
    u32 f[2][IN_REGISTERS + 1][4];
    multiplier.load(f[0], a, half);
    if (HALVES == 2) multiplier.load(f[1], a, 1);
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
                                             int step, Ring &ring, u32 buffers, u32 full, u32 empty,
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
        Partial total[REGISTERS];
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) total[i] = 0;
        BlockScales scales(p, tile, my_row(tile, group));
        for (int step = 0; step < p.steps;)
            step = consume_block(p, multiplier, step, ring, buffers, full, empty, total, scales);
        int units[SHARE] = {};
        if (HAS_UNITS) fetch(units, p, tile, group, 0);
        finish(p, tile, group, units, true, true, total);
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
                         "r"(ARRIVALS * CONSUMERS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    follow();
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
