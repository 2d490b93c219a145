"""A TEST DOUBLE of vllm.benchmarks."""
