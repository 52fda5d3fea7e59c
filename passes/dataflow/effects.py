"""Effects of calls by their names: facts about NumPy, CuPy and the builtins."""

# The result depends on the size or the type of an array, not on its elements.
SHAPE_ATTRIBUTES = frozenset(
    {"shape", "ndim", "size", "dtype", "nbytes", "itemsize", "strides", "flags"}
)
SHAPE_FUNCTIONS = frozenset(
    {"zeros_like", "ones_like", "empty_like", "shape", "size", "ndim", "result_type"}
    | {"iscomplexobj"}
)
# The result is a module.
MODULES = frozenset({"import_module", "get_array_module", "array_namespace"})
BUILTINS_WITHOUT_ARRAYS = frozenset(
    {"len", "range", "isinstance", "issubclass", "type", "id", "print", "hasattr", "callable"}
    | {"dir", "open", "input"}
)

# The result may be the argument, or a view of it.
VIEWS = frozenset(
    {"asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "atleast_1d", "atleast_2d"}
    | {"atleast_3d", "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze"}
    | {"expand_dims", "broadcast_to", "broadcast_arrays", "diagonal", "split", "array_split"}
    | {"hsplit", "vsplit", "dsplit", "flip", "fliplr", "flipud", "rot90", "real", "imag", "require"}
    | {"matrix_transpose", "as_strided", "sliding_window_view", "nditer"}
)

# The result is a new object.
FRESH = frozenset(
    {"copy", "sum", "mean", "max", "min", "std", "var", "prod", "argmax", "argmin", "argsort"}
    | {"dot", "tolist", "item", "flatten", "cumsum", "cumprod", "round", "clip", "conj", "repeat"}
    | {"take", "any", "all", "trace", "ptp", "nonzero", "searchsorted", "choose", "compress"}
    # of random generators: what is drawn has nothing in common with what was drawn before
    | {"random", "rand", "randn", "randint", "integers", "uniform", "normal", "standard_normal"}
    | {"permutation", "permuted", "choice", "exponential", "poisson", "binomial", "gamma", "beta"}
)

# Methods that put their arguments into a container.
APPENDING = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "setdefault"})
# Calls into these show or store values; nothing comes back into the program.
OUTPUT_MODULES = (
    *("matplotlib.", "seaborn.", "logging.", "warnings.", "pickle.", "json.", "sys.", "os."),
    *("time.", "pprint.", "numpy.testing.", "numpy.save"),
)
