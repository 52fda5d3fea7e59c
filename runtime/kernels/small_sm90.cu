// C = A·B for many small products, from float32 operands, for Hopper (sm_90a): what packing, the
// GEMM and its epilogue do, with nothing in memory but A, B, C and flags.
//
//   one block    a tile of C, up to 128 × 128, and all of its K; 256 threads, two blocks to a
//                multiprocessor for K ≤ 128, so that one reads while the other multiplies
//   registers    an operand as it was read, 64 values a thread; later sums
//   shared       digits of both operands, (operand, step, slice, 128 rows, 64 bytes of K), swizzled
//                as wgmma wants them; units and flags of 128 rows of A and 128 columns of B
//
//   all warps    read A, find largest magnitudes, units and digits, and as registers become free
//                read B, then cut B. Or B first: whichever gives its registers back row by row.
//   one thread   for each row of A and column of B, decides whether it is an outlier
//   warpgroup    0, 1: multiplies 64 rows of the tile by 64 columns at a time, accumulator by
//                accumulator, the smallest weight first; each is added to FP32 sums in registers
//
// "Rows" of an operand are rows of A, columns of B. Where K is contiguous (ACROSS 0) a warp reads a
// row at a time; where rows are (ACROSS 1) a thread reads 4 rows × up to 16 positions of K. What is
// read next is fetched into L2 meanwhile, be it by another block.
//
// Digits, units and sums are those of packing and GEMM, bit for bit. What is flagged, as packing
// does, has a unit of zero. Of any entry rounding takes 2^-22.6 of the row's largest at most, or
// 2^-14.6, 2^-6.6 with fewer slices: for K ≤ 256 no row loses as much as the rule asks for. What is
// left of it is the look at digits that outweigh their row.

#include "scheme.cuh"
#include "rounded.cuh"

#ifndef STEPS
#define STEPS 2              // of 64 positions of K: 1, 2 or 4
#define A_ACROSS 0           // whether rows of A are next to each other
#define B_ACROSS 1           // whether columns of B are
#define VECTOR 1             // whether four neighbours are one load: aligned, and all there or none
#define FITTED 1             // whether units are g · 2^E with g from 129 to 258, not always 256
#define LOWER 8.7311491e-11  // times K and a row's sum of squares: bounds squares of lower digits
#define SAFE 47500           // squares of first digits that make a row safe from that; 0: all are
#endif
#ifndef TILE_N
#define TILE_N 32  // columns of a product of wgmma
#endif

#include "wgmma.cuh"
#include "units.cuh"

typedef unsigned char Byte;

constexpr int THREADS = STEPS == 1 ? 256 : 512, TILE = 128, COUNT = COUNT_A;
constexpr int COLUMNS = 256 * TILE / THREADS;  // of the tile, that a warpgroup makes
constexpr int PADDED = 64 * STEPS;
constexpr int SLICE = TILE * STEP;  // bytes of a step of a slice
constexpr int SLICES = STEPS * COUNT * SLICE;
constexpr int ITEMS = 8;  // of four values, that a thread holds
constexpr int ROWS = THREADS * ITEMS * 4 / PADDED;  // of a pass: what all threads hold
constexpr int PASSES = TILE / ROWS;
constexpr int SHIFT = 8 * COUNT - 1;
constexpr int HELD = COUNT == 1 ? 7 : 15;  // bits that the first two digits hold
// Balanced digits hold 127 · (256^COUNT − 1) / 255: significands of 24 bits from here on round up.
constexpr u32 FULL = (2 * (127 * ((1 << 8 * COUNT) - 1ll) / 255) + 1) << (23 - SHIFT);
constexpr u32 INFINITE = 0x7f800000, NORMAL = 0x00800000, MAGNITUDE = 0x7fffffff;
// A normal number with one of these set is too fine for two digits beside any larger one.
constexpr u32 LAST = (1 << (24 - HELD)) - 1;
constexpr u32 ROUGH = 0x80000000;  // set in a row's largest magnitude where LAST bits were seen
constexpr int SMALLEST = -60;  // exponents below take 2^64 first: a factor would overflow
constexpr int NEVER = -1000;

struct Tables {
    Unit units[2][TILE];    // of A's rows, B's columns
    u32 tops[4 * 128];      // largest magnitudes that parts of the block have seen
    float factors[128], lifts[128];
    int least[128], finer[128];
    Byte flags[2][TILE];
};

#include "shared_small_problem.cuh"

// What of a product a block makes.
struct Place {
    int product, first[2];

    __device__ __forceinline__ Place(const Problem &p, int index) {
        int along = (int)p.along, tiles = (int)p.down * along, row = 0;
        product = index;
        if (tiles > 1) {
            product = index / tiles;
            index -= product * tiles;
            row = index / along;
            index -= row * along;
        } else {
            index = 0;
        }
        first[0] = row * TILE;
        first[1] = index * TILE;
    }
};

// Asked for again and again, so that no registers hold meanwhile what follows from it.
__device__ __forceinline__ int this_block() {
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}

// From the block's first row of an operand to the operand's last.
__device__ __forceinline__ int rows_left(const Problem &p, int side) {
    return (int)p.of[side].rows - Place(p, this_block()).first[side];
}

// An operand's rows of a tile; it spans less than 2^31 elements.
struct Operand {
    const float *x;
    int stride, rows, k;
};

template <bool ACROSS>
__device__ __forceinline__ Operand operand_at(const Source &of, const Place &at, int first) {
    return {of.x + at.product * of.batch + first * (ACROSS ? 1 : of.stride), (int)of.stride,
            (int)of.rows - first, (int)of.k};
}

typedef float Values[ITEMS][4];

// ---- units ------------------------------------------------------------------------------------

__device__ __forceinline__ float larger(float top, float x) {
    float found;  // NaN if either is; the compiler's own would flush subnormals
    asm("{\n.reg .f32 size;\nabs.f32 size, %2;\nmax.NaN.f32 %0, %1, size;\n}"
        : "=f"(found)
        : "f"(top), "f"(x));
    return found;
}

__device__ __forceinline__ u32 joined(u32 seen, u32 other) {
    return max(seen & MAGNITUDE, other & MAGNITUDE) | ((seen | other) & ROUGH);
}

// A row by its largest magnitude, fraction · 2^(exponent − 24).
struct Largest {
    u32 top, fraction;
    int exponent, raised;  // raised: where fraction rounds to more than the digits hold
    bool look;             // whether two digits may hold all of the row

    __device__ __forceinline__ explicit Largest(u32 seen) : top(seen & MAGNITUDE) {
        int field = top >> 23, up = __clz(top) - 8;
        fraction = field ? (top & (NORMAL - 1)) | NORMAL : top << (up & 31);
        exponent = (field ? field : 1 - up) - 126;
        raised = exponent + (fraction >= FULL);
        look = FITTED && top != 0 && top < INFINITE && (!(seen & ROUGH) || top < NORMAL);
    }
    // For `is_finer`: two digits hold multiples of 2^(raised − HELD).
    __device__ __forceinline__ int least() const { return look ? raised - HELD + 150 : NEVER; }
};

// Whether the lowest bit of x that is set is below 2^(least − 150).
__device__ __forceinline__ bool is_finer(float x, int least) {
    u32 bits = __float_as_uint(x), field = bits >> 23 & 255, significand = bits & (NORMAL - 1);
    if (field) significand |= NORMAL;
    else field = 1;
    return significand != 0 && (int)field + __ffs(significand) - 1 < least;
}

// WHOLE / g, rounded once, for g of 129 to 258: two steps from what the unit for it gives.
__device__ __forceinline__ float ratio(int significand) {
    float g = (float)significand, inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(g));
    float quotient = (float)WHOLE * inverse;
    return rounded::multiply_add(rounded::multiply_add(-quotient, g, (float)WHOLE), inverse, quotient);
}

struct RowUnit {
    int exponent = 0, significand = WHOLE, flag = 0;

    __device__ __forceinline__ RowUnit(const Largest &it, bool fine, int k) {
        if (it.top >= INFINITE) {
            flag = NONFINITE;
        } else if (it.top != 0) {
            exponent = it.raised;
            if (FITTED && fine) {
                exponent = it.exponent;
                float fraction = (float)it.fraction * Precision<float>::power(-24);
                significand = (int)floorf(__fmul_rn(fraction, FIT)) + 1;
            }
            if (2 * exponent + 32 - __clz(k) > 127) flag = LARGE;
        }
    }
    __device__ __forceinline__ bool is_small() const { return exponent < SMALLEST; }
    __device__ __forceinline__ float lift() const {
        return Precision<float>::power(is_small() ? 64 : 0);
    }
    // Digits are of x · lift · factor: scaled by a power of two, then once rounded.
    __device__ __forceinline__ float factor() const {
        int power = SHIFT - exponent - (is_small() ? 64 : 0);
        return ratio(significand) * Precision<float>::power(power);
    }
    __device__ __forceinline__ void publish(Tables &tables, int side, int row) const {
        tables.units[side][row] = unit(flag & LEAVES ? 0 : significand, exponent - FIRST_DIGIT);
        tables.flags[side][row] = flag;
    }
};

// ---- digits -----------------------------------------------------------------------------------

// Digits of four neighbours along K, a word for each slice, the highest first. Adding 128 to every
// digit but the highest makes bytes of them; an exclusive or with 128 takes it off again.
__device__ __forceinline__ void cut(float w, float x, float y, float z, float factor,
                                    u32 (&words)[COUNT]) {
    constexpr int bias = COUNT == 3 ? 0x8080 : COUNT == 2 ? 0x80 : 0;
    u32 a = __float2int_rn(rounded::multiply(w, factor)) + bias,
        b = __float2int_rn(rounded::multiply(x, factor)) + bias,
        c = __float2int_rn(rounded::multiply(y, factor)) + bias,
        d = __float2int_rn(rounded::multiply(z, factor)) + bias;
    u32 low = __byte_perm(a, b, 0x5140), high = __byte_perm(c, d, 0x5140);  // bytes 0, 0, 1, 1
    u32 lowest = __byte_perm(low, high, 0x5410), next = __byte_perm(low, high, 0x7632);
    if (COUNT == 1) {
        words[0] = lowest;
    } else if (COUNT == 2) {
        words[0] = next;
        words[COUNT - 1] = lowest ^ 0x80808080;
    } else {
        words[0] = __byte_perm(__byte_perm(a, b, 0x0062), __byte_perm(c, d, 0x0062), 0x5410);
        words[COUNT - 2] = next ^ 0x80808080;
        words[COUNT - 1] = lowest ^ 0x80808080;
    }
}

// Where an operand's digits of a row begin, from a position of K on, in the highest slice.
__device__ __forceinline__ int place(int row, int k) {
    return (k >> 6) * (COUNT * SLICE) + row * 64 + ((k >> 4 & 3) ^ (row >> 1 & 3)) * 16 + (k & 15);
}

// ---- an operand whose K is contiguous ---------------------------------------------------------

struct Along {
    static constexpr int LANES = PADDED < 128 ? PADDED / 4 : 32;  // to a row
    static constexpr int TURNS = PADDED / (4 * LANES);            // items of a row, in a thread
    static constexpr int TOGETHER = 32 / LANES;                   // rows that a warp reads at once
    static constexpr int PLACES = ITEMS / TURNS;                  // rows of a thread
    static constexpr int GROUP = 4;                               // items that are cut together

    static __device__ __forceinline__ int lane() { return threadIdx.x & (LANES - 1); }
    static __device__ __forceinline__ int first_row(int at) {
        return ((threadIdx.x >> 5) * PLACES + at) * TOGETHER;
    }
    static __device__ __forceinline__ int row(int at) {
        return first_row(at) + (threadIdx.x & 31) / LANES;
    }
    static __device__ __forceinline__ int position(int turn) { return turn * 128 + lane() * 4; }

    static __device__ __forceinline__ void fetch(float (&x)[4], const Operand &from, int pass,
                                                 int item) {
        int r = pass * ROWS + row(item / TURNS), k = position(item % TURNS);
        const float *at = from.x + (r * from.stride + k);
#if VECTOR
        float4 four = make_float4(0, 0, 0, 0);
        if (r < from.rows && k < from.k) four = __ldg((const float4 *)at);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
#else
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = r < from.rows && k + i < from.k ? __ldg(at + i) : 0.0f;
#endif
    }

    // Whether any lane of a row says so.
    static __device__ __forceinline__ bool any(bool mine) {
        u32 all = __ballot_sync(~0u, mine);
        return LANES == 32 ? all != 0 : (all >> (threadIdx.x & 16) & 0xffff) != 0;
    }

    static __device__ __forceinline__ u32 largest(const float (&x)[4 * TURNS]) {
        float top = 0;
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < 4 * TURNS; i++) {
            top = larger(top, x[i]);
            if (i & 1) bits |= __float_as_uint(x[i - 1]) | __float_as_uint(x[i]);
        }
        u32 seen = __float_as_uint(top);
        if (LANES == 32) {
            seen = __reduce_max_sync(~0u, seen);
        } else {
#pragma unroll
            for (int apart = 1; apart < LANES; apart *= 2)
                seen = max(seen, __shfl_xor_sync(~0u, seen, apart));
        }
        return FITTED && any(bits & LAST) ? seen | ROUGH : seen;
    }

    // Cuts what threads hold; what the next pass needs fills their registers again, group by group.
    // Returns how many rows that is of.
    template <typename Next>
    static __device__ __forceinline__ int pack(Values &x, int rows, int side, int pass,
                                               Byte *slices, Tables &tables, const Next &next) {
        u32 seen = 0;  // of row(lane()): units are made by a lane for each row
#pragma unroll
        for (int at = 0; at < PLACES; at++) {
            u32 found = largest((const float(&)[4 * TURNS]) x[at * TURNS]);
            if (lane() == at) seen = found;
        }
        Largest it(seen);
        bool fine = !it.look;
        if (FITTED && __any_sync(~0u, it.look)) {
#pragma unroll
            for (int at = 0; at < PLACES; at++) {
                int least = __shfl_sync(~0u, it.least(), at, LANES);
                bool finer = false;
#pragma unroll
                for (int i = 0; i < 4 * TURNS; i++)
                    finer |= is_finer(x[at * TURNS + i / 4][i & 3], least);
                finer = any(finer);
                if (lane() == at) fine |= finer;
            }
        }
        RowUnit unit(it, fine, (int)next.p.of[side].k);
        if (lane() < PLACES) unit.publish(tables, side, pass * ROWS + row(lane()));
        if (__any_sync(~0u, unit.is_small())) {
#pragma unroll
            for (int i = 0; i < 4 * ITEMS; i++) {
                float lift = __shfl_sync(~0u, unit.lift(), i / (4 * TURNS), LANES);
                x[i / 4][i & 3] = rounded::multiply(x[i / 4][i & 3], lift);
            }
        }
        float own = unit.factor();
        const Operand following = next.operand();
        // Rows past the last are not cut: what they would add to is not stored.
#pragma unroll
        for (int group = 0; group < ITEMS; group += GROUP) {
            float factors[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; i++)
                factors[i] = __shfl_sync(~0u, own, (group + i) / TURNS, LANES);
            if (pass * ROWS + first_row(group / TURNS) < rows) {
#pragma unroll
                for (int item = group; item < group + GROUP; item++) {
                    u32 words[COUNT];
                    cut(x[item][0], x[item][1], x[item][2], x[item][3], factors[item - group],
                        words);
                    Byte *to = slices + place(pass * ROWS + row(item / TURNS),
                                              position(item % TURNS));
#pragma unroll
                    for (int s = 0; s < COUNT; s++) *(u32 *)(to + s * SLICE) = words[s];
                }
            }
#pragma unroll
            for (int item = group; item < group + GROUP; item++)
                Next::fetch(x[item], following, item);
        }
        return following.rows;
    }
};

// ---- an operand whose rows are contiguous -----------------------------------------------------

struct Across {
    static constexpr int PARTS = PADDED / (4 * ITEMS);  // warps along K

    // Of a warp, 4 threads lie along K and 8 along the rows, 4 rows each.
    static __device__ __forceinline__ int part() { return (threadIdx.x >> 5) % PARTS; }
    static __device__ __forceinline__ int first_row() { return (threadIdx.x >> 5) / PARTS * 32; }
    static __device__ __forceinline__ int row() {
        return first_row() + (threadIdx.x >> 2 & 7) * 4;
    }
    static __device__ __forceinline__ int position() {
        return (part() * 4 + (threadIdx.x & 3)) * ITEMS;
    }

    static __device__ __forceinline__ void fetch(float (&x)[4], const Operand &from, int pass,
                                                 int item) {
        int r = pass * ROWS + row(), k = position() + item;
        const float *at = from.x + (k * from.stride + r);
#if VECTOR
        float4 four = make_float4(0, 0, 0, 0);
        if (r < from.rows && k < from.k) four = __ldg((const float4 *)at);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
#else
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = r + i < from.rows && k < from.k ? __ldg(at + i) : 0.0f;
#endif
    }

    static __device__ __forceinline__ void write_largest(const Values &x, Tables &tables) {
        uint4 seen;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float top = 0;
            u32 bits = 0;
#pragma unroll
            for (int item = 0; item < ITEMS; item++) {
                top = larger(top, x[item][i]);
                if (item & 1) bits |= __float_as_uint(x[item - 1][i]) | __float_as_uint(x[item][i]);
            }
            u32 mine = __float_as_uint(top) | (FITTED && (bits & LAST) ? ROUGH : 0);
            mine = joined(mine, __shfl_xor_sync(~0u, mine, 1));
            mine = joined(mine, __shfl_xor_sync(~0u, mine, 2));
            (i == 0 ? seen.x : i == 1 ? seen.y : i == 2 ? seen.z : seen.w) = mine;
        }
        if ((threadIdx.x & 3) == 0) *(uint4 *)(tables.tops + part() * ROWS + row()) = seen;
    }

    static __device__ __forceinline__ void look_closely(const Values &x, Tables &tables) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int least = tables.least[row() + i];
            bool finer = false;
#pragma unroll
            for (int item = 0; item < ITEMS; item++) finer |= is_finer(x[item][i], least);
            if (finer) tables.finer[row() + i] = 1;
        }
    }

    // By a thread for each row. Returns whether any row takes a power of two before its factor.
    static __device__ __forceinline__ bool make_units(const Values &x, int side, int pass, int k,
                                                      Tables &tables) {
        int thread = threadIdx.x;
        bool owns = thread < ROWS;
        u32 seen = 0;
        if (owns) {
#pragma unroll
            for (int i = 0; i < PARTS; i++) seen = joined(seen, tables.tops[i * ROWS + thread]);
        }
        Largest it(seen);
        bool fine = !it.look;
        if (owns) {
            tables.least[thread] = it.least();
            tables.finer[thread] = 0;
        }
        if (FITTED && __syncthreads_or(it.look)) {
            look_closely(x, tables);
            __syncthreads();
            if (owns && it.look) fine = tables.finer[thread];
        }
        RowUnit unit(it, fine, k);
        if (owns) {
            unit.publish(tables, side, pass * ROWS + thread);
            tables.factors[thread] = unit.factor();
            tables.lifts[thread] = unit.lift();
        }
        return __syncthreads_or(unit.is_small());
    }

    static __device__ __forceinline__ void cut_row(const Values &x, int i, float factor, Byte *to) {
        u32 words[ITEMS / 4][COUNT];
#pragma unroll
        for (int j = 0; j < ITEMS / 4; j++)
            cut(x[4 * j][i], x[4 * j + 1][i], x[4 * j + 2][i], x[4 * j + 3][i], factor, words[j]);
#pragma unroll
        for (int s = 0; s < COUNT; s++, to += SLICE)
            *(uint2 *)to = make_uint2(words[0][s], words[1][s]);
    }

    template <typename Next>
    static __device__ __forceinline__ int pack(Values &x, int rows, int side, int pass,
                                               Byte *slices, Tables &tables, const Next &next) {
        write_largest(x, tables);
        __syncthreads();
        bool small = make_units(x, side, pass, (int)next.p.of[side].k, tables);
        if (small) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float lift = tables.lifts[row() + i];
#pragma unroll
                for (int item = 0; item < ITEMS; item++)
                    x[item][i] = rounded::multiply(x[item][i], lift);
            }
        }
        if (pass * ROWS + first_row() < rows) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                cut_row(x, i, tables.factors[row() + i],
                        slices + place(pass * ROWS + row() + i, position()));
        }
        const Operand following = next.operand();
#pragma unroll
        for (int item = 0; item < ITEMS; item++) Next::fetch(x[item], following, item);
        return following.rows;
    }
};

// ---- both operands ----------------------------------------------------------------------------

template <bool ACROSS> struct Chosen {
    typedef Along Reader;
};
template <> struct Chosen<true> {
    typedef Across Reader;
};

// The operand whose registers can take the other one, row by row, comes first.
constexpr int FIRST = A_ACROSS && !B_ACROSS;
__host__ __device__ constexpr bool is_across(int side) { return side ? B_ACROSS : A_ACROSS; }

// Asks L2 for what a block reads of an operand.
template <int SIDE> __device__ __forceinline__ void prefetch(const Problem &p, int block) {
    constexpr bool ACROSS = is_across(SIDE);
    const Place at(p, block);
    const Operand x = operand_at<ACROSS>(p.of[SIDE], at, at.first[SIDE]);
    constexpr int LINES = (ACROSS ? TILE : PADDED) / 32, ALL = (ACROSS ? PADDED : TILE) * LINES;
    int far = ACROSS ? x.k : x.rows, near = ACROSS ? x.rows : x.k;
#pragma unroll
    for (int i = 0; i < ALL / THREADS; i++) {
        int line = (i * THREADS + threadIdx.x) / LINES, place = threadIdx.x % LINES * 32;
        if (line < far && place < near)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(x.x + (line * x.stride + place)));
    }
}

// Passes over both operands, one after the other; INDEX: of a pass.
template <int INDEX> struct Pass {
    static constexpr int SIDE = INDEX < PASSES ? FIRST : 1 - FIRST, PART = INDEX % PASSES;
    static constexpr bool ACROSS = is_across(SIDE);
    typedef typename Chosen<ACROSS>::Reader Reader;
    const Problem &p;

    __device__ __forceinline__ Operand operand() const {
        if (INDEX >= 2 * PASSES) return {};
        const Place at(p, this_block());
        return operand_at<ACROSS>(p.of[SIDE], at, at.first[SIDE]);
    }
    static __device__ __forceinline__ void fetch(float (&x)[4], const Operand &from, int item) {
        if (INDEX < 2 * PASSES) Reader::fetch(x, from, PART, item);
    }
    __device__ __forceinline__ void pack(Values &x, int rows, Byte *slices, Tables &tables) const {
        if constexpr (INDEX < 2 * PASSES) {
            const Pass<INDEX + 1> next{p};
            rows = Reader::pack(x, rows, SIDE, PART, slices + SIDE * SLICES, tables, next);
            // All that this block reads is on its way: now what one after it reads first.
            if (INDEX == PASSES - 1 && p.ahead && this_block() + p.ahead < gridDim.x)
                prefetch<FIRST>(p, this_block() + (int)p.ahead);
            next.pack(x, rows, slices, tables);
        }
    }
};

// ---- rows ruled by a few entries --------------------------------------------------------------

__device__ __forceinline__ int dot(uint4 x, uint4 y, int sum) {
    sum = __dp4a((int)x.x, (int)y.x, sum);
    sum = __dp4a((int)x.y, (int)y.y, sum);
    sum = __dp4a((int)x.z, (int)y.z, sum);
    return __dp4a((int)x.w, (int)y.w, sum);
}

__device__ __forceinline__ uint4 digits_at(const Byte *slices, int row, int chunk) {
    return *(const uint4 *)(slices + place(row, 16 * chunk));
}

// Whether a digit past the first has larger squares than the row allows, see `outliers.crowded`.
// Sums are exact.
__device__ __forceinline__ bool is_crowded(const Byte *slices, int row, int k) {
    int sums[COUNT][COUNT] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < 4 * STEPS; chunk++) {
        uint4 digits[COUNT];
#pragma unroll
        for (int s = 0; s < COUNT; s++) digits[s] = digits_at(slices + s * SLICE, row, chunk);
#pragma unroll
        for (int s = 0; s < COUNT; s++)
#pragma unroll
            for (int t = 0; t < COUNT; t++) sums[s][t] = dot(digits[s], digits[t], sums[s][t]);
    }
    double norm = 0;
#pragma unroll
    for (int s = 0; s < COUNT; s++)
#pragma unroll
        for (int t = 0; t < COUNT; t++)
            norm += (double)sums[s][t] * Precision<double>::power(8 * (2 * COUNT - 2 - s - t));
    bool found = false;
#pragma unroll
    for (int s = 1; s < COUNT; s++) found |= sums[s][s] > LOWER * k * norm;
    return found;
}

// Decides on a row of A, or a column of B, for each thread, and writes its flag.
__device__ __forceinline__ void review(const Problem &p, const Byte *slices, Tables &tables) {
    const int side = threadIdx.x / TILE, row = threadIdx.x % TILE;
    if (side > 1) return;
    const Place at(p, this_block());
    const Source &of = p.of[side];
    const int own = (side ? at.first[1] : at.first[0]) + row;
    if (own >= of.rows) return;
    int flag = tables.flags[side][row];
#if SAFE
    slices += side * SLICES;
    int sum = 0;
#pragma unroll
    for (int chunk = 0; chunk < 4 * STEPS; chunk++) {
        uint4 digits = digits_at(slices, row, chunk);
        sum = dot(digits, digits, sum);
    }
    if (!(flag & LEAVES) && sum < SAFE && is_crowded(slices, row, (int)of.k)) {
        flag = OUTLIER;
        tables.units[side][row].one = 0;
    }
#endif
    // Of tiles, or products, that share the row the first one writes.
    if ((side ? at.first[0] : at.first[1]) == 0 && (of.batch != 0 || at.product == 0))
        of.flags[(of.batch ? (u64)at.product * of.rows : 0) + own] = flag;
}

// ---- products ---------------------------------------------------------------------------------

// All terms of an accumulator; a, b: digits of the warpgroup's rows, and of 64 columns.
template <int GROUP>
__device__ __forceinline__ void multiply_terms(Sum (&acc)[REGISTERS], u32 a, u32 b) {
    // Not by telling the first product to ignore them: the assembler then takes what a group before
    // has left in these registers for dead, and drops its products.
#pragma unroll
    for (int i = 0; i < REGISTERS; i++) acc[i] = 0;
    fence_registers();
#pragma unroll
    for (int half = 0; half < 2 * STEPS; half++) {
        int at = (half >> 1) * (COUNT * SLICE) + (half & 1) * 32;
#pragma unroll
        for (int t = term_end(GROUP - 1); t < term_end(GROUP); t++)
            multiply(acc, describe(a + at + term(t).left * SLICE),
                     describe(b + at + term(t).right * SLICE), 1);
    }
    commit();
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < REGISTERS; i++) asm volatile("" : BIND(acc[i])::"memory");
}

// The accumulators combined, the smallest weight first, each scaled to the next and added. All have
// the same registers, one after the other.
template <int GROUP>
__device__ __forceinline__ void combine(float (&sum)[REGISTERS], Sum (&acc)[REGISTERS], u32 a,
                                        u32 b) {
    multiply_terms<GROUP>(acc, a, b);
#pragma unroll
    for (int i = 0; i < REGISTERS; i++) {
        if constexpr (GROUP == 0) sum[i] = (float)acc[i];
        else
            sum[i] = rounded::multiply_add(
                sum[i], Precision<float>::power(weight(GROUP - 1) - weight(GROUP)), (float)acc[i]);
        // Read now: the next group's products have the same registers.
        asm volatile("" : "+f"(sum[i])::"memory");
    }
    if constexpr (GROUP + 1 < ACCUMULATORS) combine<GROUP + 1>(sum, acc, a, b);
}

// A thread holds of every 8 columns two neighbours, in its row of the upper 8 and of the lower 8.
// first: column of the tile.
__device__ __forceinline__ void store(const Problem &p, const float (&sum)[REGISTERS],
                                      const Tables &tables, int first) {
    const Place at(p, this_block());
    const int rows = rows_left(p, 0), columns = rows_left(p, 1), side = (threadIdx.x & 3) * 2;
    float *tile = p.c + at.product * p.c_batch + at.first[0] * p.c_stride + at.first[1];
#pragma unroll
    for (int low = 0; low < 2; low++) {
        int row = (threadIdx.x >> 5 & 7) * 16 + (threadIdx.x >> 2 & 7) + low * 8;
        if (row >= rows) continue;
        const Unit unit = tables.units[0][row];
        float *c = tile + row * p.c_stride + first + side;
        const bool paired = is_paired(c);
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 4, c += 8) {
            int j = first + side + 2 * i;
            Unit units[2];
            load_units(units, &tables.units[1][j]);
            float x = scaled(sum[i + 2 * low], unit, units[0]),
                  y = scaled(sum[i + 2 * low + 1], unit, units[1]);
            if (j + 1 < columns) store_two(c, x, y, paired);
            else if (j < columns) c[0] = x;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, STEPS == 1 ? 3 : STEPS == 2 ? 2 : 1)
    small(const __grid_constant__ Problem p) {
    extern __shared__ __align__(1024) Byte memory[];
    Tables &tables = *(Tables *)(memory + 2 * SLICES);
    follow();
    {
        Values x;
        const Pass<0> first{p};
        const Operand operand = first.operand();
#pragma unroll
        for (int item = 0; item < ITEMS; item++) first.fetch(x[item], operand, item);
        if (p.ahead) prefetch<1 - FIRST>(p, this_block());
        first.pack(x, operand.rows, memory, tables);
    }
    // Stores of digits are seen by wgmma, which reads by another way than they were written.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    review(p, memory, tables);
    __syncthreads();

    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be uniform
    const int rows = (group & 1) * 64, columns = (group >> 1) * COLUMNS;
    if (rows >= rows_left(p, 0)) return;
    const u32 digits = (u32)__cvta_generic_to_shared(memory);
#pragma unroll 1
    for (int first = columns; first < columns + COLUMNS && first < rows_left(p, 1);
         first += TILE_N) {
        float sum[REGISTERS];
        Sum acc[REGISTERS];
        combine<0>(sum, acc, digits + rows * 64, digits + SLICES + first * 64);
        store(p, sum, tables, first);
    }
}
