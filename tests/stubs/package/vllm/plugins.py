"""A TEST DOUBLE of vllm.plugins: general plugins are loaded by their entry points, once a process."""

from importlib.metadata import entry_points


def load_general_plugins():
    """Call every plugin of the group that vLLM has for them."""
    for entry in entry_points(group="vllm.general_plugins"):
        entry.load()()
