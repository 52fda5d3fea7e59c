// Residues of A·B modulo p_1 … p_COUNT, from residues of A and of B, for Hopper (sm_90a). Of complex
// numbers there are two products for each modulus, which stands in MODULI twice.
//
//   warpgroup 0, one thread   producer: copies a step (64 bytes of K) of A's and B's tile into a ring
//                             of STAGES buffers, by a bulk copy for each 64 rows: packing has laid
//                             their step out as wgmma wants it.
//   warpgroups 1 … CONSUMERS  each multiplies 64 rows of the tile by all its columns, in INT32.
//
//   Blocks persist and take the tiles of one modulus after the other, in groups of rows.
//
// A thread stores (sum + ⌊p / 2⌋) mod p of its own sums as bytes, in the order in which it holds
// them, 16 at a time: a warp writes 512 bytes that lie together, and `residue_result.cu` reads them
// so. Sums of SEGMENT steps are below 2^30; what was stored of a segment is added to the next one's.
// Modulo 256 they may wrap.
//
// gate, wanted: nothing is done unless that word has this value; 0: there is none.
//
// A_DIGITS, B_DIGITS: A and B are integers of so many digits, whose product is C. A tile's products are
// made one after the other, and its values stored at their end.

#include "shared_constants.cuh"

#define ELEMENT ELEMENT_INT8

constexpr int CONSUMERS = 2, THREADS = 128 * (CONSUMERS + 1), RESIDENT = 1;
constexpr int BLOCK_M = TILE_M, BLOCK_N = TILE_N;
constexpr int PARTS = TILE_M / 64 / CONSUMERS, PART_ROWS = 64;  // of each consumer
constexpr int A_STAGE = TILE_M * STEP, B_STAGE = TILE_N * STEP, STAGE = A_STAGE + B_STAGE;

#include "wgmma.cuh"
#include "ring.cuh"
#include "residue_sums.cuh"

__device__ __forceinline__ void produce(const Problem &p, Ring ring) {
    const u64 slice = p.slice(), a_apart = A_SLICES * slice, b_apart = B_SLICES * slice;
    auto copy_product = [&](const Tile &tile, int left, int right) {
        const unsigned char *a = p.a + tile.row * (TILE_M / 64) * a_apart + left * slice;
        const unsigned char *b = p.b + tile.column * (TILE_N / 64) * b_apart + right * slice;
        for (int step = 0; step < p.steps; step++, ring.advance()) {
            const u32 barrier = ring.barrier(), to = ring.buffer();
            ring.wait_for_room();
#pragma unroll
            for (int i = 0; i < TILE_M / 64; i++) copy(to + i * PIECE, a + i * a_apart, PIECE, barrier);
#pragma unroll
            for (int i = 0; i < TILE_N / 64; i++)
                copy(to + A_STAGE + i * PIECE, b + i * b_apart, PIECE, barrier);
            a += PIECE, b += PIECE;
        }
    };
    for (int index = blockIdx.x; index < Task::count(p); index += gridDim.x) {
        const Task task(p, index);
#pragma unroll 1
        for (int order = 0; order < ORDERS; order++)
#pragma unroll 1
            for (int left = least_digit(order); left <= most_digit(order); left++)
                copy_product(task.part, A_DIGITS ? left : task.modulus,
                             A_DIGITS ? order - left : task.modulus);
    }
}

// Adds products of steps. Has waited for them, and released what they are of, when it ends.
__device__ __forceinline__ void add(Sums &sum, int steps, Ring &ring, int consumer) {
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        ring.wait_for_data();
        const u32 a = ring.buffer() + consumer * PARTS * PIECE, b = ring.buffer() + A_STAGE;
        fence_registers();
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < PARTS; i++)
                multiply(sum[i], describe(a + i * PIECE + half * 32), describe(b + half * 32), 1);
        }
        commit();
        wait_products<1>();  // all but those just issued: the stage before this is free
        if (step) ring.release_last();
        ring.advance();
    }
    wait_products<0>();
    ring.release_last();
}

__device__ __forceinline__ void consume(const Problem &p, Ring ring, int consumer) {
    for (int index = blockIdx.x; index < Task::count(p); index += gridDim.x)
        make(
            p, Task(p, index), [&](Sums &sum, int steps) { add(sum, steps, ring, consumer); },
            [&](const Tile &part) -> Corner {
                return {part.row * TILE_M + consumer * PARTS * 64, part.column * TILE_N,
                        int(threadIdx.x & 127)};
            });
}

__device__ __forceinline__ void run(const Problem &p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const Ring ring(memory, barriers);
    if (p.is_shut()) return;
    divide([&] { produce(p, ring); }, [&](int consumer) { consume(p, ring, consumer); });
}
