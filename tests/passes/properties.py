"""What holds of every file, whatever is in it."""

import ast
import warnings

from mixpert_py.errors import SourceError
from mixpert_py.passes.pipeline import analyze, rewrite, rewrite_tree, same


def require_safe(source: bytes) -> int:
    """Rewrite a program that Python accepts, as text and as a tree; returns how many products.

    A program that is nested too deeply is refused, and 0 returned.
    """
    try:
        products = [site for site in analyze(source, "m") if site.reason is None]
        result = rewrite(source, "m")
    except SourceError as error:
        if "nested" not in str(error):
            raise
        return 0
    assert (result == source) is (not products)
    assert rewrite(result, "m") == result
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert same(ast.parse(result), rewrite_tree(source, "m", "m.py"))
    return len(products)
