// What becomes of accumulators: combined, scaled, and stored or added to C. For Hopper.

#define SINGLE !WIDE
#include "values.cuh"

// A unit g · 2^E in two factors, since 2^(EA + EB) may be no normal number although C is. The first
// carries g, and gA · gB is exact: so a sum is rounded once, or once more where C is subnormal. The
// factors of the largest units, E = 113, still have products below 2^128.
struct Unit {
    Value one, two;
};

__device__ __forceinline__ Unit unit(int significand, int exponent) {
    int half = (exponent >> 1) - 5;
    return {(Value)significand * Precision<Value>::power(half),
            Precision<Value>::power(exponent - half)};
}

__device__ __forceinline__ Value scaled(Value x, const Unit &a, const Unit &b) {
    return rounded::multiply(rounded::multiply(x, a.one * b.one), a.two * b.two);
}

// Two neighbours at an even place in shared memory.
__device__ __forceinline__ void load_units(Unit (&b)[2], const Unit *from) {
#if WIDE
    b[0] = from[0], b[1] = from[1];
#else
    float4 both = *(const float4 *)from;
    b[0] = {both.x, both.y}, b[1] = {both.z, both.w};
#endif
}

// A scale, asked for here and now: the compiler may not put it off until it is used.
__device__ __forceinline__ int load_now(const int *scale) {
    int word;
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(word) : "l"(scale));
    return word;
}

// Whether two neighbours can be stored at once.
__device__ __forceinline__ bool is_paired(const Value *c) {
    return ((unsigned long long)c & (2 * sizeof(Value) - 1)) == 0;
}

#if ELEMENT == ELEMENT_INT8
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

__device__ __forceinline__ Unit unit(int scale) { return unit(scale & SIGNIFICAND_MASK, scale >> SIGNIFICAND_BITS); }

// Units of what a warpgroup stores: of its 64 rows, then of the tile's columns. Each of its threads
// fetches a few, while products are under way, and all find them in shared memory.
constexpr bool HAS_UNITS = !(PROMOTE && ELEMENT == ELEMENT_INT8);  // or promotion has scaled the sums already
constexpr int UNITS = 64 + TILE_N;
constexpr int SHARE = (UNITS + 127) / 128;
constexpr int AT_ONCE = WIDE ? 8 : 32;  // elements of C that a thread asks for before it adds any

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
#if SYMMETRIC  // what is on or below the diagonal is stored twice, the rest not at all
    Value *image = (Value *)p.c + tile.product * p.c_stride +
                   (tile.column + side) * p.c_leading + row;
    const int to_diagonal = row - tile.column - side, top = tile.row + group * 64;
    auto store_both = [&](bool whole, bool paired) {
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 4, c += 8, image += 8 * p.c_leading) {
            Unit b[2];
            load_units(b, units + 2 * i);
#pragma unroll
            for (int low = 0; low < 2; low++) {
                Value x[2], *to = c + low * below;
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    if (!whole && (row + 8 * low >= m || 2 * i + e > to_diagonal + 8 * low)) continue;
                    x[e] = value(i + 2 * low + e, b[e]);
                    if (!first) x[e] = rounded::add(x[e], to[e]);
                    if (!paired) to[e] = x[e];
                    if (last) image[e * p.c_leading + 8 * low] = x[e];
                }
                if (paired) store_two(to, x[0], x[1], true);
            }
        }
    };
    if (top + 64 > m || tile.column + TILE_N > top + 1) store_both(false, false);
    else if (is_paired(c) && is_paired(c + below)) store_both(true, true);
    else store_both(true, false);
#else
    const Value *added = last && p.row ? (const Value *)p.row + tile.column + side : nullptr;
    const bool paired[2] = {is_paired(c), is_paired(c + below)};
    auto store_all = [&](bool both_paired) {
#pragma unroll
        for (int i = 0; i < REGISTERS; i += 4, c += 8) {
            Unit b[2];
            load_units(b, units + 2 * i);
#pragma unroll
            for (int low = 0; low < 2; low++)
                store_two(c + low * below, value(i + 2 * low, b[0]), value(i + 2 * low + 1, b[1]),
                          both_paired || paired[low]);
        }
    };
    // The usual case before anything else is looked at, and free of tests.
    if (first && !added && tile.row + (group + 1) * 64 <= m && tile.column + TILE_N <= n) {
        if (paired[0] && paired[1]) store_all(true);
        else store_all(false);
        return;
    }
    const bool rows[2] = {row < m, row + 8 < m}, together = paired[0] && paired[1];
    const int columns = n - tile.column - side;
    // A load must not stand behind a store, which it would wait for: many are asked for at once.
#pragma unroll
    for (int from = 0; from < REGISTERS; from += AT_ONCE) {
        Value before[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE && from + i < REGISTERS; i += 2) {
            const int low = i >> 1 & 1, column = 2 * (from + i & ~3);
            const Value *sum = c + column + low * below;
            before[i] = before[i + 1] = 0;
            if (first || !rows[low]) continue;
            if (together && column + 1 < columns) {
                load_two(before[i], before[i + 1], sum);
            } else {
                if (column < columns) before[i] = sum[0];
                if (column + 1 < columns) before[i + 1] = sum[1];
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE && from + i < REGISTERS; i += 4) {
            const int column = 2 * (from + i);
            Unit b[2];
            load_units(b, units + column);
#pragma unroll
            for (int low = 0; low < 2; low++) {
                if (!rows[low]) continue;
                Value x[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    x[e] = value(from + i + 2 * low + e, b[e]);
                    if (!first) x[e] = rounded::add(x[e], before[i + 2 * low + e]);
                    if (added && column + e < columns) x[e] = rounded::add(x[e], added[column + e]);
                }
                store_some(c + column + low * below, x[0], x[1], column, columns, together);
            }
        }
    }
#endif
}
