// Shared memory, the L2 cache and DRAM: how fast they are read. The clock.

typedef unsigned int u32;
typedef unsigned long long u64;

// Volatile and with "memory": nothing that is timed may move across it.
__device__ __forceinline__ u64 cycles_now() {
    u64 now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ u64 nanoseconds_now() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

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

__device__ __forceinline__ Vector load_shared(u32 from) {
    Vector v;
    asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from));
    return v;
}

// Each thread reads its own 16 bytes, 8 · steps times. out[block]: cycles.
extern "C" __global__ void __launch_bounds__(1024) read_shared(u64 *out, u32 *sink, u64 steps) {
    __shared__ Vector memory[1024];
    memory[threadIdx.x] = {threadIdx.x, 1, 2, 3};
    u32 here = __cvta_generic_to_shared(memory + threadIdx.x), sum = 0;
    __syncthreads();
    u64 begin = cycles_now();
    for (u64 i = 0; i < steps; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            Vector v = load_shared(here);
            sum ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    }
    sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    u64 end = cycles_now();
    if (threadIdx.x == 0) out[blockIdx.x] = end - begin;
}

// Memory is `spans` spans of `chunks` chunks, a chunk 8 vectors for each thread of a block. Each block
// reads one chunk of every span, `rounds` times, and each round the one after.
extern "C" __global__ void __launch_bounds__(1024)
    read_global(const Vector *memory, u32 *sink, u64 chunks, u64 spans, u64 rounds) {
    u32 sum = 0;
    for (u64 round = 0; round < rounds; round++) {
        u64 chunk = (blockIdx.x + round) % chunks;
        const Vector *at = memory + chunk * 8 * blockDim.x + threadIdx.x;
        for (u64 span = 0; span < spans; span++, at += chunks * 8 * blockDim.x) {
            Vector v[8];
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = load(at + j * blockDim.x);
#pragma unroll
            for (int j = 0; j < 8; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
        }
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
