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
// A_DIGITS, B_DIGITS: A and B are integers of so many digits, whose product is C: see `digits.cuh`. A
// tile's products are made one after the other, and its values stored at their end.

#include "shared_constants.cuh"

#define ELEMENT ELEMENT_INT8

#ifndef TILE_M
#define TILE_M 256
#define TILE_N 192
#define STAGES 8
#define COUNT 14
#define MODULI 256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199
#endif

constexpr int CONSUMERS = 2;
constexpr int DEPTH = TILE_M / 128;  // times 64 rows, of each consumer

#include "wgmma.cuh"
#include "residue_tiles.cuh"
#include "residue_sums.cuh"

constexpr int A_STAGE = TILE_M * STEP, B_STAGE = TILE_N * STEP, STAGE = A_STAGE + B_STAGE;
constexpr int THREADS = 128 * (CONSUMERS + 1);

// As `multiply`, of bytes with a sign (s8) or without (u8).
__device__ __forceinline__ void multiply_bytes(Sum (&d)[REGISTERS], u64 a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned." SHAPE "k32.s32." A_BYTES "." B_BYTES " {" NAMES
                 "}, " P0 ", " P1 ", p;\n}"
                 : BINDINGS(d)
                 : "l"(a), "l"(b));
}

// a, b: (rows / 64, slices, steps, 64, 64) bytes, rows those of whole tiles. out: see `residue_tiles.cuh`.
struct Problem {
    const unsigned char *a, *b;
    unsigned char *out;
    int steps, tile_rows, tile_columns, group, triangle;
};

struct Ring {  // where the producer, or a consumer, stands in the STAGES buffers
    int stage = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ int before() const { return stage ? stage - 1 : STAGES - 1; }
};

// By one thread, before all others may use the barriers.
__device__ __forceinline__ void make_ring(u32 full, u32 empty) {
    for (int s = 0; s < STAGES; s++) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s),
                     "r"(ARRIVALS * CONSUMERS));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

constexpr int A_SLICES = A_DIGITS ? A_DIGITS : COUNT, B_SLICES = B_DIGITS ? B_DIGITS : COUNT;

// A tile, or, of residues, a tile modulo one number.
struct Task {
    int modulus, place;  // place: of what it leaves
    Tile tile;

    __device__ __forceinline__ Task(const Problem &p, int index) {
        const int of_one = tiles(p);
        modulus = index / of_one;
        tile = tile_of<TILE_M, TILE_N>(index - modulus * of_one, p.tile_rows, p.tile_columns,
                                       p.group, p.triangle);
        place = (modulus * p.tile_rows + tile.row) * p.tile_columns + tile.column;
    }
    static __device__ __forceinline__ int tiles(const Problem &p) {
        return p.triangle ? p.triangle : p.tile_rows * p.tile_columns;
    }
    static __device__ __forceinline__ int count(const Problem &p) {
        return tiles(p) * (A_DIGITS ? 1 : COUNT);
    }
};

__device__ __forceinline__ void produce(const Problem &p, u32 buffers, u32 full, u32 empty) {
    const u64 slice = (u64)p.steps * PIECE, a_apart = A_SLICES * slice, b_apart = B_SLICES * slice;
    Ring ring;
    auto product = [&](const Tile &tile, int left, int right) {
        const unsigned char *a = p.a + tile.row * (TILE_M / 64) * a_apart + left * slice;
        const unsigned char *b = p.b + tile.column * (TILE_N / 64) * b_apart + right * slice;
        for (int step = 0; step < p.steps; step++, ring.advance()) {
            const u32 barrier = full + 8 * ring.stage, to = buffers + ring.stage * STAGE;
            wait(empty + 8 * ring.stage, ring.parity ^ 1);
            expect(barrier, STAGE);
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
#if A_DIGITS
#pragma unroll 1
        for (int order = 0; order < ORDERS; order++)
#pragma unroll 1
            for (int left = least_digit(order); left <= most_digit(order); left++)
                product(task.tile, left, order - left);
#else
        product(task.tile, task.modulus, task.modulus);
#endif
    }
}

// Adds products of steps. Has waited for them, and released what they are of, when it ends.
__device__ __forceinline__ void add(Sum (&sum)[DEPTH][REGISTERS], int steps, Ring &ring, u32 mine,
                                    u32 buffers, u32 full, u32 empty) {
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        wait(full + 8 * ring.stage, ring.parity);
        const u32 a = mine + ring.stage * STAGE;
        const u32 b = buffers + ring.stage * STAGE + A_STAGE;
        fence_registers();
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++)
                multiply_bytes(sum[d], describe(a + d * 64 * STEP + half * 32),
                               describe(b + half * 32));
        }
        commit();
        wait_products<1>();  // all but those just issued: the stage before this is free
        if (step) release(empty + 8 * ring.before());
        ring.advance();
    }
    wait_products<0>();
    release(empty + 8 * ring.before());
}

__device__ __forceinline__ void clear(Sum (&sum)[DEPTH][REGISTERS]) {
#pragma unroll
    for (int i = 0; i < DEPTH * REGISTERS; i++) sum[i / REGISTERS][i % REGISTERS] = 0;
}

#if A_DIGITS

__device__ __forceinline__ void consume(const Problem &p, const Matrix &c, u32 buffers, u32 full,
                                        u32 empty, int consumer) {
    const u32 mine = buffers + consumer * DEPTH * 64 * STEP;
    const long long apart = (long long)p.tile_rows * p.tile_columns * TILE_M * TILE_N;
    Ring ring;
    for (int index = blockIdx.x; index < Task::count(p); index += gridDim.x) {
        const Task task(p, index);
        Sum sum[DEPTH][REGISTERS];
        clear(sum);
#pragma unroll 1
        for (int order = 0;; order++) {
            const int products = most_digit(order) - least_digit(order) + 1;
            add(sum, products * p.steps, ring, mine, buffers, full, empty);
            if (order == ORDERS - 1) break;
#pragma unroll
            for (int d = 0; d < DEPTH; d++)
                carry(p.out + order * apart + unit_at(task.place, consumer * DEPTH + d, 0), sum[d],
                      threadIdx.x & 127);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const int group = consumer * DEPTH + d;
            store_values(c, task.tile.row * TILE_M + group * 64, task.tile.column * TILE_N, sum[d],
                         threadIdx.x & 127, p.out + unit_at(task.place, group, 0), apart);
        }
    }
}

#else

struct Matrix {};

__device__ __forceinline__ void consume(const Problem &p, const Matrix &, u32 buffers, u32 full,
                                        u32 empty, int consumer) {
    const u32 mine = buffers + consumer * DEPTH * 64 * STEP;
    Ring ring;
    for (int index = blockIdx.x; index < Task::count(p); index += gridDim.x) {
        const Task task(p, index);
        int begin = 0;
        do {
            const int end = min(begin + SEGMENT, p.steps);
            Sum sum[DEPTH][REGISTERS];
            clear(sum);
            add(sum, end - begin, ring, mine, buffers, full, empty);
            const Reduction reduced(task.modulus);
#pragma unroll
            for (int d = 0; d < DEPTH; d++)
                store(p.out + unit_at(task.place, consumer * DEPTH + d, 0), reduced, sum[d],
                      threadIdx.x & 127, begin == 0);
            begin = end;
        } while (begin < p.steps);
    }
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
residue_gemm(const unsigned char *a, const unsigned char *b, unsigned char *out, void *values,
             long long steps, long long tile_rows, long long tile_columns, long long group_rows,
             long long m, long long n, long long leading, long long paired, long long triangle,
             const int *gate, long long wanted) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) u64 barriers[2 * STAGES];
    const Problem p = {a, b, out, (int)steps, (int)tile_rows, (int)tile_columns,
                       (int)group_rows, (int)triangle};
#if A_DIGITS
    const Matrix c = {(Value *)values, (int)m, (int)n, leading, paired != 0,
                      triangle != 0};
#else
    const Matrix c;
#endif
    const u32 buffers = (u32)__cvta_generic_to_shared(memory);
    const u32 full = (u32)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) make_ring(full, empty);
    __syncthreads();
    follow();
    if (gate && *gate != wanted) return;
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be uniform
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) produce(p, buffers, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume(p, c, buffers, full, empty, group - 1);
    }
}
