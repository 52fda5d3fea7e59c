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

#ifndef TILE_M
#define TILE_M 256
#define TILE_N 192
#define BLOCK_M 256
#define BLOCK_N 192
#define WARP_N 96
#define RESIDENT 1
#define STAGES 3
#define COUNT 14
#define MODULI 256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARP_M = 64, ROW_TILES = WARP_M / 16;
constexpr int REGISTERS = WARP_N / 2;   // of 16 rows of a warp
constexpr int PAIRS = WARP_N / 16;      // of 8 columns each
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int A_STAGE = BLOCK_M * STEP, B_STAGE = BLOCK_N * STEP, STAGE = A_STAGE + B_STAGE;

static_assert(TILE_M % BLOCK_M == 0 && TILE_N % BLOCK_N == 0, "parts of tiles");
static_assert(BLOCK_M % 64 == 0 && BLOCK_N % 64 == 0 && THREADS == 256, "what is copied at once");
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && WARP_N % 32 == 0, "parts of parts");
static_assert(PAIRS % 2 == 0 && STAGES >= 2, "what is loaded while another is read");

#include "residue_tiles.cuh"
#include "residue_sums.cuh"

constexpr int A_SLICES = A_DIGITS ? A_DIGITS : COUNT, B_SLICES = B_DIGITS ? B_DIGITS : COUNT;

typedef int Sums[ROW_TILES][REGISTERS];

// a, b: (rows / 64, slices, steps, 64, 64) bytes, rows those of whole tiles. out: see `residue_tiles.cuh`.
struct Problem {
    const unsigned char *a, *b;
    unsigned char *out;
    int steps, tile_rows, tile_columns, group, m, n, triangle;
};

// ---- instructions ----------------------------------------------------------------------------------

__device__ __forceinline__ void copy16(u32 to, const unsigned char *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all groups of copies but the last so many have arrived.
template <int PENDING> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// 16 rows, 8 columns and 32 bytes of K. sum: of a row two neighbours, then of the row 8 below.
__device__ __forceinline__ void multiply_bytes(int *sum, const u32 (&a)[4], const u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." A_BYTES "." B_BYTES
                 ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- what a block makes ----------------------------------------------------------------------------

// A part of C, or, of residues, a part modulo one number.
struct Task {
    int modulus;
    Tile part;  // in parts

    __device__ __forceinline__ Task(const Problem &p, int index) {
        const int of_one = parts(p);
        modulus = index / of_one;
        part = tile_of<BLOCK_M, BLOCK_N>(index - modulus * of_one, part_rows(p), part_columns(p),
                                         p.group, p.triangle);
    }
    static __device__ __forceinline__ int part_rows(const Problem &p) {
        return (p.m + BLOCK_M - 1) / BLOCK_M;
    }
    static __device__ __forceinline__ int part_columns(const Problem &p) {
        return (p.n + BLOCK_N - 1) / BLOCK_N;
    }
    static __device__ __forceinline__ int parts(const Problem &p) {
        return p.triangle ? p.triangle : part_rows(p) * part_columns(p);
    }
    static __device__ __forceinline__ int count(const Problem &p) {
        return parts(p) * (A_DIGITS ? 1 : COUNT);
    }
};

// The first row and column of C that a warp makes.
struct Corner {
    int row, column;

    __device__ __forceinline__ Corner(const Tile &part) {
        const int warp = threadIdx.x / 32;
        row = part.row * BLOCK_M + warp % WARPS_M * WARP_M;
        column = part.column * BLOCK_N + warp / WARPS_M * WARP_N;
    }
    // Where its bytes modulo a number begin; of digits, those of the first order.
    __device__ __forceinline__ unsigned char *place(const Problem &p, int modulus) const {
        const int tile_row = row / TILE_M, tile_column = column / TILE_N;
        const int tile = (modulus * p.tile_rows + tile_row) * p.tile_columns + tile_column;
        return p.out + unit_at(tile, (row - tile_row * TILE_M) / 64,
                               (column - tile_column * TILE_N) / 32);
    }
};

// ---- from global to shared memory ------------------------------------------------------------------

// What is copied next: the steps of a block's tasks, one after the other, and the last one again where
// there are no more. Of digits a task is several products, of an order after the other.
struct Copies {
    const unsigned char *a, *b;  // this thread's first 16 bytes of the step
    int index, steps;            // the task, and its steps that are still to be copied
    u32 base, fill;              // the first stage, and the one to fill
#if A_DIGITS
    int order, left;
#endif

    __device__ __forceinline__ Copies(const Problem &p, u32 base)
        : index(blockIdx.x), base(base), fill(base) {
#if A_DIGITS
        order = left = 0;
#endif
        begin(p);
    }

    // Bytes of a slice of 64 rows.
    static __device__ __forceinline__ u64 slice(const Problem &p) { return (u64)p.steps * PIECE; }

    __device__ __forceinline__ void begin(const Problem &p) {
        const Task task(p, index);
#if A_DIGITS
        const int of_a = left, of_b = order - left;
#else
        const int of_a = task.modulus, of_b = task.modulus;
#endif
        const u64 a_rows = task.part.row * (BLOCK_M / 64) * A_SLICES + of_a;
        const u64 b_rows = task.part.column * (BLOCK_N / 64) * B_SLICES + of_b;
        a = p.a + a_rows * slice(p) + threadIdx.x * 16;
        b = p.b + b_rows * slice(p) + threadIdx.x * 16;
        steps = p.steps;
    }

    // The next product, if there is one.
    __device__ __forceinline__ void next(const Problem &p) {
        steps = 1;
#if A_DIGITS
        if (left < most_digit(order)) {
            left++;
        } else if (order < ORDERS - 1) {
            left = least_digit(++order);
        } else {
            if (index + gridDim.x >= Task::count(p)) return;
            index += gridDim.x, order = left = 0;
        }
#else
        if (index + gridDim.x >= Task::count(p)) return;
        index += gridDim.x;
#endif
        begin(p);
    }

    // One of PAIRS shares of a step: all threads copy 64 rows at once.
    __device__ __forceinline__ void copy(const Problem &p, int share) const {
        constexpr int OF_A = BLOCK_M / 64, OF_B = BLOCK_N / 64;
        const u32 to = fill + threadIdx.x * 16;
#pragma unroll
        for (int i = 0; i < OF_A + OF_B; i++) {
            if (i * PAIRS / (OF_A + OF_B) != share) continue;
            if (i < OF_A) copy16(to + i * PIECE, a + i * A_SLICES * slice(p));
            else copy16(to + i * PIECE, b + (i - OF_A) * B_SLICES * slice(p));
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

// ldmatrix takes the address of one row of a matrix from each lane, and gives a lane word
// (row lane / 4, bytes 4 · (lane % 4)) of each: what mma wants of either operand. The second half of a
// step is two chunks on, which the swizzle makes an exclusive or.
__device__ __forceinline__ u32 swizzled(int row, int chunk) {
    return row * STEP + ((chunk ^ (row >> 1 & 3)) << 4);
}

// What a warp reads, and where it stands in the ring.
struct Reader {
    u32 stage;
    u32 a, b;           // of a lane, from the stage on
    u32 of_a[ROW_TILES][4], of_b[2][4];

    __device__ __forceinline__ Reader(u32 base) : stage(base) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        // Matrices of A: rows 0–7, rows 8–15; the same one chunk on.
        a = swizzled(warp % WARPS_M * WARP_M + lane % 16, lane / 16);
        // Matrices of B: columns 0–7, the same one chunk on; columns 8–15 likewise.
        b = A_STAGE + swizzled(warp / WARPS_M * WARP_N + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    }
    __device__ __forceinline__ void load_a(int half, int i) {
        load_matrices(of_a[i], (stage + a ^ half * 32) + i * 16 * STEP);
    }
    __device__ __forceinline__ void load_b(int half, int pair) {
        load_matrices(of_b[pair & 1], (stage + b ^ half * 32) + pair * 16 * STEP);
    }
    __device__ __forceinline__ void load_first() {
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) load_a(0, i);
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
                for (int i = 0; i < ROW_TILES; i++) {
#pragma unroll
                    for (int column = 0; column < 2; column++)
                        multiply_bytes(sum[i] + (2 * pair + column) * 4, reader.of_a[i],
                                       reader.of_b[pair & 1] + 2 * column);
                    if (last) reader.load_a(half ^ 1, i);
                }
            }
        }
        copies.advance(p);
    }
}

__device__ __forceinline__ void clear(Sums &sum) {
#pragma unroll
    for (int i = 0; i < ROW_TILES * REGISTERS; i++) sum[i / REGISTERS][i % REGISTERS] = 0;
}

#if A_DIGITS

__device__ __forceinline__ void multiply(const Problem &p, const Matrix &c, const Task &task,
                                         Reader &reader, Copies &copies) {
    const long long apart = (long long)p.tile_rows * p.tile_columns * TILE_M * TILE_N;
    const int lane = threadIdx.x % 32;
    Sums sum;
    clear(sum);
#pragma unroll 1
    for (int order = 0;; order++) {
        const int products = most_digit(order) - least_digit(order) + 1;
        add(sum, products * p.steps, reader, copies, p);
        if (order == ORDERS - 1) break;
        unsigned char *out = Corner(task.part).place(p, 0) + order * apart;
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) carry(out, sum[i], i * 32 + lane);
    }
    const Corner corner(task.part);
    const unsigned char *out = corner.place(p, 0);
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
        store_values(c, corner.row, corner.column, sum[i], i * 32 + lane, out, apart);
}

#else

struct Matrix {};

// first: known to the compiler, since what adds to earlier sums takes half as long again.
__device__ __forceinline__ void store_all(unsigned char *out, int modulus, const Sums &sum,
                                          bool first) {
    const Reduction reduced(modulus);
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
        store(out, reduced, sum[i], i * 32 + threadIdx.x % 32, first);
}

__device__ __forceinline__ void multiply(const Problem &p, const Matrix &, const Task &task,
                                         Reader &reader, Copies &copies) {
    int begin = 0;
    do {
        const int end = min(begin + SEGMENT, p.steps);
        Sums sum;
        clear(sum);
        add(sum, end - begin, reader, copies, p);
        unsigned char *out = Corner(task.part).place(p, task.modulus);
        if (begin == 0) store_all(out, task.modulus, sum, true);
        else store_all(out, task.modulus, sum, false);
        begin = end;
    } while (begin < p.steps);
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
residue_gemm(const unsigned char *a, const unsigned char *b, unsigned char *out, void *values,
             long long steps, long long tile_rows, long long tile_columns, long long group_rows,
             long long m, long long n, long long leading, long long paired, long long triangle,
             const int *gate, long long wanted) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Problem p = {a,           b,           out,    (int)steps, (int)tile_rows, (int)tile_columns,
                       (int)group_rows, (int)m, (int)n, (int)triangle};
#if A_DIGITS
    const Matrix c = {(Value *)values, (int)m, (int)n, leading, paired != 0,
                      triangle != 0};
#else
    const Matrix c;
#endif
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (gate && *gate != wanted) return;
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
        multiply(p, c, Task(p, index), reader, copies);
}
