// What operands are like, as the launches after these have to know.

#include "launch.cuh"

constexpr unsigned OUTLIERS = OUTLIER * 0x01010101u;  // in four flags

__device__ int outliers(const unsigned char *flags, long long count) {
    int found = 0;
    const long long sixteens = count / 16;
    for (long long i = threadIdx.x; i < sixteens; i += blockDim.x) {
        const uint4 some = ((const uint4 *)flags)[i];
        found += __popc(some.x & OUTLIERS) + __popc(some.y & OUTLIERS) +
                 __popc(some.z & OUTLIERS) + __popc(some.w & OUTLIERS);
    }
    for (long long i = sixteens * 16 + threadIdx.x; i < count; i += blockDim.x)
        found += (flags[i] & OUTLIERS) != 0;
    return found;
}

// Whether too many rows of A, or columns of B, have left the slices: word[0] = 1, else 0. One block.
// Flags are aligned to 16 bytes. most: rows that may leave. mirrored: 0, or what word[1] becomes instead
// of 1 where word[0] = 0.
extern "C" __global__ void __launch_bounds__(1024)
guard(const unsigned char *a, long long a_count, long long a_most, const unsigned char *b,
      long long b_count, long long b_most, int *word, long long mirrored) {
    __shared__ unsigned long long in_a, in_b;
    if (threadIdx.x == 0) in_a = in_b = 0;
    __syncthreads();
    follow();
    const int mine_a = __reduce_add_sync(~0u, outliers(a, a_count));
    const int mine_b = __reduce_add_sync(~0u, outliers(b, b_count));
    if (threadIdx.x % 32 == 0) {
        if (mine_a) atomicAdd(&in_a, (unsigned long long)mine_a);
        if (mine_b) atomicAdd(&in_b, (unsigned long long)mine_b);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    word[0] = in_a > a_most || in_b > b_most;
    if (mirrored) word[1] = word[0] ? 1 : (int)mirrored;
}

// *word = general, where it is `hermitian` and B is not A's conjugate, bit for bit: `count` words of each,
// a number of complex64 or half of one of complex128.
constexpr int AT_ONCE = 4;

extern "C" __global__ void __launch_bounds__(1024)
conjugate(const u64 *a, const u64 *b, long long count, long long single, int *word, long long hermitian,
          long long general) {
    follow();
    const long long part = (long long)blockDim.x * AT_ONCE;
    for (long long first = blockIdx.x * part; first < count; first += gridDim.x * part) {
        const bool decided = threadIdx.x == 0 && *(volatile int *)word != hermitian;
        bool differs = false;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const long long at = first + i * blockDim.x + threadIdx.x;
            const bool has_sign = single || at % 2;
            if (at < count) differs |= (__ldg(a + at) ^ __ldg(b + at)) != (has_sign ? 1ull << 63 : 0);
        }
        if (!__syncthreads_or(decided || differs)) continue;
        if (threadIdx.x == 0 && !decided) *word = (int)general;
        return;
    }
}

// word[1] = 0, where it is `mirrored` and x (n × n) is not its own transpose, bit for bit. leading: from
// one row, or column, to the next. Blocks compare tiles with their images. One thread of a block reads
// and writes the word: where all do, they take ten times as long as the comparison.
constexpr int SIDE = 64, LINES = 16, PART = SIDE / LINES;  // of a tile, rows at a time

extern "C" __global__ void __launch_bounds__(SIDE *LINES)
mirror(const unsigned *x, long long n, long long leading, int *word, long long mirrored) {
    __shared__ unsigned tile[SIDE][SIDE + 1];
    const int tiles = (int)((n + SIDE - 1) / SIDE);
    const int lane = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
    follow();
    for (int index = blockIdx.x; index < tiles * tiles; index += gridDim.x) {
        const int row = index / tiles * SIDE, column = index % tiles * SIDE;
        if (column > row) continue;
        const bool decided = threadIdx.x == 0 && *(volatile int *)(word + 1) != mirrored;
        unsigned own[PART], image[PART];
#pragma unroll
        for (int i = 0; i < PART; i++) {
            const int line = first + i * LINES;
            const bool in = row + line < n && column + lane < n;
            own[i] = in ? __ldg(x + (row + line) * leading + column + lane) : 0;
            const bool its = column + line < n && row + lane < n;
            image[i] = its ? __ldg(x + (column + line) * leading + row + lane) : 0;
        }
#pragma unroll
        for (int i = 0; i < PART; i++) tile[first + i * LINES][lane] = own[i];
        if (__syncthreads_or(decided)) return;
        bool differs = false;
#pragma unroll
        for (int i = 0; i < PART; i++) differs |= image[i] != tile[lane][first + i * LINES];
        if (!__syncthreads_or(differs)) continue;
        if (threadIdx.x == 0) word[1] = 0;
        return;
    }
}
