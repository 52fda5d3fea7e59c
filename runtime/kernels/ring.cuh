// A block on Hopper has one producer, which fills a ring of STAGES buffers, and CONSUMERS warpgroups.

// The ring, of STAGE bytes each, and where the producer, or a consumer, stands in it.
struct Ring {
    u32 buffers, full, empty;  // in shared memory: the first one, and two barriers for each
    int stage = 0, parity = 0;

    // Waits for the launch before this one, too, which may be started while that one ends.
    __device__ __forceinline__ Ring(const unsigned char *memory, const u64 *barriers)
        : buffers((u32)__cvta_generic_to_shared(memory)),
          full((u32)__cvta_generic_to_shared(barriers)), empty(full + 8 * STAGES) {
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; s++) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s));
                asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s),
                             "r"(ARRIVALS * CONSUMERS));
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        wait_for_launch();
    }
    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    __device__ __forceinline__ u32 buffer() const { return buffers + stage * STAGE; }
    __device__ __forceinline__ u32 barrier() const { return full + 8 * stage; }
    // The producer waits for room before it fills a stage, a consumer for data before it reads it.
    __device__ __forceinline__ void wait_for_room() const {
        wait(empty + 8 * stage, parity ^ 1);
        expect(barrier(), STAGE);
    }
    __device__ __forceinline__ void wait_for_data() const { wait(barrier(), parity); }
    __device__ __forceinline__ void release_this() const { release(empty + 8 * stage); }
    __device__ __forceinline__ void release_last() const {
        release(empty + 8 * (stage ? stage - 1 : STAGES - 1));
    }
};

// One thread calls `produce`; the other warpgroups call `consume` with their number.
template <typename Produce, typename Consume>
__device__ __forceinline__ void divide(Produce produce, Consume consume) {
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be uniform
    // The block's registers, 168 a thread at launch, are dealt anew: 24 and 240 a thread.
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) produce();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        consume(group - 1);
    }
}
