// The order in which blocks take tiles of C and segments of K, for Hopper.

#if SYMMETRIC
#include "triangle.cuh"
#endif

struct Tile {
    int product, row, column;
};

// Tiles of a group of rows are taken column by column, so that what runs at a time is nearly
// square and its operands stay in L2.
__device__ __forceinline__ Tile tile_at(const Problem &p, int index) {
    int rows = (p.a.rows + TILE_M - 1) / TILE_M;
#if SYMMETRIC
    const int product = index / p.triangle;
    const int2 tile = Triangle<TILE_M, TILE_N>::at(index - product * p.triangle, rows);
    return {product, tile.x * TILE_M, tile.y * TILE_N};
#else
    int columns = (p.b.rows + TILE_N - 1) / TILE_N;
    int product = index / (rows * columns);
    int place = index - product * rows * columns;
    int first = place / (p.group * columns) * p.group;
    int height = min(p.group, rows - first);
    place -= first * columns;
    int column = place / height;
    int row = first + place - column * height;
    return {product, row * TILE_M, column * TILE_N};
#endif
}

__device__ __forceinline__ int tile_count(const Problem &p) {
    if (SYMMETRIC) return p.triangle * p.batch;
    return (p.a.rows + TILE_M - 1) / TILE_M * ((p.b.rows + TILE_N - 1) / TILE_N) * p.batch;
}

// The upper of the two rows that a thread holds.
__device__ __forceinline__ int my_row(const Tile &tile, int group) {
    return tile.row + group * 64 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7);
}

// A segment ends where an exponent block does, or where INT32 accumulators are full.
__device__ __forceinline__ int segment_end(const Problem &p, int begin) {
    int end = min(begin + p.segment_steps, p.steps);
    return p.blocks > 1 ? min(end, (begin / p.steps_per_block + 1) * p.steps_per_block) : end;
}

// What a block does next: a tile, or a part of one along K.
struct Work {
    int tile, begin, end;
    bool part;
};

// The block's item number `round`; tile −1 after the last.
__device__ __forceinline__ Work work_at(const Problem &p, int count, int round) {
    int item = blockIdx.x + round * gridDim.x, whole = count - p.tail;
    if (item < whole) return {item, 0, p.steps, false};
    item -= whole;
    if (item >= p.tail * p.split) return {-1, 0, 0, false};
    int part = item % p.split;
    return {whole + item / p.split, (int)((long long)p.steps * part / p.split),
            (int)((long long)p.steps * (part + 1) / p.split), true};
}
