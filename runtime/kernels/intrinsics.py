"""Machine instructions that kernels call beyond plain Python, and the same for the simulator.

Where compiled, these are LLVM instructions, libdevice calls and inline PTX; in the simulator they
are operations on NumPy scalars. There a cluster is one block, and a warp waits as a block does.
"""

# What Numba offers is made at run time, and LLVM's binding is not typed.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined, import-untyped"

import numpy as np
from numba import config, cuda
from numba.cuda import types

SIMULATED: bool = bool(config.ENABLE_CUDASIM)

if SIMULATED:

    def device(function):
        """A function called by kernels."""
        return function

    def load_four(x, i):
        """x[i : i + 4] as a tuple; the address is a multiple of 16 bytes."""
        return x[i], x[i + 1], x[i + 2], x[i + 3]

    def store_two(x, i, first, second):
        """Stores two 32-bit words; the address is a multiple of 8 bytes."""
        x[i], x[i + 1] = first, second

    def store_four(x, i, first, second, third, fourth):
        """Stores four elements of 32 bits; the address is a multiple of 16 bytes."""
        x[i], x[i + 1], x[i + 2], x[i + 3] = first, second, third, fourth

    def bits32(x):
        """The bits of a float32 as uint32."""
        return x.view(np.uint32)

    def bits64(x):
        """The bits of a float64 as uint64."""
        return x.view(np.uint64)

    def float32_of(bits):
        return np.uint32(bits).view(np.float32)

    def float64_of(bits):
        return np.uint64(bits).view(np.float64)

    def nearest(x):
        """x rounded to an integer, ties to even, in its own type."""
        return np.rint(x)

    nearest32 = nearest64 = nearest

    def fused(x, y, z):
        """x · y + z. Here rounded twice in float64: enough for what the kernels measure."""
        return type(z)(float(x) * float(y) + float(z))

    def trailing_zeros(bits):
        """Zero bits below the lowest that is set, of an unsigned integer that is not 0."""
        size = int(bits)
        return (size & -size).bit_length() - 1

    def bytes_of(low, high, selector):
        """Four bytes picked from the eight of (high, low): nibble i of `selector` names byte i."""
        both = int(high) << 32 | int(low)
        picked = [both >> 8 * (selector >> 4 * i & 7) & 255 for i in range(4)]
        return np.uint32(int.from_bytes(bytes(picked), "little"))

    def product(x, y):
        """x · y, rounded before anything is added to it."""
        return x * y

    product32 = product64 = product

    def count(x, i, more):
        """x[i] before `more` is added to it, atomically."""
        before = x[i]
        x[i] += more
        return before

    def quotient(x, y):
        """x // y of int32 that are not negative."""
        return np.int32(x // y)

    def nearest_integer(x):
        """x, below 2^31, to the nearest int32, ties to even."""
        return np.int32(np.rint(x))

    nearest_integer32 = nearest_integer64 = nearest_integer

    def nearest_halves(first, second):
        """Two float32 to nearest float16, in the lower and the upper half of a word; no −0."""
        return _word(np.float16(first), np.float16(second))

    def cut_halves(first, second):
        """The same, rounded towards zero."""
        return _word(_cut(first), _cut(second))

    def first_half(word):
        """The float16 in the lower half of a word, as float32."""
        return np.float32(np.uint16(word & 0xFFFF).view(np.float16))

    def second_half(word):
        return first_half(word >> np.uint32(16))

    def _cut(x):
        near = np.float16(x)
        return np.nextafter(near, np.float16(0)) if abs(np.float32(near)) > abs(x) else near

    def _word(first, second):
        low, high = ((half + np.float16(0)).view(np.uint16) for half in (first, second))
        return np.uint32(low | np.uint32(high) << np.uint32(16))

    def wait_for_launch():
        """The launch before this one is done, if the device starts launches early."""

    def let_next_begin():
        """The next launch may begin as soon as all blocks of this one have come so far."""

    def word_at(address):
        """The int32 at an address, which the simulator never passes."""
        return np.int32(address)

    def chosen(condition, one, other):
        """One of two tuples, part by part: of a choice between tuples the compiler forgets that
        their pointers are to global memory.
        """
        return one if condition else other

    @cuda.jit(device=True)
    def meet_warp():
        """What a warp's threads have written, the others of it see from here on."""
        cuda.syncthreads()

    @cuda.jit(device=True)
    def thread_anew():
        """The thread's number, asked for again rather than kept in a register."""
        return cuda.threadIdx.x

    def expect(boxes, i, size):
        """One thread, before any other does anything with boxes[i], an array in shared memory: it
        is to receive so many bytes.
        """

    def arrive():
        """A thread has come so far. All of a cluster's have to."""

    @cuda.jit(device=True)
    def wait():
        """Until all threads of the cluster have arrived, and know each other's boxes."""
        cuda.syncthreads()

    def send(x, i, value, block, boxes, box):
        """Stores x[i] in the shared memory of a block of the cluster, which counts it by a box."""
        x[i] = value

    @cuda.jit(device=True)
    def receive(boxes, i):
        """Until all that was expected is there."""
        cuda.syncthreads()

else:
    from llvmlite import ir
    from numba.cuda import cgutils, libdevice
    from numba.cuda.extending import intrinsic

    device = cuda.jit(device=True)

    WORD, SINGLE = ir.IntType(32), ir.FloatType()
    # The names of a register of each type in PTX, and in LLVM's constraints.
    REGISTERS = {
        types.int32: ("u32", "r"),
        types.uint32: ("u32", "r"),
        types.uint64: ("u64", "l"),
        types.float32: ("f32", "f"),
    }

    def _fixed(emit, result, *takes):
        """The intrinsic of these types, at most two, whose code `emit` builds of its arguments."""

        def generate(context, builder, signature, arguments):
            value = emit(builder, *arguments)
            return context.get_dummy_value() if value is None else value

        typed = result(*takes), generate
        if not takes:
            return intrinsic(lambda typing: typed)
        if len(takes) == 1:
            return intrinsic(lambda typing, x: typed)
        return intrinsic(lambda typing, x, y: typed)

    def _assembly(builder, text, result, names, arguments, side_effect=False):
        """The value of inline PTX, without effects that the compiler does not see."""
        kind = ir.FunctionType(result, [one.type for one in arguments])
        asm = ir.InlineAsm(kind, text, names, side_effect=side_effect)
        return builder.call(asm, arguments)

    def _memory_assembly(builder, text, names, arguments):
        """Inline PTX that no access of memory is moved past, and that is not moved itself."""
        names = ",".join(part for part in (names, "~{memory}") if part)
        kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
        asm = ir.InlineAsm(kind, text, names, side_effect=True)
        builder.call(asm, arguments, attrs=("convergent",))

    def _wide(builder, pointer, index, element, count):
        place = builder.gep(pointer, [index])
        return builder.bitcast(place, ir.PointerType(ir.VectorType(element, count)))

    def _pointer(context, builder, x, value):
        """The pointer to an argument of a kernel, or to an array of its own."""
        if isinstance(x, types.Array):
            return context.make_array(x)(context, builder, value).data
        return value

    @intrinsic
    def load_four(typing, x, i):
        def generate(context, builder, signature, arguments):
            element = context.get_data_type(x.dtype)
            pointer = _pointer(context, builder, x, arguments[0])
            # Four float64 are two loads of 16 bytes: that is as wide as one can be.
            count = 16 * 8 // x.dtype.bitwidth
            values = []
            for start in range(0, 4, count):
                index = builder.add(arguments[1], ir.Constant(arguments[1].type, start))
                loaded = builder.load(_wide(builder, pointer, index, element, count))
                loaded.align = 16
                for place in range(count):
                    values.append(builder.extract_element(loaded, ir.Constant(WORD, place)))
            return context.make_tuple(builder, signature.return_type, values)

        return types.UniTuple(x.dtype, 4)(x, i), generate

    def _store(x, count):
        def generate(context, builder, signature, arguments):
            value, index, *words = arguments
            pointer = _pointer(context, builder, x, value)
            element = context.get_data_type(x.dtype)
            vector = ir.Constant(ir.VectorType(element, count), ir.Undefined)
            for place, word in enumerate(words):
                vector = builder.insert_element(vector, word, ir.Constant(WORD, place))
            stored = builder.store(vector, _wide(builder, pointer, index, element, count))
            stored.align = 4 * count
            return context.get_dummy_value()

        return generate

    @intrinsic
    def store_two(typing, x, i, first, second):
        word = x.dtype
        return types.void(x, i, word, word), _store(x, 2)

    @intrinsic
    def store_four(typing, x, i, first, second, third, fourth):
        word = x.dtype
        return types.void(x, i, word, word, word, word), _store(x, 4)

    bits32 = _fixed(lambda builder, x: builder.bitcast(x, WORD), types.uint32, types.float32)
    bits64 = _fixed(
        lambda builder, x: builder.bitcast(x, ir.IntType(64)), types.uint64, types.float64
    )
    float32_of = _fixed(lambda builder, x: builder.bitcast(x, SINGLE), types.float32, types.uint32)
    float64_of = _fixed(
        lambda builder, x: builder.bitcast(x, ir.DoubleType()), types.float64, types.uint64
    )

    nearest32, nearest64 = libdevice.rintf, libdevice.rint

    @intrinsic
    def fused(typing, x, y, z):
        def generate(context, builder, signature, arguments):
            return builder.fma(*arguments)

        return z(z, z, z), generate

    @intrinsic
    def trailing_zeros(typing, bits):
        def generate(context, builder, signature, arguments):
            count = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))
            return count if bits.bitwidth == 32 else builder.trunc(count, WORD)

        return types.int32(bits), generate

    bytes_of = libdevice.byte_perm

    product32, product64 = libdevice.fmul_rn, libdevice.dmul_rn

    @intrinsic
    def count(typing, x, i, more):
        def generate(context, builder, signature, arguments):
            place = builder.gep(arguments[0], [arguments[1]])
            return builder.atomic_rmw("add", place, arguments[2], "monotonic")

        return types.int32(x, i, types.int32), generate

    quotient = _fixed(
        lambda builder, x, y: builder.udiv(x, y), types.int32, types.int32, types.int32
    )

    nearest_integer32, nearest_integer64 = libdevice.float2int_rn, libdevice.double2int_rn

    def _halves(rounding):
        def emit(builder, first, second):
            text = f"cvt.{rounding}.f16x2.f32 $0, $1, $2;"
            both = _assembly(builder, text, WORD, "=r,f,f", [second, first])
            # −0 + 0 is 0.
            zero = ir.Constant(WORD, 0)
            return _assembly(builder, "add.rn.f16x2 $0, $1, $2;", WORD, "=r,r,r", [both, zero])

        return _fixed(emit, types.uint32, types.float32, types.float32)

    nearest_halves, cut_halves = _halves("rn"), _halves("rz")

    def _half(shift):
        def emit(builder, word):
            bits = builder.trunc(builder.lshr(word, ir.Constant(WORD, shift)), ir.IntType(16))
            return builder.fpext(builder.bitcast(bits, ir.HalfType()), SINGLE)

        return _fixed(emit, types.float32, types.uint32)

    first_half, second_half = _half(0), _half(16)

    def _of_hopper(text):
        """Inline PTX for compute capability 9.0 or later, where launches may begin early; elsewhere
        nothing.
        """

        @intrinsic
        def instruction(typing):
            def generate(context, builder, signature, arguments):
                name = context.insert_string_const_addrspace(builder, "__CUDA_ARCH")
                kind = ir.FunctionType(WORD, [name.type])
                reflect = cgutils.get_or_insert_function(builder.module, kind, "__nvvm_reflect")
                arch = builder.call(reflect, [name])
                with builder.if_then(builder.icmp_signed(">=", arch, ir.Constant(WORD, 900))):
                    _memory_assembly(builder, text, "", [])
                return context.get_dummy_value()

            return types.void(), generate

        return instruction

    wait_for_launch = _of_hopper("griddepcontrol.wait;")
    let_next_begin = _of_hopper("griddepcontrol.launch_dependents;")

    word_at = _fixed(
        lambda builder, address: _assembly(
            builder, "ld.volatile.global.u32 $0, [$1];", WORD, "=r,l", [address], side_effect=True
        ),
        types.int32,
        types.int64,
    )

    @intrinsic
    def chosen(typing, condition, one, other):
        def generate(context, builder, signature, arguments):
            found = []
            for i in range(len(one)):
                parts = (builder.extract_value(x, i) for x in arguments[1:])
                found.append(builder.select(arguments[0], *parts))
            return context.make_tuple(builder, signature.return_type, found)

        return one(condition, one, other), generate

    @cuda.jit(device=True)
    def meet_warp():
        cuda.syncwarp()

    def _place(context, builder, kind, array, index):
        return builder.gep(context.make_array(kind)(context, builder, array).data, [index])

    def _barrier(what):
        text = f"barrier.cluster.{what}.aligned;"
        return _fixed(lambda builder: _memory_assembly(builder, text, "", []), types.void)

    arrive, wait = _barrier("arrive.relaxed"), _barrier("wait.acquire")

    thread_anew = _fixed(
        lambda builder: _assembly(builder, "mov.u32 $0, %tid.x;", WORD, "=r", [], side_effect=True),
        types.int32,
    )

    @intrinsic
    def expect(typing, boxes, i, size):
        text = (
            "{ .reg .u64 place; .reg .u32 box; cvta.to.shared.u64 place, $0;"
            " cvt.u32.u64 box, place; mbarrier.init.shared::cta.b64 [box], 1;"
            " fence.mbarrier_init.release.cluster;"
            " mbarrier.arrive.expect_tx.shared::cta.b64 _, [box], $1; }"
        )

        def generate(context, builder, signature, arguments):
            place = _place(context, builder, boxes, *arguments[:2])
            _memory_assembly(builder, text, "l,r", [place, arguments[2]])
            return context.get_dummy_value()

        return types.void(boxes, i, types.int32), generate

    @intrinsic
    def send(typing, x, i, value, block, boxes, box):
        kind, name = REGISTERS[x.dtype]
        text = (
            "{ .reg .u64 place; .reg .u32 far, box; cvta.to.shared.u64 place, $0;"
            " cvt.u32.u64 far, place; mapa.shared::cluster.u32 far, far, $2;"
            " cvta.to.shared.u64 place, $3; cvt.u32.u64 box, place;"
            " mapa.shared::cluster.u32 box, box, $2;"
            " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
            f".{kind} [far], $1, [box]; }}"
        )

        def generate(context, builder, signature, arguments):
            array, index, word, target, theirs, which = arguments
            place = _place(context, builder, x, array, index)
            at = _place(context, builder, boxes, theirs, which)
            _memory_assembly(builder, text, f"l,{name},r,l", [place, word, target, at])
            return context.get_dummy_value()

        return types.void(x, i, x.dtype, types.int32, boxes, box), generate

    @intrinsic
    def receive(typing, boxes, i):
        text = (
            "{ .reg .u64 place; .reg .u32 box; .reg .pred there; cvta.to.shared.u64 place, $0;"
            " cvt.u32.u64 box, place;"
            " again: mbarrier.try_wait.parity.shared::cta.b64 there, [box], 0;"
            " @!there bra again; }"
        )

        def generate(context, builder, signature, arguments):
            place = _place(context, builder, boxes, *arguments)
            _memory_assembly(builder, text, "l", [place])
            return context.get_dummy_value()

        return types.void(boxes, i), generate


@device
def read_four(values, to, x, at):
    """Loads four elements of x from `at` on, which is aligned, into values from `to` on."""
    a, b, c, d = load_four(x, at)
    values[to] = a
    values[to + 1] = b
    values[to + 2] = c
    values[to + 3] = d


@device
def power_of_two(exponent):
    """2^exponent as float64, exponent ≤ 1023; 0 where that is subnormal."""
    return float64_of(np.uint64((exponent + 1023) << 52)) if exponent > -1023 else 0.0


def launched(body, *argument_types):
    """The kernel that calls `body`, and the Numba types of its arguments: two, and those of `body`.

    gate: the address of an int32 that the launch before may write; where that is 0 the kernel does
    nothing. 0 for none. beside: whether the kernel runs beside the launch before it, since it needs
    nothing of that: it waits for it in the end. What was enqueued before that one has been done if
    that one is not itself beside another.
    """
    body = cuda.jit(device=True)(body)  # it uses `cuda`: the simulator is to know

    def kernel(gate, beside, *arguments):
        if beside == 0:
            wait_for_launch()
        let_next_begin()
        if gate == 0 or word_at(gate) != 0:
            body(*arguments)
        if beside != 0:
            wait_for_launch()

    words = types.int64, types.int64
    return kernel, (*words, types.StarArgTuple.from_types(argument_types))
