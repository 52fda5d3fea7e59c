// Residues of A·B modulo p_1 … p_COUNT, as `residue_gemm.cu` makes them, the same bits: by cp.async,
// ldmatrix and mma.sync, for sm_80 and later.
//
//   grid     blocks persist, and take the parts of C of one modulus after the other, BLOCK_M × BLOCK_N
//            each, in groups of rows. Parts divide the tiles that packing and the result know.
//   block    a warp for 64 rows and WARP_N columns; all of them copy, all of them multiply
//
//   global     A (rows / 64, slices, steps, 64, 64 bytes), B likewise, swizzled as wgmma wants it: 64
//              rows of a step are one run of bytes
//                │  cp.async, STAGES − 1 steps ahead, and on into the next part's
//   shared     STAGES × { A (BLOCK_M, 64 bytes), B (BLOCK_N, 64 bytes) }
//                │  ldmatrix: the swizzle spreads 8 rows of 16 bytes over all banks
//   registers  of 32 bytes of K: A of 64 rows, B of 16 columns and of the next 16;
//              sum[16 rows][8 columns]
//
// While 16 columns are multiplied the next 16 are loaded, and with the last ones, row by row, what of
// A comes next. By then all of a step has been read: the barrier stands there, after which the next
// step may be read, and this one's stage filled again, between the products of the next.
//
// Shared memory of a launch: STAGES · 64 · (BLOCK_M + BLOCK_N) bytes.

#include "shared_constants.cuh"

#define ELEMENT ELEMENT_INT8

constexpr int WARP_M = 64, PART_ROWS = 16, PARTS = WARP_M / PART_ROWS;
constexpr int REGISTERS = WARP_N / 2;   // of a part
constexpr int PAIRS = WARP_N / 16;      // of 8 columns each
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int A_STAGE = BLOCK_M * STEP, B_STAGE = BLOCK_N * STEP, STAGE = A_STAGE + B_STAGE;

static_assert(TILE_M % BLOCK_M == 0 && TILE_N % BLOCK_N == 0, "parts of tiles");
static_assert(BLOCK_M % 64 == 0 && BLOCK_N % 64 == 0 && THREADS == 256, "what is copied at once");
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && WARP_N % 32 == 0, "parts of parts");
static_assert(PAIRS % 2 == 0 && STAGES >= 2, "what is loaded while another is read");

#include "launch.cuh"
#include "mma.cuh"
#include "residue_sums.cuh"

// ---- from global to shared memory ------------------------------------------------------------------

// What is copied next: the steps of a block's tasks, one after the other, and the last one again where
// there are no more. Of digits a task is several products, of an order after the other.
struct Copies {
    const unsigned char *a, *b;  // this thread's first 16 bytes of the step
    int index, order = 0, left = 0;
    int steps;                   // of the product, that are still to be copied
    u32 base, fill;              // the first stage, and the one to fill

    __device__ __forceinline__ Copies(const Problem &p, u32 base)
        : index(blockIdx.x), base(base), fill(base) {
        begin(p);
    }

    __device__ __forceinline__ void begin(const Problem &p) {
        const Task task(p, index);
        const int of_a = A_DIGITS ? left : task.modulus, of_b = A_DIGITS ? order - left : task.modulus;
        const u64 a_rows = task.part.row * (BLOCK_M / 64) * A_SLICES + of_a;
        const u64 b_rows = task.part.column * (BLOCK_N / 64) * B_SLICES + of_b;
        a = p.a + a_rows * p.slice() + threadIdx.x * 16;
        b = p.b + b_rows * p.slice() + threadIdx.x * 16;
        steps = p.steps;
    }

    // The next product, if there is one.
    __device__ __forceinline__ void next(const Problem &p) {
        steps = 1;
        if (left < most_digit(order)) {
            left++;
        } else if (order < ORDERS - 1) {
            left = least_digit(++order);
        } else {
            if (index + gridDim.x >= Task::count(p)) return;
            index += gridDim.x, order = left = 0;
        }
        begin(p);
    }

    // One of PAIRS shares of a step: all threads copy 64 rows at once.
    __device__ __forceinline__ void copy(const Problem &p, int share) const {
        constexpr int OF_A = BLOCK_M / 64, OF_B = BLOCK_N / 64;
        const u32 to = fill + threadIdx.x * 16;
#pragma unroll
        for (int i = 0; i < OF_A + OF_B; i++) {
            if (i * PAIRS / (OF_A + OF_B) != share) continue;
            if (i < OF_A) copy16(to + i * PIECE, a + i * A_SLICES * p.slice());
            else copy16(to + i * PIECE, b + (i - OF_A) * B_SLICES * p.slice());
        }
        if (share == PAIRS - 1) commit();
    }

    __device__ __forceinline__ void advance(const Problem &p) {
        fill = after(fill);
        if (--steps == 0) {
            next(p);
        } else {
            a += PIECE, b += PIECE;
        }
    }

    __device__ __forceinline__ u32 after(u32 stage) const {
        return stage == base + (STAGES - 1) * STAGE ? base : stage + STAGE;
    }
};

// ---- from shared memory to sums --------------------------------------------------------------------

// What a warp reads, and where it stands in the ring.
struct Reader {
    u32 stage;
    u32 a, b;           // of a lane, from the stage on
    u32 of_a[PARTS][4], of_b[2][4];

    __device__ __forceinline__ Reader(u32 base) : stage(base) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        a = lane_of_a(warp % WARPS_M * WARP_M, lane);
        b = A_STAGE + lane_of_b(warp / WARPS_M * WARP_N, lane);
    }
    __device__ __forceinline__ void load_a(int half, int i) {
        load_matrices(of_a[i], (stage + a ^ half * 32) + i * 16 * STEP);
    }
    __device__ __forceinline__ void load_b(int half, int pair) {
        load_matrices(of_b[pair & 1], (stage + b ^ half * 32) + pair * 16 * STEP);
    }
    __device__ __forceinline__ void load_first() {
#pragma unroll
        for (int i = 0; i < PARTS; i++) load_a(0, i);
        load_b(0, 0);
    }
};

// Adds the products of so many steps, of which the first is there for all threads. Then the step after
// them is, if there is one.
__device__ __forceinline__ void add(Sums &sum, int steps, Reader &reader, Copies &copies,
                                    const Problem &p) {
    reader.load_first();
#pragma unroll 1
    for (; steps > 0; steps--) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                const bool last = pair == PAIRS - 1;
                if (half == 0) copies.copy(p, pair);
                if (last && half) {
                    wait_copies<STAGES - 2>();
                    __syncthreads();
                    reader.stage = copies.after(reader.stage);
                }
                if (last) reader.load_b(half ^ 1, 0);
                else reader.load_b(half, pair + 1);
#pragma unroll
                for (int i = 0; i < PARTS; i++) {
#pragma unroll
                    for (int column = 0; column < 2; column++)
                        multiply(sum[i] + (2 * pair + column) * 4, reader.of_a[i],
                                 reader.of_b[pair & 1] + 2 * column);
                    if (last) reader.load_a(half ^ 1, i);
                }
            }
        }
        copies.advance(p);
    }
}

__device__ __forceinline__ void run(const Problem &p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    wait_for_launch();
    if (p.is_shut()) return;
    const u32 base = (u32)__cvta_generic_to_shared(memory);
    Copies copies(p, base);
    Reader reader(base);
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; stage++) {
#pragma unroll
        for (int share = 0; share < PAIRS; share++) copies.copy(p, share);
        copies.advance(p);
    }
    wait_copies<STAGES - 2>();
    __syncthreads();
    for (int index = blockIdx.x; index < Task::count(p); index += gridDim.x)
        make(
            p, Task(p, index), [&](Sums &sum, int steps) { add(sum, steps, reader, copies, p); },
            [&](const Tile &part) -> Corner {
                const int warp = threadIdx.x / 32;
                return {part.row * BLOCK_M + warp % WARPS_M * WARP_M,
                        part.column * BLOCK_N + warp / WARPS_M * WARP_N, (int)threadIdx.x % 32};
            });
}
