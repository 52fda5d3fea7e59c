// wgmma, by the definitions ELEMENT and TILE_N (kernels/wgmma.cuh), and
//   REGISTERS_OF_A  1: A comes from registers, 0: from shared memory
//   KEEP, SET       bits that random words keep, and that are set in them
//   THREADS         of a block: each warpgroup multiplies its own 64 rows by the same B
//
// Shared memory: slices of 64 bytes of K, swizzled as the GEMM kernels have them; first B (TILE_N
// rows), then A (64 rows a warpgroup). Steps take the two halves of K in turn.

#include "clock.cuh"
#include "operands.cuh"
#include "wgmma.cuh"

constexpr int ROW = 64;  // bytes of K

struct State {
    u64 a, b;
    u32 fragment[4];
    Sum d[REGISTERS];
};

__device__ __forceinline__ void start(State &s, u32 *memory, u32 *place) {
    int words = (TILE_N + THREADS / 2) * ROW / 4;
    for (int i = threadIdx.x; i < words; i += blockDim.x) memory[i] = random_word(i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads what was stored
    __syncthreads();
    u32 base = __cvta_generic_to_shared(memory);
    s.b = describe(base);
    int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // so is seen to be one for all of a warp
    s.a = describe(base + (TILE_N + 64 * warpgroup) * ROW);
#pragma unroll
    for (int i = 0; i < 4; i++) 
        s.fragment[i] = loaded(random_word(threadIdx.x * 4 + i), place);
#pragma unroll
    for (int i = 0; i < REGISTERS; i++) s.d[i] = 0;
}

__device__ __forceinline__ void step(State &s, int j) {
    int half = (j & 1) * 32 >> 4;
#if REGISTERS_OF_A
    multiply(s.d, s.fragment, s.b + half, 1);
#else
    multiply(s.d, s.a + half, s.b + half, 1);
#endif
}

__device__ __forceinline__ void begin() { fence_registers(); }

// Products of a group follow one another without a wait.
__device__ __forceinline__ void end() {
    commit();
    wait_products<0>();
}

__device__ __forceinline__ u32 result(State &s) { return bits_of(s.d[0]); }

#include "timing.cuh"
