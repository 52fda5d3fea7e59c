// What becomes of accumulators: combined, scaled, and stored or added to C. For Hopper.

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
    const bool alone = p.alpha == 1.0 && p.beta == 0.0;
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
    if (first && alone && tile.row + (group + 1) * 64 <= m && tile.column + TILE_N <= n) {
        if (paired[0] && paired[1]) store_all(true);
        else store_all(false);
        return;
    }
    const Value *c_in = (const Value *)p.c_in + tile.product * p.c_in_stride +
                        row * p.c_in_leading + tile.column + side;
    // What is added: sums of segments before, or the other matrix; both are for `add_two`.
    const bool to_sums = !first && (!last || alone), to_other = first && last && p.beta != 0.0;
    const Value *other = to_sums ? c : c_in;
    const long long other_below = to_sums ? below : 8 * p.c_in_leading;
    if ((to_sums || to_other) && n % 2 == 0 && paired[0] && paired[1] && is_paired(other) &&
        is_paired(other + other_below)) {
        const Value alpha = to_sums ? 1 : (Value)p.alpha, beta = to_sums ? 1 : (Value)p.beta;
        const bool rows[2] = {row < m, row + 8 < m};
        const int columns = n - tile.column - side;
        // A load must not stand behind a store, which it would wait for: many are asked for at once.
#pragma unroll
        for (int from = 0; from < REGISTERS; from += AT_ONCE) {
            Value before[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE && from + i < REGISTERS; i += 2) {
                int low = i >> 1 & 1, column = 2 * (from + i & ~3);
                before[i] = before[i + 1] = 0;
                if (rows[low] && column < columns)
                    load_two(before[i], before[i + 1], other + column + low * other_below);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE && from + i < REGISTERS; i += 4) {
                Unit b[2];
                int column = 2 * (from + i);
                load_units(b, units + column);
#pragma unroll
                for (int low = 0; low < 2; low++) {
                    int j = i + 2 * low;
                    auto added = [&](int e) {
                        return rounded::multiply_add(
                            beta, before[j + e],
                            rounded::multiply(alpha, value(from + j + e, b[e])));
                    };
                    if (rows[low] && column < columns)
                        store_two(c + column + low * below, added(0), added(1), true);
                }
            }
        }
    } else {
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
#endif
}
