"""`mixpert tiles`: the tiles that a product could take, and the one it takes."""

import json

import pytest

from tests.mixpert_py.command import Mixpert


def test_the_table(mixpert: Mixpert) -> None:
    done = mixpert("tiles", "4096", "4096", "4096", "--device", "h200")
    assert done.code == 0, done.err
    assert "int8x6, NVIDIA H200" in done.out
    taken = [line for line in done.out.splitlines() if "taken" in line]
    assert len(taken) == 1
    assert taken[0].startswith("128 × 128")
    assert "timed on one" in done.out


def test_json(mixpert: Mixpert) -> None:
    arguments = ("--device", "a100", "--scheme", "tf32x3", "--batch", "3", "--json")
    done = mixpert("tiles", "512", "1024", "768", *arguments)
    found = json.loads(done.out)
    assert found["device"] == "NVIDIA A100-SXM4-80GB"
    assert found["seconds"] == pytest.approx(found["packing"] + found["kernel"])
    chosen = [row for row in found["tiles"] if row["chosen"]]
    assert len(chosen) == 1
    assert chosen[0]["seconds"] == min(row["seconds"] for row in found["tiles"]) == found["kernel"]
    assert {row["tiles"] for row in found["tiles"] if (row["m"], row["n"]) == (128, 128)} == {72}
    assert not any(row["measured"] for row in found["tiles"])


@pytest.mark.parametrize(
    ("model", "taken", "headings"),
    [
        ("ours", "128 × 128", ()),
        ("egemm", "128 × 192", ("op/byte", "/ compute")),
        ("legemm", "128 × 192", ("a thread", "/ needed")),
    ],
)
def test_a_papers_model(
    mixpert: Mixpert, model: str, taken: str, headings: tuple[str, ...]
) -> None:
    arguments = ("2048", "2048", "2048", "--scheme", "int8x3", "--device", "h200")
    done = mixpert("tiles", *arguments, "--model", model)
    assert [line[:9] for line in done.out.splitlines() if "taken" in line] == [taken]
    assert all(heading in done.out for heading in headings)
    others = {"op/byte", "/ needed"} - set(headings)
    assert not any(heading in done.out for heading in others)


def test_a_papers_model_as_json(mixpert: Mixpert) -> None:
    arguments = ("2048", "2048", "2048", "--scheme", "int8x3", "--device", "h200", "--json")
    found = json.loads(mixpert("tiles", *arguments, "--model", "legemm").out)
    assert found["model"] == "legemm"
    chosen = next(row for row in found["tiles"] if row["chosen"])
    assert found["kernel"] == chosen["seconds"] > min(row["seconds"] for row in found["tiles"])
    assert found["seconds"] == pytest.approx(found["packing"] + found["kernel"])
    # 176 tiles of 128 × 192, by blocks of 384 threads, on 132 multiprocessors.
    assert chosen["goes by"] == {
        "elements a thread": 128 * 192 / 384,
        "threads / needed": pytest.approx(176 / 132),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("8", "8", "8", "--scheme", "int9"), "unknown scheme 'int9'"),
        (("8", "8", "8", "--scheme", "native"), "no emulation"),
        (("8", "8", "8", "--device", "t4"), "compute capability 7.5"),
        (("8", "8", "8", "--device", "abacus"), "no device model is known for 'abacus'"),
        (("0", "8", "8"), "0 is not in the range"),
        (("8", "8", "8", "--model", "best"), "'best' is not one of 'ours', 'egemm', 'legemm'"),
    ],
)
def test_what_cannot_be_explained(mixpert: Mixpert, arguments: tuple[str, ...], said: str) -> None:
    done = mixpert("tiles", *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
