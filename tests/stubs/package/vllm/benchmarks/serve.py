"""A TEST DOUBLE of `vllm bench serve`: a closed loop of streamed completions over a custom data set.

It takes exactly the arguments that pinproof gives, and refuses all others, and it writes the keys
of the real client's result that pinproof reads. A token is a character.

Requests are really made, counted and streamed, but the times that are reported are those of the stub
engine's schedule, give or take half a per cent by the prompt: a test must not depend on how busy its
machine is.
"""

import asyncio
import http.client
import json
import os
import statistics
import time
import urllib.parse
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path


def add_cli_args(parser):
    """The arguments of the real client that pinproof uses."""
    for name in ("backend", "endpoint", "base-url", "model", "served-model-name", "tokenizer", "dataset-name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("dataset-path", "result-dir", "result-filename", "request-rate", "percentile-metrics"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("custom-output-len", "num-prompts", "max-concurrency", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--metric-percentiles", required=True)
    for name in ("disable-shuffle", "skip-chat-template", "ignore-eos", "save-result", "save-detailed", "disable-tqdm"):
        parser.add_argument(f"--{name}", action="store_true", required=True)


async def main_async(args):
    """Run one benchmark and write its result."""
    return await asyncio.to_thread(benchmark, args)


@dataclass
class Output:
    """What became of one request; times in seconds."""

    prompt_len: int
    output_len: int = 0
    ttft: float = 0.0
    latency: float = 0.0
    itl: list = field(default_factory=list)
    error: str = ""


def benchmark(args):
    """Send every prompt, `max_concurrency` at a time."""
    lines = Path(args.dataset_path).read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines][: args.num_prompts]
    with ThreadPoolExecutor(args.max_concurrency) as pool:
        outputs = list(pool.map(lambda prompt: request(args, prompt), prompts))
    duration = sum(output.latency for output in outputs) / args.max_concurrency
    result = summary(outputs, duration or 1.0, args.metric_percentiles.split(","))
    Path(args.result_dir, args.result_filename).write_text(json.dumps(result), encoding="utf-8")
    return result


def request(args, prompt):
    """One streamed completion; a failure is a text, not an exception."""
    output = Output(len(prompt))
    begin = time.perf_counter()
    try:
        stream(args, prompt, output, begin)
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        output.error = f"{type(error).__name__}: {error}"
    return output


def stream(args, prompt, output, begin):
    """Ask, and take the time of every token."""
    address = urllib.parse.urlsplit(args.base_url)
    wish = {
        "model": args.served_model_name,
        "prompt": prompt,
        "max_tokens": args.custom_output_len,
        "temperature": args.temperature,
        "ignore_eos": args.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    try:
        connection.request("POST", args.endpoint, json.dumps(wish), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            output.error = f"{answer.status} {answer.reason}"
            return
        last, text = begin, ""
        for message in messages(answer):
            now = time.perf_counter()
            if message.startswith(":") or message == "data: [DONE]":  # a comment is no data
                continue
            chunk = json.loads(message.removeprefix("data: "))
            if choices := chunk.get("choices"):
                if last == begin:
                    output.ttft = now - begin
                else:
                    output.itl.append(now - last)
                last, output.latency = now, now - begin
                text += choices[0].get("text") or ""
            elif usage := chunk.get("usage"):
                output.output_len = usage.get("completion_tokens")
        if last == begin:
            output.error = "Never received a valid chunk to calculate TTFT."
            return
        output.output_len = output.output_len or len(text)  # without a usage the text is counted
        follow_schedule(output, answer.headers, prompt)
    finally:
        connection.close()


def messages(answer):
    """The messages of a stream of server-sent events, each as soon as it is whole."""
    held = b""
    while data := answer.read1(1 << 16):
        *whole, held = (held + data).split(b"\n\n")
        yield from (message.decode().strip() for message in whole if message.strip())


def follow_schedule(output, headers, prompt):
    """Put the engine's schedule in the place of the times that were seen."""
    about = 1 + (zlib.crc32(prompt.encode()) % 1001 - 500) / 100_000
    first, further = (about * float(headers[name]) / 1000 for name in ("X-Stub-Ttft-Ms", "X-Stub-Tpot-Ms"))
    output.ttft, output.itl = first, [further] * len(output.itl)
    output.latency = first + further * max(0, output.output_len - 1)  # however many chunks they came in


def summary(outputs, duration, percentiles):
    """The result in the real client's words."""
    done = [output for output in outputs if not output.error]
    counted = sum(output.output_len for output in done)
    result = {
        "duration": duration,
        "completed": len(done),
        "failed": len(outputs) - len(done),
        "total_input_tokens": sum(output.prompt_len for output in done),
        "total_output_tokens": counted,
        "request_throughput": len(done) / duration,
        "output_throughput": counted / duration,
        "total_token_throughput": (counted + sum(output.prompt_len for output in done)) / duration,
        "input_lens": [output.prompt_len for output in outputs],
        "output_lens": [0 if output.error else output.output_len for output in outputs],
        "ttfts": [output.ttft for output in outputs],
        "itls": [output.itl for output in outputs],
        "errors": [output.error for output in outputs],
    }
    values = {
        "ttft": [output.ttft for output in done],
        "tpot": [(one.latency - one.ttft) / (one.output_len - 1) for one in done if one.output_len > 1],
        "itl": [gap for output in done for gap in output.itl],
        "e2el": [output.latency for output in done],
    }
    for name, seconds in values.items():
        milliseconds = sorted(1000 * value for value in seconds) or [0.0]
        result[f"mean_{name}_ms"] = statistics.fmean(milliseconds)
        result[f"median_{name}_ms"] = statistics.median(milliseconds)
        for percent in percentiles:
            result[f"p{percent}_{name}_ms"] = percentile(milliseconds, float(percent))
    return result


def percentile(ordered, percent):
    """Linear between the two nearest values."""
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
