// Two kernels around one instruction, `step(state)`: how long it takes alone, in a chain in which
// each waits for the one before, and on a chip that is full of chains.
//
// Included after `State`, which holds the operands, `start` (fills them, through a word of memory of
// each thread's own), `step` (issues one, adding into its accumulators), `begin` and `end` (around
// each GROUP of them) and `result` (a value that depends on the last).

constexpr int GROUP = 32;

// out[0], out[1]: cycles with one instruction between the clocks, and with none. The store in front
// of the second clock waits for the result, since instructions are issued in their order.
extern "C" __global__ void alone(u64 *out, u32 *sink) {
    extern __shared__ __align__(1024) u32 memory[];
    State state;
    start(state, memory, sink + threadIdx.x);
#pragma unroll 1
    for (int round = 0; round < 4; round++) {  // the last finds its code in the cache
#pragma unroll
        for (int count = 1; count >= 0; count--) {
            __syncthreads();
            u64 began = cycles_now();
            if (count) {
                begin();
                step(state, 0);
                end();
            }
            ((volatile u32 *)sink)[threadIdx.x] = result(state);
            u64 ended = cycles_now();
            if (threadIdx.x == 0) out[1 - count] = ended - began;
        }
    }
}

// out[2 · block], out[2 · block + 1]: cycles and nanoseconds of `steps` groups in each warp, or
// warpgroup, of a block.
extern "C" __global__ void __launch_bounds__(THREADS, 1) chain(u64 *out, u32 *sink, u64 steps) {
    extern __shared__ __align__(1024) u32 memory[];
    u32 *place = sink + blockIdx.x * blockDim.x + threadIdx.x;
    State state;
    start(state, memory, place);
    __syncthreads();
    u64 began = nanoseconds_now(), first = cycles_now();
#pragma unroll 1
    for (u64 i = 0; i < steps; i++) {
        begin();
#pragma unroll
        for (int j = 0; j < GROUP; j++) step(state, j);
        end();
    }
    *place = result(state);
    __syncthreads();
    u64 last = cycles_now(), ended = nanoseconds_now();
    if (threadIdx.x == 0) {
        out[2 * blockIdx.x] = last - first;
        out[2 * blockIdx.x + 1] = ended - began;
    }
}
