// Tiles of residues of a product, and the order of the bytes in which threads leave them.
//
// (COUNT, tiles, TILE_M / 64, UNITS, 128, UNIT) bytes: of each modulus, tile by tile, of each 64 rows
// of it, each 32 of its columns, and each thread of the warpgroup what it holds of these: UNIT sums,
// in each 8 columns two neighbours of one row, then of the row 8 below.

constexpr int UNIT = 16, UNITS = TILE_N / 32;

#include "triangle.cuh"

struct Tile {  // in tiles
    int row, column;
};

// Tiles of a group of rows are taken column by column, so that what runs at a time is nearly square
// and its operands stay in L2.
__device__ __forceinline__ Tile tile_at(int place, int rows, int columns, int group) {
    const int first = place / (group * columns) * group, height = min(group, rows - first);
    place -= first * columns;
    const int column = place / height;
    return {first + place - column * height, column};
}

// The same of tiles of M × N, of which only those up to the diagonal are made if C is symmetric.
template <int M, int N>
__device__ __forceinline__ Tile tile_of(int place, int rows, int columns, int group, bool symmetric) {
    if (!symmetric) return tile_at(place, rows, columns, group);
    const int2 tile = Triangle<M, N>::at(place, rows);
    return {tile.x, tile.y};
}

// Where the bytes of 32 columns of a warpgroup begin.
__device__ __forceinline__ unsigned long long unit_at(int tile, int group, int unit) {
    return ((unsigned long long)(tile * (TILE_M / 64) + group) * UNITS + unit) * 128 * UNIT;
}
