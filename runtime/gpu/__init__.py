"""Products on NVIDIA GPUs: devices, arrays that are borrowed or moved, and launches."""
