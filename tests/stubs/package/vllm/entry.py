"""The console script `vllm` of the TEST DOUBLE: `vllm serve MODEL …` starts the stub engine.

Speed and faults come from the environment, so that a case sets them in `serve.env`:
STUB_START_MS, STUB_TTFT_MS, STUB_TPOT_MS (milliseconds), STUB_FAULT (faults, see the stub engine
and its wire, with spaces between) and STUB_FAULT_FILE (a file that holds more of them; no fault while there is
no such file, so that an arm can be healed without a change of its case). STUB_COMPILE_MS is what a
start takes longer when its compile cache is empty.
"""

import argparse
import json
import os
from pathlib import Path

from vllm import __version__, plugins, stub_engine, wire


def main():
    """Understand the command line of `vllm serve` as far as pinproof uses it."""
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers(required=True).add_parser("serve")
    serve.add_argument("model")
    serve.add_argument("--served-model-name", required=True)
    serve.add_argument("--host", required=True, choices=["127.0.0.1"])
    serve.add_argument("--port", required=True)
    serve.add_argument("--max-model-len", type=int)
    serve.add_argument("--speculative-config", type=json.loads)
    args, engine_args = parser.parse_known_args()
    argv = ["--port", args.port, "--model", args.served_model_name, "--version", __version__]
    for name in ("start-ms", "ttft-ms", "tpot-ms"):
        if value := os.environ.get(f"STUB_{name.upper().replace('-', '_')}"):
            argv += [f"--{name}", value]
    if args.max_model_len:
        argv += ["--max-model-len", str(args.max_model_len)]
    asked = faults()
    for fault in asked:
        argv += [] if fault in wire.FAULTS else ["--fault", fault]
    stub_engine.Handler = wire.handler(stub_engine.Handler, [fault for fault in asked if fault in wire.FAULTS])
    if args.speculative_config:
        wish = args.speculative_config
        argv += ["--speculate", f"{wish.get('method', 'stub')}:{wish['num_speculative_tokens']}"]
    plugins.load_general_plugins()
    stub_engine.WARM_UP.append(warm_up)
    stub_engine.main([*argv, "--", args.model, *engine_args])


def warm_up(asked):
    """What a start does before it serves: in a worker, whose methods a span plugin can wrap."""
    from vllm.worker import Worker

    worker = Worker(asked)
    worker.load_model()
    worker.compile_or_warm_up_model()


def faults():
    """What is asked for by the environment, and by the file that it names."""
    asked = os.environ.get("STUB_FAULT", "").split()
    file = os.environ.get("STUB_FAULT_FILE")
    return asked + (Path(file).read_text(encoding="utf-8").split() if file and Path(file).exists() else [])
