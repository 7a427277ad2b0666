"""guidellm, which measures servers: each flow is a benchmark of a few requests, none of which may fail."""
import json
import pathlib
import tempfile

from flows import equal, flow, main, not_offered
from load_generator import OFFLINE, read_json, run_command

REQUESTS = 4
# Each process of guidellm takes seconds to start: one is enough to send both streams.
ENVIRONMENT = {**OFFLINE, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
TOOLS = [{"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["CET", "UTC"]}}, "required": ["zone"]}}}]


def measure(servers, path, stream, **data):
    """Runs a benchmark and returns the successful requests."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = {"spec": {
            "backend": {"kind": "openai_http", "target": servers.real.url, "model": servers.real.model,
                        "request_format": path, "stream": stream},
            "profile": {"kind": "concurrent", "streams": [2]},
            "constraints": [{"kind": "max_requests", "count": REQUESTS}],
            "tokenizer": {"kind": "huggingface_auto", "model": servers.scripted_model},
            "data_loader": {"kind": "pytorch", "prefetch_factor": REQUESTS},
            "data": [{"kind": "synthetic_text", "prompt_tokens": 48, "output_tokens": 8, **data}],
            "outputs": [{"kind": "json", "path": "report.json"}]}}
        pathlib.Path(folder, "scenario.json").write_text(json.dumps(scenario), encoding="utf-8")
        run_command(folder, "guidellm", "run", "--config", "scenario.json", "--disable-console-interactive",
                    environment=ENVIRONMENT)
        requests = read_json(pathlib.Path(folder, "report.json"))["benchmarks"][0]["requests"]
    equal(requests["errored"], [])
    equal(len(requests["successful"]), REQUESTS)
    return requests["successful"]


def declare(api, path):
    @flow(api, "plain")
    def plain(servers):
        assert all(request["output"] for request in measure(servers, path, False))

    @flow(api, "stream")
    def stream(servers):
        assert all(request["output"] for request in measure(servers, path, True))

    if api == "completions":
        return

    @flow(api, "required")
    def required(servers):
        measure(servers, path, True, turns=1, tool_call_turns=[0], tools=TOOLS)


PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "completions": "/v1/completions"}
for one_api, one_path in PATHS.items():
    declare(one_api, one_path)
    not_offered(one_api, "guidellm does not measure this", "auto", "named", "structured", "logprobs")
not_offered("completions", "completions have no tools", "required")

if __name__ == "__main__":
    main()
