// A ring of STAGES buffers between one producer and the CONSUMERS warpgroups of CLUSTER blocks.

struct Ring {  // where the producer, or a consumer, stands in it
    int stage = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ int before() const { return stage ? stage - 1 : STAGES - 1; }
};

// By one thread, before all others may use the barriers.
__device__ __forceinline__ void make_ring(u32 full, u32 empty) {
    for (int s = 0; s < STAGES; s++) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s),
                     "r"(ARRIVALS * CONSUMERS * CLUSTER));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
