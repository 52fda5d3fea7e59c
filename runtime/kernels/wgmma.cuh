// Hopper's instructions: products of a warpgroup, bulk copies, and the barriers between them.

#include "shared_constants.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;

#if ELEMENT == ELEMENT_INT8
typedef int Sum;
#define BIND "+r"
#else
typedef float Sum;
#define BIND "+f"
#endif

constexpr int REGISTERS = TILE_N / 2;  // of one accumulator, per thread

// ---- wgmma: one product of 64 rows, TILE_N columns and 32 bytes of K --------------------------

// The names of an accumulator's registers in assembly, ten at a time.
#define TEN(t) \
    "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define NAMES_30 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," TEN(1) "," TEN(2)
#define NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_32 NAMES_30 ",%30,%31"
#define NAMES_48 NAMES_30 "," TEN(3) ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_60 NAMES_30 "," TEN(3) "," TEN(4) "," TEN(5)
#define NAMES_64 NAMES_60 ",%60,%61,%62,%63"
#define NAMES_90 NAMES_60 "," TEN(6) "," TEN(7) "," TEN(8)
#define NAMES_96 NAMES_90 ",%90,%91,%92,%93,%94,%95"
#define NAMES_128 \
    NAMES_90 "," TEN(9) "," TEN(10) "," TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
#define BIND_8(d, i)                                                                            \
    BIND(d[i]), BIND(d[i + 1]), BIND(d[i + 2]), BIND(d[i + 3]), BIND(d[i + 4]), BIND(d[i + 5]), \
        BIND(d[i + 6]), BIND(d[i + 7])
#define BIND_16(d) BIND_8(d, 0), BIND_8(d, 8)
#define BIND_32(d) BIND_8(d, 0), BIND_8(d, 8), BIND_8(d, 16), BIND_8(d, 24)
#define BIND_48(d) BIND_32(d), BIND_8(d, 32), BIND_8(d, 40)
#define BIND_64(d) BIND_48(d), BIND_8(d, 48), BIND_8(d, 56)
#define BIND_96(d) BIND_64(d), BIND_8(d, 64), BIND_8(d, 72), BIND_8(d, 80), BIND_8(d, 88)
#define BIND_128(d) BIND_96(d), BIND_8(d, 96), BIND_8(d, 104), BIND_8(d, 112), BIND_8(d, 120)

// P0 … P5 name what follows the accumulator: descriptors, or registers of A, and a predicate.
#if TILE_N == 32
#define SHAPE "m64n32"
#define NAMES NAMES_16
#define BINDINGS(d) BIND_16(d)
#define P0 "%16"
#define P1 "%17"
#define P2 "%18"
#define P3 "%19"
#define P4 "%20"
#define P5 "%21"
#elif TILE_N == 64
#define SHAPE "m64n64"
#define NAMES NAMES_32
#define BINDINGS(d) BIND_32(d)
#define P0 "%32"
#define P1 "%33"
#define P2 "%34"
#define P3 "%35"
#define P4 "%36"
#define P5 "%37"
#elif TILE_N == 96
#define SHAPE "m64n96"
#define NAMES NAMES_48
#define BINDINGS(d) BIND_48(d)
#define P0 "%48"
#define P1 "%49"
#define P2 "%50"
#define P3 "%51"
#define P4 "%52"
#define P5 "%53"
#elif TILE_N == 128
#define SHAPE "m64n128"
#define NAMES NAMES_64
#define BINDINGS(d) BIND_64(d)
#define P0 "%64"
#define P1 "%65"
#define P2 "%66"
#define P3 "%67"
#define P4 "%68"
#define P5 "%69"
#elif TILE_N == 192
#define SHAPE "m64n192"
#define NAMES NAMES_96
#define BINDINGS(d) BIND_96(d)
#define P0 "%96"
#define P1 "%97"
#define P2 "%98"
#define P3 "%99"
#define P4 "%100"
#define P5 "%101"
#elif TILE_N == 256
#define SHAPE "m64n256"
#define NAMES NAMES_128
#define BINDINGS(d) BIND_128(d)
#define P0 "%128"
#define P1 "%129"
#define P2 "%130"
#define P3 "%131"
#define P4 "%132"
#define P5 "%133"
#endif

#if ELEMENT == ELEMENT_INT8
#define KIND "k32.s32.s8.s8"
#define SCALES ""
#define LAYOUT_A ""
#define LAYOUT_B ""
#elif ELEMENT == ELEMENT_FLOAT16
#define KIND "k16.f32.f16.f16"
#define SCALES ",1,1"
#define LAYOUT_A ",0"
#define LAYOUT_B ",0"
#elif ELEMENT == ELEMENT_BFLOAT16
#define KIND "k16.f32.bf16.bf16"
#define SCALES ",1,1"
#define LAYOUT_A ",0"
#define LAYOUT_B ",0"
#else
#define KIND "k8.f32.tf32.tf32"
#define SCALES ",1,1"
#define LAYOUT_A ""
#define LAYOUT_B ""
#endif

__device__ __forceinline__ void multiply(Sum (&d)[REGISTERS], const u32 (&a)[4], u64 b, int keep) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5
                 ", 0;\n"
                 "wgmma.mma_async.sync.aligned." SHAPE KIND " {" NAMES "}, {" P0 "," P1 "," P2
                 "," P3 "}, " P4 ", p" SCALES LAYOUT_B ";\n}"
                 : BINDINGS(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

__device__ __forceinline__ void multiply(Sum (&d)[REGISTERS], u64 a, u64 b, int keep) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2
                 ", 0;\n"
                 "wgmma.mma_async.sync.aligned." SHAPE KIND " {" NAMES "}, " P0 ", " P1
                 ", p" SCALES LAYOUT_A LAYOUT_B ";\n}"
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

// Waits for the launch before this one, which may be started while that one ends.
__device__ __forceinline__ void follow() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
