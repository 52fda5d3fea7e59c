// How fast memory is read. The clock.

#include "clock.cuh"

struct __align__(16) Vector {
    u32 x, y, z, w;
};

// Past the L1 cache.
__device__ __forceinline__ Vector load(const Vector *from) {
    Vector v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Memory is `spans` spans, of 8 vectors for each thread of the grid; each is read once.
extern "C" __global__ void __launch_bounds__(1024)
    read(const Vector *memory, u32 *sink, u64 spans) {
    u32 sum = 0;
    const Vector *at = memory + blockIdx.x * 8 * blockDim.x + threadIdx.x;
    for (u64 span = 0; span < spans; span++, at += gridDim.x * 8 * blockDim.x) {
        Vector v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = load(at + j * blockDim.x);
#pragma unroll
        for (int j = 0; j < 8; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// memory: `count` words, each of which gets its own address.
extern "C" __global__ void fill(u64 *memory, u64 count) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) memory[i] = (u64)(memory + i);
}

// out[0], out[1]: cycles and nanoseconds of a thread that waits so many nanoseconds.
extern "C" __global__ void watch(u64 *out, u64 nanoseconds) {
    u64 began = nanoseconds_now(), begin = cycles_now(), ended;
    do ended = nanoseconds_now();
    while (ended - began < nanoseconds);
    u64 end = cycles_now();
    out[0] = end - begin;
    out[1] = ended - began;
}
