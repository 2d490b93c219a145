"""A TEST DOUBLE of vllm.plugins: general plugins are loaded by their entry points, once a process."""

from importlib.metadata import entry_points

from vllm.stub_engine import CLOCK


def load_general_plugins():
    """Call every plugin of the group that vLLM has for them."""
    CLOCK.run()  # what a plugin writes is on the schedule of a start that states one
    for entry in entry_points(group="vllm.general_plugins"):
        entry.load()()
