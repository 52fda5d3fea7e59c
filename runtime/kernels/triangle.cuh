// The order in which blocks take tiles of a symmetric C: those that reach its diagonal or lie below
// it. The others are mirror images.

// Tiles of M × N. As those of any C they are taken in groups of rows, column by column. A group is a
// whole number of tiles wide as well, so every group has WIDER tiles more than the one above it.
template <int M, int N> struct Triangle {
    static constexpr int ROWS = 8 * M % N ? 9 : 8, WIDER = ROWS * (ROWS * M / N);
    static_assert(ROWS * M % N == 0, "whole tiles");

    // The tiles of a row up to the diagonal.
    static __host__ __device__ constexpr int width(int row) { return ((row + 1) * M + N - 1) / N; }
    static __host__ __device__ constexpr int first_group() {
        int tiles = 0;
        for (int row = 0; row < ROWS; row++) tiles += width(row);
        return tiles;
    }

    // Number `index` of all tiles, as a row and a column of tiles. rows: of all of C.
    static __device__ __forceinline__ int2 at(int index, int rows) {
        int first = 0;
        for (int tiles = first_group(); index >= tiles; tiles += WIDER, first += ROWS) index -= tiles;
        const int end = min(first + ROWS, rows), height = end - first, full = width(first);
        int column = index / height;
        if (column < full) return {first + index - column * height, column};
        index -= full * height;
        for (column = full;; column++) {  // whose upper tiles lie above the diagonal
            const int top = column * N / M;
            if (index < end - top) return {top + index, column};
            index -= end - top;
        }
    }
};
