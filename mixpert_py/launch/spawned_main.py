"""The main module of a child started by `spawn`: runs the user's script, rewritten.

`multiprocessing` runs this file's namespace as `__mp_main__`, so the script runs in it directly.
"""

import os

from mixpert_py.launch.running import SpawnedJob, spawned

if __name__ == "__mp_main__":
    _job = SpawnedJob.from_parent()
    __file__ = os.fsdecode(_job.script)
    exec(spawned(_job), globals())
