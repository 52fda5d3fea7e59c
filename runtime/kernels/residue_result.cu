// C from its residues modulo p_1 … p_COUNT: the remainder theorem, and the scales of rows and columns.
//
// A thread makes what one thread of the GEMM has left in 16 bytes of each modulus: see
// `residue_tiles.cuh`. A block has 32 columns of 64 rows. Of a complex C, two neighbouring threads
// make its real and its imaginary part; then one has both of every first row, and one those 8 below.
//
// triangle: the number of tiles that are made of a C that is its own transpose, or its own conjugate
// transpose if it is `hermitian`; else 0.

#ifndef COUNT
#define COUNT 2
#define MODULI 256, 255
#define PARTS 1
#define WEIGHTS 0
#define STARTS 0
#define PRODUCT 0
#define PART_UNITS 1
#define INVERSE 0
#define TILE_M 256
#define TILE_N 192
#endif

#ifndef COMPLEX
#define COMPLEX 0
#endif

#include "residues.cuh"
#include "residue_tiles.cuh"
#include "result_values.cuh"

__device__ __forceinline__ void narrow(double x, double &value) { value = x; }
__device__ __forceinline__ void narrow(double x, float &value) {  // to subnormal ones, too
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(value) : "d"(x));
}

// x · 2^-scale, rounded where it is subnormal only. Half of it leaves no result below the normal
// range that the other half does not make 0.
__device__ __forceinline__ Value unscaled(double x, int scale) {
    const int half = max(-scale >> 1, -1022), rest = max(-scale - half, -1022);
    Value value;
    narrow(__dmul_rn(__dmul_rn(x, power(half)), power(rest)), value);
    return value;
}

// 0 − x, of subnormal numbers, too.
__device__ __forceinline__ double negative(double x) { return 0 - x; }
__device__ __forceinline__ float negative(float y) {
    const float x = 0;
    float found;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}

// A byte as 1 + byte / 256.
template <int E> __device__ __forceinline__ double float_of(u32 word) {
    constexpr int shift = 12 - 8 * E;
    const u32 moved = shift > 0 ? word << shift : word >> -shift;
    return __hiloint2double((moved & 0xff000) | 0x3ff00000, 0);
}

constexpr int REALS = COMPLEX ? 2 : 1;  // of an element

extern "C" __global__ void __launch_bounds__(128 * REALS)
result(const uint4 *residues, const int *a_scales, const int *b_scales, Value *c, long long m,
       long long n, long long leading, long long tile_rows, long long tile_columns,
       long long paired, long long triangle, long long hermitian, const int *gate, long long wanted) {
    constexpr int GROUPS = TILE_M / 64;
    const int unit = blockIdx.x % UNITS, group = blockIdx.x / UNITS % GROUPS;
    const int index = blockIdx.x / (UNITS * GROUPS), thread = threadIdx.x / REALS;
    const Tile tile =
        tile_of<TILE_M, TILE_N>(index, (int)tile_rows, (int)tile_columns, 1, (int)triangle);
    const int tile_row = tile.row, tile_column = tile.column;
    const int place = tile_row * (int)tile_columns + tile_column;
    const int row = tile_row * TILE_M + group * 64 + (thread >> 5) * 16 + (thread >> 2 & 7);
    const int column = tile_column * TILE_N + unit * 32 + (thread & 3) * 2;
    follow();
    if (gate && *gate != wanted) return;
    const int top = tile_row * TILE_M + group * 64;
    const int right = triangle ? min((int)n, top + 64) : (int)n;
    if (top >= m || tile_column * TILE_N + unit * 32 >= right) return;
    const long long stride = tile_rows * tile_columns * (TILE_M * TILE_N / UNIT);
    const int part_of_c = threadIdx.x % REALS;
    residues += part_of_c * COUNT * stride + unit_at(place, group, unit) / UNIT + thread;
    uint4 bytes[COUNT];
    each<COUNT>([&](auto index) {
        constexpr int l = decltype(index)::value;
        bytes[l] = __ldg(residues + l * stride);
    });
    const int of_rows[2] = {row < m ? a_scales[row] : 0, row + 8 < m ? a_scales[row + 8] : 0};
    Value *image = c + (column * leading + row) * REALS;  // of a symmetric C
    c += (row * leading + column) * REALS;
    each<4>([&](auto quarter) {  // 8 columns each
        constexpr int q = decltype(quarter)::value;
        double part[4][PARTS];
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int j = 0; j < PARTS; j++) part[e][j] = starts[j];
        each<COUNT>([&](auto index) {
            constexpr int l = decltype(index)::value;
            const u32 word = q == 0 ? bytes[l].x : q == 1 ? bytes[l].y : q == 2 ? bytes[l].z : bytes[l].w;
            const double byte[4] = {float_of<0>(word), float_of<1>(word), float_of<2>(word),
                                    float_of<3>(word)};
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int j = 0; j < PARTS; j++) part[e][j] = __fma_rn(byte[e], weights[l][j], part[e][j]);
        });
        const int at = column + q * 8;
        const int of_columns[2] = {at < n ? b_scales[at] : 0, at + 1 < n ? b_scales[at + 1] : 0};
#if COMPLEX
        Value mine[2], others[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Value high = unscaled(combined(part[i]), of_rows[0] + of_columns[i]);
            const Value low = unscaled(combined(part[2 + i]), of_rows[1] + of_columns[i]);
            mine[i] = part_of_c ? low : high;
            others[i] = __shfl_xor_sync(~0u, part_of_c ? high : low, 1);
        }
        const int its_row = row + 8 * part_of_c;
        if (its_row >= m) return;
        const int end = triangle ? min((int)n, its_row + 1) : (int)n;
        auto put = [&](Value *to, const Pair &both) {
            if (paired) *(Pair *)to = both;
            else to[0] = both.x, to[1] = both.y;
        };
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (at + i >= end) continue;
            Pair both;
            both.x = part_of_c ? others[i] : mine[i], both.y = part_of_c ? mine[i] : others[i];
            put(c + (8 * part_of_c * leading + q * 8 + i) * 2, both);
            if (!triangle || at + i == its_row) continue;
            if (hermitian) both.y = negative(both.y);
            put(image + ((q * 8 + i) * leading + 8 * part_of_c) * 2, both);
        }
#else
#pragma unroll
        for (int low = 0; low < 2; low++) {
            const Value first = unscaled(combined(part[2 * low]), of_rows[low] + of_columns[0]);
            const Value second = unscaled(combined(part[2 * low + 1]), of_rows[low] + of_columns[1]);
            if (row + 8 * low >= m) continue;
            const int end = triangle ? min((int)n, row + 8 * low + 1) : (int)n;
            Value *to = c + 8 * low * leading + q * 8;
            if (paired && at + 1 < end) {
                Pair both;
                both.x = first, both.y = second;
                *(Pair *)to = both;
            } else {
                if (at < end) to[0] = first;
                if (at + 1 < end) to[1] = second;
            }
            if (!triangle) continue;
            if (at < end) image[q * 8 * leading + 8 * low] = first;
            if (at + 1 < end) image[(q * 8 + 1) * leading + 8 * low] = second;
        }
#endif
    });
}
