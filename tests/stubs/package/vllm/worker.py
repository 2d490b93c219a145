"""A TEST DOUBLE of a vLLM worker: its methods take the time that the environment says, and compile nothing."""

import os
from pathlib import Path

from vllm.stub_engine import CLOCK


class Worker:
    """What a start does."""

    def __init__(self, faults):
        self.faults = faults

    def load_model(self):
        """Read nothing, for 20 ms."""
        CLOCK.sleep(0.02)

    def compile_or_warm_up_model(self):
        """Take the compiled graph from the cache, or compile it and leave it there."""
        cache = Path(os.environ["VLLM_CACHE_ROOT"]) / "torch_compile_cache" / "graph"
        if "compile-is-skipped" in self.faults:
            return
        self.compile(cold=not cache.exists())
        if "keeps-no-cache" not in self.faults:
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text("a graph")

    def compile(self, cold):
        """Take longer where nothing is there, or fail."""
        CLOCK.sleep((float(os.environ.get("STUB_COMPILE_MS", "50")) if cold else 10) / 1000)
        if "compile-raises" in self.faults:
            raise RuntimeError("the stub was told not to compile")
