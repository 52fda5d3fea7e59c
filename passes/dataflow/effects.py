"""Effects of calls by their names: facts about NumPy, CuPy and the builtins."""

# The result depends on the size or the type of an array, not on its elements.
SHAPE_ATTRIBUTES = frozenset(
    {"shape", "ndim", "size", "dtype", "nbytes", "itemsize", "strides", "flags"}
)
SHAPE_FUNCTIONS = frozenset(
    {"zeros_like", "ones_like", "empty_like", "shape", "size", "ndim", "result_type"}
    | {"iscomplexobj"}
)
BUILTINS_WITHOUT_ARRAYS = frozenset(
    {"len", "range", "isinstance", "issubclass", "type", "id", "print", "hasattr", "callable"}
    | {"dir", "open", "input"}
)

# The result may be the argument, or a view of it.
VIEW_FUNCTIONS = frozenset(
    {"asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "atleast_1d", "atleast_2d"}
    | {"atleast_3d", "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze"}
    | {"expand_dims", "broadcast_to", "broadcast_arrays", "diagonal", "split", "array_split"}
    | {"hsplit", "vsplit", "dsplit", "flip", "fliplr", "flipud", "rot90", "real", "imag", "require"}
    | {"matrix_transpose", "as_strided", "sliding_window_view", "nditer"}
)

# The result of such a method is a new object.
FRESH_METHODS = frozenset(
    {"copy", "sum", "mean", "max", "min", "std", "var", "prod", "argmax", "argmin", "argsort"}
    | {"dot", "tolist", "item", "flatten", "cumsum", "cumprod", "round", "clip", "conj", "repeat"}
    | {"take", "any", "all", "trace", "ptp", "nonzero", "searchsorted", "choose", "compress"}
    # of random generators: what is drawn has nothing in common with what was drawn before
    | {"random", "rand", "randn", "randint", "integers", "uniform", "normal", "standard_normal"}
    | {"permutation", "permuted", "choice", "exponential", "poisson", "binomial", "gamma", "beta"}
)

# Functions that call another with what it has returned before.
FEEDING_BACK = frozenset({"reduce", "accumulate"})
# Array functions that change their first argument only. Of others whose result is thrown away the
# last one may be the output as well: np.add(a, b, c).
CHANGING_THE_FIRST = frozenset(
    {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal", "at", "shuffle"}
)
# Methods that put their arguments into a container.
APPENDING = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "setdefault"})
# Methods that give the elements of a list other places.
MOVING = frozenset(
    {"insert", "pop", "popleft", "appendleft", "remove", "reverse", "rotate", "sort"}
)

# The result is a container of the elements of the arguments; that of a `dict` has keys as well.
CONTAINER_BUILTINS = frozenset(
    {"list", "tuple", "set", "frozenset", "sorted", "reversed", "map", "filter"}
)
# The result is an argument or one of its elements.
ELEMENT_BUILTINS = frozenset({"iter", "next", "max", "min"})

# Calls into these show or store values; nothing comes back into the program.
OUTPUT_MODULES = frozenset(
    {"matplotlib", "seaborn", "logging", "warnings", "pickle", "json", "sys", "os", "time"}
    | {"pprint"}
)
