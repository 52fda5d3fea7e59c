// C from its residues modulo p_1 … p_COUNT: the remainder theorem, and the scales of rows and columns.
//
// A thread makes what one thread of the GEMM has left in 16 bytes of each modulus: see
// `residue_tiles.cuh`. A block has 32 columns of 64 rows. Of a complex C two neighbouring threads share
// these 16 bytes, of U and of V: see `schemes/residues.py`.
//
// From Python: the constants of `residues.cuh`, and SINGLE.
//
// triangle: the number of tiles that are made of a C that is its own transpose, or its own conjugate
// transpose if it is `hermitian`; else 0.

#include "residues.cuh"
#include "residue_tiles.cuh"
#include "values.cuh"

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

#if COMPLEX
typedef uint2 Words;
#else
typedef uint4 Words;
#endif
constexpr int QUARTERS = sizeof(Words) / 4;  // of 32 columns, that a thread makes: a word each

#if COMPLEX

// The bytes of U and V in one word each: U + V or, for the imaginary part, U − V + 255, as 1 + this / 512.
__device__ __forceinline__ void numbers(const u32 *word, int q, bool imaginary, double (&found)[4]) {
    const u32 u = word[q], v = imaginary ? ~word[QUARTERS + q] : word[QUARTERS + q];
    const u32 even = (u & 0xff00ff) + (v & 0xff00ff);
    const u32 odd = (u >> 8 & 0xff00ff) + (v >> 8 & 0xff00ff);
    const u32 nine[4] = {even << 11, odd << 11, even >> 5, odd >> 5};
#pragma unroll
    for (int e = 0; e < 4; e++) found[e] = __hiloint2double((nine[e] & 0xff800) | 0x3ff00000, 0);
}

#else

// The bytes of a word, as 1 + byte / 256.
__device__ __forceinline__ void numbers(const u32 *word, int q, bool, double (&found)[4]) {
    const u32 eight[4] = {word[q] << 12, word[q] << 4, word[q] >> 4, word[q] >> 12};
#pragma unroll
    for (int e = 0; e < 4; e++) found[e] = __hiloint2double((eight[e] & 0xff000) | 0x3ff00000, 0);
}

#endif

extern "C" __global__ void __launch_bounds__(128 * REALS)
result(const unsigned char *residues, const int *a_scales, const int *b_scales, Value *c, long long m,
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
    const long long stride = tile_rows * tile_columns * (TILE_M * TILE_N);
    const int begin = threadIdx.x % REALS * QUARTERS;
    residues += unit_at(place, group, unit) + thread * UNIT + begin * 4;
    u32 word[COUNT][REALS * QUARTERS];
    each<REALS * COUNT>([&](auto index) {
        constexpr int l = decltype(index)::value;
        *(Words *)(word[l / REALS] + l % REALS * QUARTERS) = __ldg((const Words *)(residues + l * stride));
    });
    const int of_rows[2] = {row < m ? a_scales[row] : 0, row + 8 < m ? a_scales[row + 8] : 0};
    Value *image = c + (column * leading + row) * REALS;  // of a symmetric C
    c += (row * leading + column) * REALS;
    each<QUARTERS>([&](auto quarter) {  // 8 columns each
        const int q = begin + decltype(quarter)::value, at = column + q * 8;
        const int of_columns[2] = {at < n ? b_scales[at] : 0, at + 1 < n ? b_scales[at + 1] : 0};
        Value value[REALS][4];
        each<REALS>([&](auto real) {
            constexpr int r = decltype(real)::value;
            double part[4][PARTS];
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int j = 0; j < PARTS; j++) part[e][j] = starts[r][j];
            each<COUNT>([&](auto index) {
                constexpr int l = decltype(index)::value;
                double number[4];
                numbers(word[l], decltype(quarter)::value, r == 1, number);
#pragma unroll
                for (int e = 0; e < 4; e++)
#pragma unroll
                    for (int j = 0; j < PARTS; j++)
                        part[e][j] = __fma_rn(number[e], weights[r][l][j], part[e][j]);
            });
#pragma unroll
            for (int e = 0; e < 4; e++)
                value[r][e] = unscaled(combined(part[e]), of_rows[e / 2] + of_columns[e % 2]);
        });
#pragma unroll
        for (int low = 0; low < 2; low++) {
            if (row + 8 * low >= m) continue;
            const int end = triangle ? min((int)n, row + 8 * low + 1) : (int)n;
            Value *to = c + (8 * low * leading + q * 8) * REALS;
#if COMPLEX
            auto put = [&](Value *to, const Pair &both) {
                if (paired) *(Pair *)to = both;
                else to[0] = both.x, to[1] = both.y;
            };
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (at + i >= end) continue;
                Pair both;
                both.x = value[0][2 * low + i], both.y = value[1][2 * low + i];
                put(to + 2 * i, both);
                if (!triangle || at + i == row + 8 * low) continue;
                if (hermitian) both.y = difference((Value)0, both.y);
                put(image + ((q * 8 + i) * leading + 8 * low) * 2, both);
            }
#else
            const Value x = value[0][2 * low], y = value[0][2 * low + 1];
            store_some(to, x, y, at, end, paired);
            if (triangle) store_apart(image + q * 8 * leading + 8 * low, leading, x, y, at, end);
#endif
        }
    });
}
