// Sums that leave their accumulators as K goes by: promoted into totals in registers. For Hopper.

// Consumers take turns to issue an interval's products: while one promotes, the other multiplies.
// Without turns the tensor cores serve both alternately, both finish together, and both promote.
__device__ __forceinline__ void wait_turn(int group) {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void pass_turn(int group) {
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group ^ 1)) : "memory");
}

#if ELEMENT == ELEMENT_INT8

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

    // Whether every unit, g · 2^E, and every product of two, is a normal float. g is 129 … 258.
    __device__ __forceinline__ bool near() const {
        int least = min(a[0], a[1]), most = max(a[0], a[1]);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) least = min(least, b[i]), most = max(most, b[i]);
        return !WIDE && least >> SIGNIFICAND_BITS >= -60 && most >> SIGNIFICAND_BITS <= 55;
    }

    __device__ __forceinline__ int column(int i) const {
        return b[GROUPED ? i >> 2 : (i >> 2) * 2 + (i & 1)];
    }
};

__device__ __forceinline__ float near_unit(int scale) {
    constexpr int UP = 23 - SIGNIFICAND_BITS;
    // The significand of units that groups share is WHOLE: then one step moves E to its place.
    if (GROUPED) return __int_as_float((scale << UP) + ((WHOLE_LOG + 127) << 23) - (WHOLE << UP));
    return (float)(scale & SIGNIFICAND_MASK) * Precision<float>::power(scale >> SIGNIFICAND_BITS);
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
                                             int step, Ring &ring,
                                             Partial (&total)[REGISTERS], BlockScales &scales) {
    int group = multiplier.group;
    Sum acc[ACCUMULATORS][REGISTERS];
    u32 f[2][IN_REGISTERS + 1][4] = {};
#if INTERVAL == 1
    ring.wait_for_data();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 a = ring.buffer();
        multiplier.load(f[half], a, half);
        wait_turn(group);
        multiplier.issue<0>(acc, f[half], a, half, 0);
        pass_turn(group);
        int block = 2 * step + half;
        BlockScales next = scales;
        next.fetch(p, block + 1);
        wait_products<0>();
        keep_until_here(f[half]);
        if (half) ring.release_this();
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
            ring.wait_for_data();
            u32 a = ring.buffer();
            multiplier.load(f[0], a, 0);
            multiplier.issue<0>(acc, f[0], a, 0, step != begin);
            wait_products<1>();  // all but those just issued: the stage before this is free
            keep_until_here(f[1]);
            if (step != begin) ring.release_last();
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
    ring.release_last();
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
// accumulator: one is enough, and leaves registers for a wide tile. No slice goes through registers.
template <int GROUP, int HALVES>
__device__ __forceinline__ void consume_groups(const Multiplier &multiplier, u32 a, int half,
                                               Partial (&total)[REGISTERS]) {
    Sum acc[1][REGISTERS];
    u32 none[IN_REGISTERS + 1][4];
    wait_turn(multiplier.group);
    multiplier.issue<GROUP>(acc, none, a, half, 0);
    if (HALVES == 2) multiplier.issue<GROUP>(acc, none, a, 1, 1);
    pass_turn(multiplier.group);
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < REGISTERS; i++)
        total[i] = weight(GROUP) ? rounded::multiply_add(
                                       acc[0][i], Precision<float>::power(weight(GROUP)), total[i])
                                 : rounded::add(total[i], acc[0][i]);
    if constexpr (GROUP + 1 < ACCUMULATORS)
        consume_groups<GROUP + 1, HALVES>(multiplier, a, half, total);
}

__device__ __forceinline__ int consume_block(const Problem &p, const Multiplier &multiplier,
                                             int step, Ring &ring,
                                             Partial (&total)[REGISTERS], BlockScales &) {
    ring.wait_for_data();
    u32 a = ring.buffer();
#if INTERVAL == 1
    consume_groups<0, 1>(multiplier, a, 0, total);
    consume_groups<0, 1>(multiplier, a, 1, total);
#else
    consume_groups<0, 2>(multiplier, a, 0, total);
#endif
    ring.release_this();
    ring.advance();
    return step + 1;
}

#endif

__device__ __forceinline__ void consume(const Problem &p, Ring ring, int group) {
    const Multiplier multiplier(group);
    const int count = tile_count(p);
    if (group == 1) pass_turn(group);  // the first turn is the other's
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        const Tile tile = tile_at(p, index);
        Partial total[REGISTERS];
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) total[i] = 0;
        BlockScales scales(p, tile, my_row(tile, group));
        for (int step = 0; step < p.steps;)
            step = consume_block(p, multiplier, step, ring, total, scales);
        int units[SHARE] = {};
        if (HAS_UNITS) fetch(units, p, tile, group, 0);
        finish(p, tile, group, units, true, true, total);
    }
}
