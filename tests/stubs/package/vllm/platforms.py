"""A TEST DOUBLE of vllm.platforms: the platform is a CPU."""

from types import SimpleNamespace

current_platform = SimpleNamespace(device_type="cpu")
