"""What blocks of a cluster need of the machine, and the same for the simulator.

There a cluster is one block, and all of its threads wait for what some of them are sent.
"""

# What Numba offers is made at run time, and LLVM's binding is not typed.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined, import-untyped"

from typing import Any

from numba import cuda

from mixpert_py.runtime.packing.intrinsics import SIMULATED

if SIMULATED:

    @cuda.jit(device=True)
    def meet_warp():
        """What a warp's threads have written, the others of it see from here on."""
        cuda.syncthreads()

    @cuda.jit(device=True)
    def thread_anew():
        """The thread's number, asked for again rather than kept in a register."""
        return cuda.threadIdx.x

    def expect(boxes: Any, i: int, size: int) -> None:
        """One thread, before any other does anything with boxes[i], an array in shared memory: it
        is to receive so many bytes.
        """

    def arrive() -> None:
        """A thread has come so far. All of a cluster's have to."""

    @cuda.jit(device=True)
    def wait():
        """Until all threads of the cluster have arrived, and know each other's boxes."""
        cuda.syncthreads()

    def send(x: Any, i: int, value: Any, block: int, boxes: Any, box: int) -> None:
        """Stores x[i] in the shared memory of a block of the cluster, which counts it by a box."""
        x[i] = value

    @cuda.jit(device=True)
    def receive(boxes, i):
        """Until all that was expected is there."""
        cuda.syncthreads()

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    @cuda.jit(device=True)
    def meet_warp():
        cuda.syncwarp()

    def _assembly(builder: Any, text: str, constraints: str, arguments: list[Any]) -> None:
        """Nothing that is in memory is moved past it, nor is it itself."""
        names = ",".join(part for part in (constraints, "~{memory}") if part)
        kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
        asm = ir.InlineAsm(kind, text, names, side_effect=True)
        builder.call(asm, arguments, attrs=("convergent",))

    def _place(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
        return builder.gep(context.make_array(kind)(context, builder, array).data, [index])

    def _barrier(what: str) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _assembly(builder, f"barrier.cluster.{what}.aligned;", "", [])
            return context.get_dummy_value()

        def typed(typing: Any) -> Any:
            return types.void(), generate

        return intrinsic(typed)

    arrive, wait = _barrier("arrive.relaxed"), _barrier("wait.acquire")

    @intrinsic
    def thread_anew(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(32), [])
            asm = ir.InlineAsm(kind, "mov.u32 $0, %tid.x;", "=r", side_effect=True)
            return builder.call(asm, [])

        return types.int32(), generate

    @intrinsic
    def expect(typing: Any, boxes: Any, i: Any, size: Any) -> Any:
        text = (
            "{ .reg .u64 place; .reg .u32 box; cvta.to.shared.u64 place, $0;"
            " cvt.u32.u64 box, place; mbarrier.init.shared::cta.b64 [box], 1;"
            " fence.mbarrier_init.release.cluster;"
            " mbarrier.arrive.expect_tx.shared::cta.b64 _, [box], $1; }"
        )

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = _place(context, builder, boxes, *arguments[:2])
            _assembly(builder, text, "l,r", [place, arguments[2]])
            return context.get_dummy_value()

        return types.void(boxes, i, types.int32), generate

    @intrinsic
    def send(typing: Any, x: Any, i: Any, value: Any, block: Any, boxes: Any, box: Any) -> Any:
        # The names of a register in PTX and in LLVM's constraints.
        kind, name = {
            types.int32: ("u32", "r"),
            types.uint32: ("u32", "r"),
            types.uint64: ("u64", "l"),
            types.float32: ("f32", "f"),
        }[x.dtype]
        text = (
            "{ .reg .u64 place; .reg .u32 far, box; cvta.to.shared.u64 place, $0;"
            " cvt.u32.u64 far, place; mapa.shared::cluster.u32 far, far, $2;"
            " cvta.to.shared.u64 place, $3; cvt.u32.u64 box, place;"
            " mapa.shared::cluster.u32 box, box, $2;"
            " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
            f".{kind} [far], $1, [box]; }}"
        )

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, index, word, target, theirs, which = arguments
            place = _place(context, builder, x, array, index)
            at = _place(context, builder, boxes, theirs, which)
            _assembly(builder, text, f"l,{name},r,l", [place, word, target, at])
            return context.get_dummy_value()

        return types.void(x, i, x.dtype, types.int32, boxes, box), generate

    @intrinsic
    def receive(typing: Any, boxes: Any, i: Any) -> Any:
        text = (
            "{ .reg .u64 place; .reg .u32 box; .reg .pred there; cvta.to.shared.u64 place, $0;"
            " cvt.u32.u64 box, place;"
            " again: mbarrier.try_wait.parity.shared::cta.b64 there, [box], 0;"
            " @!there bra again; }"
        )

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _assembly(builder, text, "l", [_place(context, builder, boxes, *arguments)])
            return context.get_dummy_value()

        return types.void(boxes, i), generate
