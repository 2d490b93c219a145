"""The resident load client: runs in the client arm's interpreter and serves legs on request.

`vllm bench serve` imports vLLM anew for every leg, 10 to 30 seconds that would be paid on the
lease. This program imports it once and then runs the very same command, one leg a request: the
arguments of a request are those of `vllm bench serve`, and the raw output is the file that it
saves itself. Two things differ from the command line, both in what a request waits for inside the
client (tests/bench/bench_client.py measures them): a session does not ask two helper threads for
proxies and for ~/.netrc before every request, neither of which concerns a server on the loopback
address, and the event loop is uvloop, which vLLM brings for its own server.

Requests come on one file descriptor and replies go to another (the two arguments), JSON lines both.
Everything that vLLM prints goes to the log. The end of the requests is the end of this program, so
that it never outlives the series that started it.
"""

import json
import os
import sys
import time
import traceback


def main() -> None:
    requests = os.fdopen(int(sys.argv[1]), "r")
    replies = os.fdopen(int(sys.argv[2]), "w", buffering=1)
    begun = time.monotonic()
    from vllm.benchmarks import serve

    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    if aiohttp := sys.modules.get("aiohttp"):  # what the client of every version so far is made with
        aiohttp.ClientSession = direct(aiohttp.ClientSession)
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser
    except ImportError:
        from argparse import ArgumentParser as Parser
    answer(replies, ready=True, import_s=time.monotonic() - begun)
    for line in requests:
        request = json.loads(line)
        os.environ["OPENAI_API_KEY"] = request["api_key"]
        try:
            parser = Parser()
            serve.add_cli_args(parser)
            run(serve.main_async(parser.parse_args(request["argv"])))
            answer(replies, ok=True)
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer(replies, ok=False, error=f"{type(error).__name__}: {error}")
        sys.stdout.flush()


def direct(session):
    """Sessions that ask neither for proxies nor for ~/.netrc."""

    def opened(*arguments, **options):
        return session(*arguments, **{**options, "trust_env": False})

    return opened


def answer(replies, **values) -> None:
    replies.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
