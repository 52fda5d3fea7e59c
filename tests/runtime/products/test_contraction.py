"""What subscripts mean, as NumPy reads them."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.products.contraction import Step, Sum, contraction, expand, path, read


@pytest.mark.parametrize(
    ("operands", "subscripts", "arrays"),
    [
        (("ij,jk", 1, 2), "ij,jk", (1, 2)),
        (("ij",), "ij", ()),
        ((1, [0, 1], 2, [1, 2]), "AB,BC", (1, 2)),
        ((1, [0, 25], 2, (25, ...), [..., 0]), "AZ,Z...->...A", (1, 2)),
        ((1, [0, 26]), None, (1,)),
        ((1, [0.0]), None, (1,)),
        ((1, "i"), None, (1,)),
        ((1, [0], 2), None, (1,)),
        ((), "", ()),
    ],
)
def test_either_form_is_read(operands: Any, subscripts: str | None, arrays: Any) -> None:
    assert read(operands) == (subscripts, arrays)


@pytest.mark.parametrize(
    ("subscripts", "ndims", "terms"),
    [
        ("ij,jk", (2, 2), Sum(("ij", "jk"), "ik")),
        (" b i , i A ", (2, 2), Sum(("bi", "iA"), "Ab")),
        ("ij,jk->k", (2, 2), Sum(("ij", "jk"), "k")),
        ("...i,ij", (3, 2), Sum(("abi", "ij"), "abj")),
        ("...i,...ij->...j", (2, 4), Sum(("bi", "abij"), "abj")),
        ("i...,i->...", (1, 1), Sum(("i", "i"), "")),
        ("ii", (2,), Sum(("ii",), "")),
        ("...i->i", (2,), None),
        ("...i->i", (1,), Sum(("i",), "i")),
        ("ij", (3,), None),
        ("ij...", (1,), None),
        ("i,j", (1,), None),
        ("ij->ii", (2,), None),
        ("i->j", (1,), None),
        ("i.j", (2,), None),
        ("i->...->i", (1,), None),
        ("é", (1,), None),
    ],
)
def test_subscripts_are_completed(subscripts: str, ndims: Any, terms: Sum | None) -> None:
    assert expand(subscripts, ndims) == terms


def test_no_letter_is_left_for_an_ellipsis() -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY"
    assert expand(f"...{letters}", (52,)) == Sum((f"Z{letters}",), "Z" + "".join(sorted(letters)))
    assert expand(f"...{letters}", (53,)) is None


def test_a_product_of_matrices_says_which_indices_are_what() -> None:
    found = contraction(Sum(("zij", "jkz"), "kzi"))
    assert found is not None
    assert (found.stack, found.rows, found.sum, found.columns) == ("z", "i", "j", "k")
    assert contraction(Sum(("ij", "jk", "kl"), "il")) is None


def test_a_path_leaves_what_is_needed_later() -> None:
    terms, shapes = Sum(("ij", "jk", "kl"), "li"), ((2, 9), (9, 9), (9, 3))
    assert path(terms, shapes, False) == (
        Step((0, 1), Sum(("ij", "jk"), "ik")),
        Step((0, 1), Sum(("kl", "ik"), "li")),
    )
    given = ["einsum_path", (1, 2), (0, 1)]
    steps = path(terms, shapes, given)
    assert steps is not None
    assert steps[0] == Step((1, 2), Sum(("jk", "kl"), "jl"))
    assert steps == path(terms, shapes, tuple(given))
    for wrong in ("no such", {}, ["einsum_path"], ["einsum_path", (0, 7)], np.zeros(3)):
        assert path(terms, shapes, wrong) is None
