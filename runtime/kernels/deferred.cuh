// Floating-point sums in two accumulators, of which only the one of weight 0 is promoted. For Hopper.
//
// A step's products of weight 0 are issued first, then those of the other accumulator. While the
// tensor cores make the latter, the former are added to totals in registers, every DEFERRED steps:
// promotion costs no time of theirs, and consumers need no turns.

static_assert(ACCUMULATORS == 2 && weight(1) == 0, "one accumulator beside that of weight 0");
static_assert(IN_REGISTERS == 0, "slices of A are read from shared memory");

constexpr int LATE = 0, PROMOTED = 1;

__device__ __forceinline__ void consume(const Problem &p, u32 buffers, u32 full, u32 empty,
                                        int group) {
    const Multiplier multiplier(group);
    const int count = tile_count(p);
    Ring ring;
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        const Tile tile = tile_at(p, index);
        Sum total[REGISTERS], late[1][REGISTERS], sum[1][REGISTERS];
#pragma unroll
        for (int i = 0; i < REGISTERS; i++) total[i] = late[0][i] = 0;
        u32 none[IN_REGISTERS + 1][4] = {};
        for (int step = 0; step < p.steps; step++) {
            wait(full + 8 * ring.stage, ring.parity);
            const u32 a = buffers + ring.stage * STAGE;
            multiplier.issue<PROMOTED>(sum, none, a, 0, step % DEFERRED != 0);
            multiplier.issue<PROMOTED>(sum, none, a, 1, 1);
            multiplier.issue<LATE>(late, none, a, 0, 1);
            multiplier.issue<LATE>(late, none, a, 1, 1);
            wait_products<2>();  // those of weight 0 are done, and with them the step before
            if (step) release(empty + 8 * ring.before());
            if (step % DEFERRED == DEFERRED - 1 || step == p.steps - 1) {
#pragma unroll
                for (int i = 0; i < REGISTERS; i++) total[i] = rounded::add(total[i], sum[0][i]);
            }
            ring.advance();
        }
        int units[SHARE];
        fetch(units, p, tile, group, 0);
        wait_products<0>();
        if (p.steps) release(empty + 8 * ring.before());
#pragma unroll
        for (int i = 0; i < REGISTERS; i++)
            total[i] = rounded::multiply_add(late[0][i], Precision<float>::power(weight(LATE)),
                                             total[i]);
        finish(p, tile, group, units, true, true, total);
    }
}
