"""What of the GPU's memory is taken."""

from typing import Protocol


class Account(Protocol):
    """held: bytes that are taken; peak: the most that these have been."""

    held: int
    peak: int


class Memory:
    """An allocation, for as long as somebody has it."""

    def __init__(self, account: Account, size: int) -> None:
        self.account, self.size = account, size
        account.held += size
        account.peak = max(account.peak, account.held)

    def __del__(self) -> None:
        self.account.held -= self.size
