"""What CUDA and CuPy raise."""


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory's, which cannot be made without sizes."""

    def __init__(self, size: int, total: int) -> None:
        super().__init__(
            f"Out of memory allocating {size} bytes (allocated so far: {total} bytes)."
        )


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime's."""

    def __init__(self, status: int, message: str = "CUDA said no") -> None:
        super().__init__(message)
        self.status = status


class CUDADriverError(RuntimeError):
    """As cupy.cuda.driver's."""

    def __init__(self, status: int, message: str = "CUDA said no") -> None:
        super().__init__(message)
        self.status = status
