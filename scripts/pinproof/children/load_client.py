"""The resident load client: runs in the client arm's interpreter and serves legs on request.

`vllm bench serve` imports vLLM anew for every leg, 10 to 30 seconds that would be paid on the
lease. This program imports it once and then runs the very same command, one leg a request: the
arguments of a request are those of `vllm bench serve`, and the raw output is the file that it
saves itself.

Requests come on one file descriptor and replies go to another (the two arguments), JSON lines both.
Everything that vLLM prints goes to the log. The end of the requests is the end of this program, so
that it never outlives the series that started it.
"""

import asyncio
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
            asyncio.run(serve.main_async(parser.parse_args(request["argv"])))
            answer(replies, ok=True)
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer(replies, ok=False, error=f"{type(error).__name__}: {error}")
        sys.stdout.flush()


def answer(replies, **values) -> None:
    replies.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
