"""The elements of the papers' page: text cannot break out of them."""

import pytest

from samples.papers.html import Html, el, join


def test_children_and_attributes() -> None:
    assert el("a", "x", el("b", "y"), class_="c", data_op=3, hidden=True, id=None) == (
        '<a class="c" data-op="3" hidden>x<b>y</b></a>'
    )
    assert el("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert el("line", x1=1.0 / 3) == '<line x1="0.333333"></line>'


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", "\"'><img src=x>", "&lt;"]
)
def test_what_is_no_html_is_escaped(hostile: str) -> None:
    text = el("p", hostile, title=hostile)
    assert hostile not in text
    assert text.count("<") == 2
    assert join(Html("<b>"), "<b>") == "<b>&lt;b&gt;"
