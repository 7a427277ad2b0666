"""aiperf, which measures servers: each flow is a run of a few requests, none of which may fail."""
import pathlib
import tempfile

from flows import equal, flow, main, not_offered
from load_generator import read_json, run_command

REQUESTS = 4


def measure(servers, endpoint, *options):
    with tempfile.TemporaryDirectory() as folder:
        run_command(folder, "aiperf", "profile", "--model", servers.real.model, "--url", servers.real.url,
                    "--endpoint-type", endpoint, "--tokenizer", servers.scripted_model, "--concurrency", "2",
                    "--request-count", str(REQUESTS), "--synthetic-input-tokens-mean", "48",
                    "--output-tokens-mean", "8", "--ui", "none", "--no-gpu-telemetry", "--workers-max", "1",
                    "--output-artifact-dir", "artifacts", *options)
        [path] = pathlib.Path(folder, "artifacts").rglob("profile_export_aiperf.json")
        report = read_json(path)
    equal(report["request_count"]["avg"], REQUESTS)
    equal(report.get("error_request_count", {"avg": 0})["avg"], 0)
    assert report["output_sequence_length"]["avg"] > 0, report["output_sequence_length"]


def declare(api, endpoint):
    @flow(api, "plain")
    def plain(servers):
        measure(servers, endpoint)

    @flow(api, "stream")
    def stream(servers):
        measure(servers, endpoint, "--streaming")

    not_offered(api, "aiperf does not measure this", "auto", "required", "named", "structured", "logprobs")


for one_api in ("chat", "responses", "messages", "completions"):
    declare(one_api, one_api)

if __name__ == "__main__":
    main()
