// Hopper's instructions: products of a warpgroup, bulk copies, and the barriers between them.

#include "launch.cuh"
#include "shared_instructions.cuh"

constexpr int REGISTERS = TILE_N / 2;  // of one accumulator, per thread

// ---- wgmma: one product of 64 rows, TILE_N columns and 32 bytes of K --------------------------

// Floating-point operands may be negated, and, unless they are TF32, lie across K.
#if ELEMENT == ELEMENT_INT8
#define SCALES ""
#else
#define SCALES ",1,1"
#endif
#if ELEMENT == ELEMENT_FLOAT16 || ELEMENT == ELEMENT_BFLOAT16
#define LAYOUT ",0"
#else
#define LAYOUT ""
#endif
#define WGMMA                                                                                  \
    "wgmma.mma_async.sync.aligned." SHAPE "k" PRODUCT_K "." SUM_TYPE "." A_TYPE "." B_TYPE " {" NAMES "}, "

__device__ __forceinline__ void multiply(Sum (&d)[REGISTERS], const u32 (&a)[4], u64 b, int keep) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5
                 ", 0;\n"
                 WGMMA "{" P0 "," P1 "," P2 "," P3 "}, " P4 ", p" SCALES LAYOUT ";\n}"
                 : BINDINGS(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply(Sum (&d)[REGISTERS], u64 a, u64 b, int keep) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2
                 ", 0;\n"
                 WGMMA P0 ", " P1 ", p" SCALES LAYOUT LAYOUT ";\n}"
                 : BINDINGS(d)
                 : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void fence_registers() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Shared-memory descriptor of slices with K contiguous, 64-byte rows and 64-byte swizzle: groups of
// 8 rows are 512 bytes apart. Its low word takes the address; the ring lies below 2^18 bytes.
__device__ __forceinline__ u64 describe(u32 address) {
    u64 descriptor;
    asm("mov.b64 %0, {%1, %2};"
        : "=l"(descriptor)
        : "r"(address >> 4 | 1 << 16), "n"(2 << 30 | 512 >> 4));
    return descriptor;
}

// Four 8 × 16-byte matrices: 16 rows × 32 bytes of a slice, as wgmma takes A from registers.
__device__ __forceinline__ void load_fragment(u32 (&f)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address));
}

// ---- barriers and copies ----------------------------------------------------------------------

__device__ __forceinline__ void wait(u32 barrier, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra "
        "AGAIN;\nDONE:\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// A consumer says to the producer that it has read a stage. One thread does, for all of a warpgroup:
// its products are done only after every warp has read the fragments that they are of. ALL_ARRIVE:
// each says it for itself, which is slower, and which tools that look for races can follow.
#ifndef ALL_ARRIVE
#define ALL_ARRIVE 0
#endif
constexpr int ARRIVALS = ALL_ARRIVE ? 128 : 1;

__device__ __forceinline__ void release(u32 barrier) {
    if (ALL_ARRIVE || (threadIdx.x & 127) == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void expect(u32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copy(u32 to, const unsigned char *from, int bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
