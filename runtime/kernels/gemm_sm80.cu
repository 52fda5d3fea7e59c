// The portable GEMM: cp.async, ldmatrix and mma.sync, for sm_80 and later. A block makes one tile of
// C from packed slices; abi.py says how those lie and what is asked for.
//
//   grid     a block per tile, product after product, `group` rows of tiles at a time
//   block    8 warps, WARPS_M × WARPS_N over the tile; all of them copy, all of them multiply
//
//   global     A (steps, COUNT_A, rows8, 64 bytes), B (steps, COUNT_B, rows8, 64 bytes)
//                │  cp.async, STAGES − 1 steps ahead: a tile's rows of a slice are one run of bytes
//   shared     STAGES × { A (COUNT_A, TILE_M, 64 bytes), B (COUNT_B, TILE_N, 64 bytes) }
//                │  ldmatrix: the swizzle spreads 8 rows of 16 bytes over all banks
//   registers  of a warp, for half a step: 32 bytes of K, one instruction's depth for any element:
//              B of all slices and columns, A of all slices and 16 rows, loaded once for all terms;
//              sums[accumulator][16 rows][8 columns], int or float
//
// A step: wait for the oldest stage; barrier; start the copy of the step STAGES − 1 ahead; multiply
// its two halves, an accumulator's terms in the order listed.
//
// Sums are combined, the smallest weight first: p ← p · 2^(w − w') + sum'. Then, into C:
// PROMOTE 0: in memory. Integers after each segment, a block or what INT32 holds: read C, add, write
//            C; floating-point sums after all of K.
// PROMOTE 1: in registers. Integers after each segment; floating-point sums after every INTERVAL
//            half steps, p + C in FP32, and C is scaled in the end. INTERVAL 1: sums live for half
//            a step only, and integers have blocks of 32.
// Integers are scaled before they are added, in the reference's order: the same bits. Last comes the
// row that is added, if any.
//
// Shared memory of a launch: STAGES · 64 · (COUNT_A · TILE_M + COUNT_B · TILE_N) bytes.

#include "gemm.cuh"
#include "mma.cuh"
#include "triangle.cuh"

__host__ __device__ constexpr int most_terms() {
    int most = 0;
    for (int n = 0; n < ACCUMULATORS; ++n)
        if (term_end(n) - term_end(n - 1) > most) most = term_end(n) - term_end(n - 1);
    return most;
}

template <int number> struct Constant {
    static constexpr int value = number;
};

// body(Constant<first>) … body(Constant<last − 1>).
template <int first, int last, typename Body> __device__ __forceinline__ void each(Body body) {
    if constexpr (first < last) {
        body(Constant<first>());
        each<first + 1, last>(body);
    }
}

template <bool condition, typename Then, typename Else> struct Either { using Type = Then; };
template <typename Then, typename Else> struct Either<false, Then, Else> { using Type = Else; };

constexpr bool INTEGER = ELEMENT == ELEMENT_INT8;
constexpr bool HELD = PROMOTE == 1;               // C in registers
constexpr bool SHORT = HELD && INTERVAL == 1;     // sums live for one instruction's depth
constexpr int THREADS = 256;
constexpr int WARPS_M = TILE_M > TILE_N ? 4 : 2;
constexpr int WARPS_N = 8 / WARPS_M;
constexpr int ROW_TILES = TILE_M / WARPS_M / 16;    // of a warp, 16 rows each
constexpr int COLUMN_TILES = TILE_N / WARPS_N / 8;  // of a warp, 8 columns each
constexpr int SLICE_A = TILE_M * STEP;
constexpr int SLICE_B = TILE_N * STEP;
constexpr int STAGE = COUNT_A * SLICE_A + COUNT_B * SLICE_B;

using Out = Either<WIDE, double, float>::Type;
using Value = Either<INTEGER, Out, float>::Type;  // of combined sums, and of C in registers
using Sums = Sum[ACCUMULATORS][SHORT ? 1 : ROW_TILES][COLUMN_TILES][4];
using Values = Value[ROW_TILES][COLUMN_TILES][4];

// While |sum| < 2^22, the bits of 1.5 · 2^23 plus the sum are that float: no conversion is needed.
constexpr bool BIASED = SHORT && INTEGER;
constexpr int BIAS_BITS = 0x4B400000;
constexpr float BIAS = 12582912.0f;

static_assert(TILE_M % (16 * WARPS_M) == 0 && TILE_N % (16 * WARPS_N) == 0, "tile of a warp");
static_assert(STAGES >= 2, "a stage is filled while another is read");
static_assert(INTEGER || !HELD || SHORT || INTERVAL % 2 == 0,
              "promotion falls between steps, or after every instruction");
static_assert(!BIASED || most_terms() * 32 < 256, "|sum| < 2^22");

// --- arithmetic of C -----------------------------------------------------------------------------

// So small an exponent that units, a product of two, and a sum of digits times that are normal, or
// too large for C in any order.
template <typename T> constexpr int PLAIN = sizeof(T) == 4 ? 48 : 450;

// The unit of a row of A, or column of B, in one block: g · 2^exponent, packed in one word.
struct Unit {
    int word;

    __device__ __forceinline__ int exponent() const { return word >> SIGNIFICAND_BITS; }
    template <typename T> __device__ __forceinline__ T g() const { return T(word & SIGNIFICAND_MASK); }

    // Whether `value` may be used: no power of two on the way leaves the normal range.
    template <typename T> __device__ __forceinline__ bool plain() const {
        return abs(exponent()) <= PLAIN<T>;
    }
    // Exact where plain: g has 9 bits.
    template <typename T> __device__ __forceinline__ T value() const {
        return rounded::multiply(g<T>(), Precision<T>::power(exponent()));
    }
};

__device__ __forceinline__ Unit unit_at(const int *scales, int row, int rows) {
    return {row < rows ? __ldg(scales + row) : WHOLE};
}

// sum · gA · gB, rounded once, times 2^(EA + EB), rounded once more where that is subnormal.
// The power is applied in two halves, each of them normal. Clamping changes no result: below, even
// the largest sum vanishes; above, even the smallest overflows. A first half that underflows is
// followed by a second one that leaves nothing.
template <typename T> __device__ __forceinline__ T scaled(T sum, Unit left, Unit right) {
    using P = Precision<T>;
    const int exponent =
        min(max(left.exponent() + right.exponent(), 2 * P::lowest), 2 * P::highest);
    const int half = exponent >> 1;
    const T grown = rounded::multiply(sum, rounded::multiply(left.g<T>(), right.g<T>()));
    return rounded::multiply(rounded::multiply(grown, P::power(half)), P::power(exponent - half));
}

// --- where things are ----------------------------------------------------------------------------

// Of a block: product `product` of the batch, the first row and column of its tile.
struct Tile {
    int product, row, column;
};

// Of a warp: its first row and column in the tile.
struct Part {
    int row, column;
};

// Which thread and block this is, read anew each time: what the epilogue derives from them would
// else be computed before the main loop, and take registers from it.
__device__ __forceinline__ int thread_index() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}
__device__ __forceinline__ int block_index() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}

__device__ __forceinline__ Part part_of(int warp) {
    return {warp % WARPS_M * (TILE_M / WARPS_M), warp / WARPS_M * (TILE_N / WARPS_N)};
}

__device__ __forceinline__ Tile tile_of(const Problem &problem) {
    const int block = block_index();
    const int rows = (problem.a.rows + TILE_M - 1) / TILE_M;
    const int columns = (problem.b.rows + TILE_N - 1) / TILE_N;
    if (problem.triangle) {
        const int product = block / problem.triangle;
        const int2 tile = Triangle<TILE_M, TILE_N>::at(block % problem.triangle, rows);
        return {product, tile.x * TILE_M, tile.y * TILE_N};
    }
    const int index = block % (rows * columns);
    const int first = index / (problem.group * columns) * problem.group;
    const int height = min(problem.group, rows - first);
    const int inside = index - first * columns;
    return {block / (rows * columns), (first + inside % height) * TILE_M,
            inside / height * TILE_N};
}

// A thread's elements of C: element e of tile (i, j) is in row(i, e), column(j, e).
struct Place {
    int product, top, left;

    __device__ __forceinline__ int row(int i, int e) const { return top + 16 * i + 8 * (e >> 1); }
    __device__ __forceinline__ int column(int j, int e) const { return left + 8 * j + (e & 1); }
};

__device__ __forceinline__ Place place_of(const Problem &problem) {
    const Tile tile = tile_of(problem);
    const int thread = thread_index(), lane = thread % 32;
    const Part part = part_of(thread / 32);
    return {tile.product, tile.row + part.row + lane / 4, tile.column + part.column + lane % 4 * 2};
}

// The units of a thread's rows and columns in one block.
struct Units {
    Unit rows[ROW_TILES][2], columns[COLUMN_TILES][2];
};

__device__ __forceinline__ const int *scales(const Operand &operand, int product, int block) {
    const char *all = reinterpret_cast<const char *>(operand.scales);
    return reinterpret_cast<const int *>(all + product * operand.scales_stride) +
           (long long)block * operand.rows;
}

__device__ __forceinline__ Units units_of(const Problem &problem, const Place &place, int block) {
    const int *a = scales(problem.a, place.product, block);
    const int *b = scales(problem.b, place.product, block);
    const bool any = block < problem.blocks;
    Units units;
#pragma unroll
    for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            units.rows[i][h] = unit_at(a, place.row(i, 2 * h), any ? problem.a.rows : 0);
#pragma unroll
    for (int j = 0; j < COLUMN_TILES; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            units.columns[j][h] = unit_at(b, place.column(j, h), any ? problem.b.rows : 0);
    return units;
}

// --- from global to shared memory ----------------------------------------------------------------

__device__ __forceinline__ const unsigned char *slices(const Operand &operand, int product,
                                                       int row) {
    return operand.slices + product * operand.slices_stride + (long long)row * 64;
}

// The ring of stages: copies run STAGES − 1 steps ahead of what is read.
struct Ring {
    const unsigned char *a, *b;  // this thread's 16 bytes of the next slices to copy
    long long slice_a, slice_b;  // bytes from one slice to the next
    int steps;                   // still to copy
    unsigned base, fill, read;   // addresses of stages

    __device__ __forceinline__ void copy_step() {
        if (steps-- > 0) {
            const unsigned to = fill + thread_index() * 16;
#pragma unroll
            for (int p = 0; p < COUNT_A; ++p, a += slice_a) copy<SLICE_A>(to + p * SLICE_A, a);
#pragma unroll
            for (int p = 0; p < COUNT_B; ++p, b += slice_b)
                copy<SLICE_B>(to + COUNT_A * SLICE_A + p * SLICE_B, b);
        }
        commit();  // an empty one too: groups count steps
        fill = after(fill);
    }

    // The one barrier of a step: its data are there for all, and all are done with the stage that
    // the next copy fills.
    __device__ __forceinline__ unsigned next_stage() {
        wait_copies<STAGES - 2>();
        __syncthreads();
        copy_step();
        const unsigned stage = read;
        read = after(read);
        return stage;
    }

    template <int bytes>
    static __device__ __forceinline__ void copy(unsigned to, const unsigned char *from) {
#pragma unroll
        for (int offset = 0; offset < bytes; offset += THREADS * 16)
            copy16(to + offset, from + offset);
    }

    __device__ __forceinline__ unsigned after(unsigned stage) const {
        return stage == base + (STAGES - 1) * STAGE ? base : stage + STAGE;
    }
};

// --- from shared memory to sums ------------------------------------------------------------------

using FragmentsB = unsigned[COUNT_B][COLUMN_TILES][2];

__device__ __forceinline__ void load_b(FragmentsB &b, unsigned from) {
#pragma unroll
    for (int p = 0; p < COUNT_B; ++p)
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; j += 2) {
            unsigned two[4];
            load_matrices(two, from + p * SLICE_B + j * 8 * 64);
            b[p][j][0] = two[0], b[p][j][1] = two[1];
            b[p][j + 1][0] = two[2], b[p][j + 1][1] = two[3];
        }
}

__device__ __forceinline__ void clear(Sums &sums) {
#pragma unroll
    for (auto &accumulator : sums)
#pragma unroll
        for (auto &row : accumulator)
#pragma unroll
            for (auto &tile : row)
#pragma unroll
                for (Sum &sum : tile) sum = BIASED ? Sum(BIAS_BITS) : Sum(0);
}

// All terms of 16 rows over the warp's columns, into row tile i of the sums. Terms of an
// accumulator follow each other as listed; between two that meet in one register lie the others'
// columns, so that the second need not wait.
__device__ __forceinline__ void multiply_rows(Sums &sums, int i, unsigned from,
                                              const FragmentsB &b) {
    unsigned a[COUNT_A][4];
#pragma unroll
    for (int p = 0; p < COUNT_A; ++p) load_matrices(a[p], from + p * SLICE_A);
    each<0, ACCUMULATORS>([&](auto n) {
        each<term_end(n.value - 1), term_end(n.value)>([&](auto t) {
            constexpr Term slices = term(t.value);
#pragma unroll
            for (int j = 0; j < COLUMN_TILES; ++j)
                multiply(sums[n.value][i][j], a[slices.left], b[slices.right][j]);
        });
    });
}

// --- from sums to C ------------------------------------------------------------------------------

__device__ __forceinline__ Value converted(Sum sum) {
    if constexpr (BIASED) return rounded::add(__int_as_float(sum), -BIAS);
    return Value(sum);  // int to float rounds to nearest even
}

// Σ sum · 2^weight of one element. Multiplying by a power of two is exact, so an FMA rounds once.
__device__ __forceinline__ Value combined(const Sums &sums, int i, int j, int e) {
    Value partial = converted(sums[0][i][j][e]);
    each<1, ACCUMULATORS>([&](auto n) {
        constexpr int down = weight(n.value - 1) - weight(n.value);
        partial = rounded::multiply_add(partial, Precision<Value>::power(down),
                                        converted(sums[n.value][i][j][e]));
    });
    return partial;
}

// Makes the value exist here, before any statement that follows, which then finds registers free.
__device__ __forceinline__ void materialise(float &value) { asm volatile("" : "+f"(value)); }
__device__ __forceinline__ void materialise(double &value) { asm volatile("" : "+d"(value)); }

__device__ __forceinline__ void combine_all(Values &values, const Sums &sums) {
#pragma unroll
    for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                values[i][j][e] = combined(sums, i, j, e);
                materialise(values[i][j][e]);
            }
}

// Adds row tile i of the sums to 16 rows of C in registers; integers are scaled by their units.
__device__ __forceinline__ void promote_rows(Value (&values)[COLUMN_TILES][4], const Sums &sums,
                                             int i, const Unit (&rows)[2],
                                             const Unit (&columns)[COLUMN_TILES][2]) {
    const auto add_all = [&](auto scaling) {
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                values[j][e] = rounded::add(
                    values[j][e],
                    scaling(combined(sums, i, j, e), rows[e >> 1], columns[j][e & 1]));
    };
    if constexpr (!INTEGER) {
        add_all([](Value sum, Unit, Unit) { return sum; });
        return;
    }
    bool plain = rows[0].plain<Value>() & rows[1].plain<Value>();
#pragma unroll
    for (auto &column : columns) plain &= column[0].plain<Value>() & column[1].plain<Value>();
    if (__all_sync(0xFFFFFFFFu, plain))  // the warp stays together: mma follows
        add_all([](Value sum, Unit row, Unit column) {
            return rounded::multiply(sum,
                                     rounded::multiply(row.value<Value>(), column.value<Value>()));
        });
    else
        add_all([](Value sum, Unit row, Unit column) { return scaled(sum, row, column); });
}

// C of one product, and what becomes of a value on its way there.
struct Result {
    Out *c;
    const Out *added;
    long long leading;
    int m, n;
    bool paired;  // rows are so aligned that two neighbours can be written at once
    bool symmetric;  // what is on or below the diagonal is written twice, the rest not at all

    __device__ __forceinline__ Result(const Problem &problem, int product)
        : c(static_cast<Out *>(problem.c) + product * problem.c_stride),
          added(static_cast<const Out *>(problem.row)), leading(problem.c_leading),
          m(problem.a.rows), n(problem.b.rows),
          paired(reinterpret_cast<unsigned long long>(c) % (2 * sizeof(Out)) == 0 &&
                 leading % 2 == 0),
          symmetric(problem.triangle != 0) {}

    // Two neighbours in a row. `onto`: added to what an earlier promotion left in C.
    __device__ __forceinline__ void store(Out (&pair)[2], int row, int column, bool onto,
                                          bool last) const {
        if (row >= m) return;
        Out *to = c + row * leading + column;
        const int end = symmetric ? min(n, row + 1) : n;
        const bool together = paired && column + 1 < end;
#pragma unroll
        for (int e = 0; e < 2; ++e)
            if (column + e < end) {
                pair[e] = rounded::add(onto ? to[e] : Out(0), pair[e]);
                if (last && added) pair[e] = rounded::add(pair[e], added[column + e]);
                if (!together) to[e] = pair[e];
                if (symmetric && last) c[(column + e) * leading + row] = pair[e];
            }
        using Two = Either<WIDE, double2, float2>::Type;
        if (together) *reinterpret_cast<Two *>(to) = {pair[0], pair[1]};
    }
};

// Stores a thread's elements of C, scaled by their units unless promotion has done that.
__device__ __forceinline__ void store_tile(const Problem &problem, const Values &values, int block,
                                           bool onto, bool last) {
    const Place place = place_of(problem);
    const Result result(problem, place.product);
    const Units units = units_of(problem, place, block);
#pragma unroll
    for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < COLUMN_TILES; ++j) {
                Out pair[2] = {Out(values[i][j][2 * h]), Out(values[i][j][2 * h + 1])};
                if constexpr (!INTEGER || !HELD) {
                    pair[0] = scaled(pair[0], units.rows[i][h], units.columns[j][0]);
                    pair[1] = scaled(pair[1], units.rows[i][h], units.columns[j][1]);
                }
                result.store(pair, place.row(i, 2 * h), place.column(j, 0), onto, last);
            }
}

// The step before which sums must be promoted, when the step at hand is the first to enter them.
__device__ __forceinline__ int promotion_after(const Problem &problem, int step) {
    if constexpr (SHORT) return problem.steps;
    if constexpr (!INTEGER)
        return HELD ? min(step + INTERVAL / 2, problem.steps) : problem.steps;
    const int end = min(step + problem.segment_steps, problem.steps);
    if (problem.blocks <= 1) return end;
    return min(end, (step / problem.steps_per_block + 1) * problem.steps_per_block);
}

__device__ __forceinline__ int block_of(const Problem &problem, int step) {
    return problem.blocks > 1 ? step / problem.steps_per_block : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ Problem problem) {
    extern __shared__ __align__(128) unsigned char shared[];
    if (is_shut(problem)) return;
    const int thread = thread_index(), lane = thread % 32;
    const Tile tile = tile_of(problem);
    const Part part = part_of(thread / 32);
    const unsigned lane_a = lane_of_a(part.row, lane);
    const unsigned lane_b = COUNT_A * SLICE_A + lane_of_b(part.column, lane);
    const unsigned base = unsigned(__cvta_generic_to_shared(shared));
    Ring ring = {slices(problem.a, tile.product, tile.row) + thread * 16,
                 slices(problem.b, tile.product, tile.column) + thread * 16,
                 problem.a.rows8 * 64LL, problem.b.rows8 * 64LL, problem.steps, base, base, base};
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) ring.copy_step();

    Sums sums;
    Values values = {};
    int step = 0;
    do {
        const int start = step, end = promotion_after(problem, step);
        if constexpr (!SHORT) clear(sums);
        for (; step < end; ++step) {
            const unsigned stage = ring.next_stage();
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int block = 2 * step + half;
                if (BIASED && block >= problem.blocks) break;
                Units units;
                if constexpr (BIASED) units = units_of(problem, place_of(problem), block);
                FragmentsB b;
                load_b(b, stage + (lane_b ^ half * 32));
#pragma unroll
                for (int i = 0; i < ROW_TILES; ++i) {
                    const unsigned from = stage + (lane_a ^ half * 32) + i * 16 * 64;
                    if constexpr (!SHORT) {
                        multiply_rows(sums, i, from, b);
                    } else {
                        clear(sums);
                        multiply_rows(sums, 0, from, b);
                        promote_rows(values[i], sums, 0, units.rows[i], units.columns);
                    }
                }
            }
        }
        if constexpr (!SHORT && HELD) {
            Units units;
            if constexpr (INTEGER)
                units = units_of(problem, place_of(problem), block_of(problem, start));
#pragma unroll
            for (int i = 0; i < ROW_TILES; ++i)
                promote_rows(values[i], sums, i, units.rows[i], units.columns);
        }
        if constexpr (!HELD) {
            combine_all(values, sums);
            store_tile(problem, values, block_of(problem, start), start > 0, step >= problem.steps);
        }
    } while (step < problem.steps);

    if constexpr (HELD) store_tile(problem, values, 0, false, true);
}
