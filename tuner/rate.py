"""The bound on the part of inputs that are over the budget, where none of those tried was."""

CONFIDENCE = 0.95


def highest_rate(inputs: int, tightened: int = 0) -> float:
    """The largest part of inputs that may be over the budget where none of those drawn was.

    Of a plan that is over on a part p of all inputs, n inputs drawn at random show nothing with
    probability (1 − p)ⁿ: the bound is the p for which that is 5 %, the exact one of Clopper and
    Pearson (1934). tightened: how many plans before this one failed on the same inputs. They chose
    the plan, so each halves the 5 %.
    """
    doubt = (1 - CONFIDENCE) / 2**tightened
    return 1.0 - float(doubt ** (1 / inputs)) if inputs else 1.0
