// Complex numbers as real and imaginary parts, and products of parts as complex numbers.
//
// z: a stack of (rows, columns), `apart` elements from one matrix to the next, any strides; where
// columns are `count`, all elements are one row. whole: whether both parts of an element can be read,
// or written, at once. Parts are (…, count) numbers, in order.

#include "launch.cuh"
#include "values.cuh"

__device__ __forceinline__ float sum(float x, float y) {
    float found;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
__device__ __forceinline__ double sum(double x, double y) { return x + y; }

struct Places {
    long long count, rows, columns, apart, row_stride, column_stride;

    __device__ __forceinline__ long long at(long long i) const {
        if (columns == count) return i * column_stride;
        const long long row = i / columns, matrix = row / rows;
        return matrix * apart + (row - matrix * rows) * row_stride + (i - row * columns) * column_stride;
    }
};

extern "C" __global__ void __launch_bounds__(256)
split(const Pair *z, Value *parts, long long count, long long rows, long long columns,
      long long apart, long long row_stride, long long column_stride, long long whole) {
    const Places places = {count, rows, columns, apart, row_stride, column_stride};
    follow();
    for (long long i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        const Pair *from = z + places.at(i);
        Pair both;
        if (whole) both = *from;
        else both.x = ((const Value *)from)[0], both.y = ((const Value *)from)[1];
        parts[i] = both.x;
        parts[count + i] = both.y;
    }
}

// products: Re A · Re B, Re A · Im B, Im A · Re B, Im A · Im B if there are four, else the two parts.
extern "C" __global__ void __launch_bounds__(256)
join(const Value *products, Pair *z, long long count, long long rows, long long columns,
     long long apart, long long row_stride, long long column_stride, long long whole,
     long long four) {
    const Places places = {count, rows, columns, apart, row_stride, column_stride};
    follow();
    for (long long i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        Pair both;
        both.x = products[i], both.y = products[count + i];
        if (four) {
            both.x = difference(both.x, products[3 * count + i]);
            both.y = sum(both.y, products[2 * count + i]);
        }
        Pair *to = z + places.at(i);
        if (whole) *to = both;
        else ((Value *)to)[0] = both.x, ((Value *)to)[1] = both.y;
    }
}
