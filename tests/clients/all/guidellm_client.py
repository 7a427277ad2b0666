"""guidellm, which measures servers: each flow is a benchmark of a few requests, none of which may fail."""
import json
import pathlib
import tempfile

from flows import AFTER_TOOL, ARGUMENTS, ASK_TOOL, equal, flow, main, not_offered
from load_generator import OFFLINE, read_json, run_command
from openai_flows import CHAT_TOOLS

REQUESTS = 4
# Each process of guidellm takes seconds to start: one is enough to send both streams.
ENVIRONMENT = {**OFFLINE, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
SYNTHETIC = {"kind": "synthetic_text", "prompt_tokens": 48, "output_tokens": 8}


def measure(endpoint, tokenizer, path, stream, data, rows=()):
    """Runs a benchmark with `data`, which may read `rows` from rows.jsonl, and returns the successful requests."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = {"spec": {
            "backend": {"kind": "openai_http", "target": endpoint.url, "model": endpoint.model,
                        "request_format": path, "stream": stream},
            "profile": {"kind": "concurrent", "streams": [2]},
            "constraints": [{"kind": "max_requests", "count": REQUESTS}],
            "tokenizer": {"kind": "huggingface_auto", "model": tokenizer},
            "data_loader": {"kind": "pytorch", "prefetch_factor": REQUESTS},
            "data": [data],
            "outputs": [{"kind": "json", "path": "report.json"}]}}
        pathlib.Path(folder, "scenario.json").write_text(json.dumps(scenario), encoding="utf-8")
        pathlib.Path(folder, "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        run_command(folder, "guidellm", "run", "--config", "scenario.json", "--disable-console-interactive",
                    environment={**ENVIRONMENT, "HF_HOME": folder})
        requests = read_json(pathlib.Path(folder, "report.json"))["benchmarks"][0]["requests"]
    equal(requests["errored"], [])
    equal(len(requests["successful"]), REQUESTS)
    return requests["successful"]


def measure_tools(servers, path, choice):
    """Each conversation has two requests: one answered with a call, and one with the result of the tool."""
    row = {"prompt": ASK_TOOL, "tools": json.dumps(CHAT_TOOLS), "tool_choice": choice, "tool_response": "rain"}
    requests = measure(servers.scripted, servers.scripted_model, path, True,
                       {"kind": "json_file", "path": "rows.jsonl"}, [row] * REQUESTS)
    calls = [json.loads(one["function"]["arguments"]) for request in requests for one in request["tool_calls"] or []]
    equal(calls, [ARGUMENTS] * (REQUESTS // 2))
    equal([request["output"] for request in requests if not request["tool_calls"]], [AFTER_TOOL] * (REQUESTS // 2))


def declare(api, path):
    @flow(api, "plain")
    def plain(servers):
        requests = measure(servers.real, servers.scripted_model, path, False, SYNTHETIC)
        assert all(request["output"] for request in requests)

    @flow(api, "stream")
    def stream(servers):
        requests = measure(servers.real, servers.scripted_model, path, True, SYNTHETIC)
        assert all(request["output"] for request in requests)

    not_offered(api, "guidellm does not measure this", "named", "structured", "logprobs")
    if api == "completions":
        return

    @flow(api, "auto")
    def auto(servers):
        measure_tools(servers, path, "auto")

    @flow(api, "required")
    def required(servers):
        measure_tools(servers, path, "required")


PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "completions": "/v1/completions"}
for one_api, one_path in PATHS.items():
    declare(one_api, one_path)
not_offered("completions", "completions have no tools", "auto", "required")

if __name__ == "__main__":
    main()
