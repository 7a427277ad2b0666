"""Runs the newest versions of the Python clients that people use, unchanged, against clusters of `./dev up`.

Usage: run.py --uv UV --model MODEL --folder FOLDER [client …]

Installs each client to an environment of its own, runs all flows that the client offers, and prints a table of them.
The exit status is 1 when a flow fails, or when a client is not installed or does not run."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from cluster import ROOT, Cluster
from environments import Environments, NotInstalled
from scripted_model import write_model
from table import LINE, Row, format_table

HERE = pathlib.Path(__file__).resolve().parent
TOOL_TEMPLATE = ROOT / "tests/data/text/templates/qwen25_style.jinja"
CLIENT_SECONDS = 3600


def reports_of(output):
    return [json.loads(line.removeprefix(LINE)) for line in output.splitlines() if line.startswith(LINE)]


def run_client(client, python, arguments, folder):
    """Runs the flows of a client and returns its rows of the table."""
    command = [str(python), str(HERE / f"{client}_client.py"), *arguments]
    log = folder / "logs" / f"{client}.log"
    # Without compiled code each process of a load generator compiles all of its packages, which takes minutes.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "pycache"), "PYTHONUNBUFFERED": "1",
                   "NO_COLOR": "1", "PYTHONPATH": str(HERE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # A proxy of the machine must not see what goes to the cluster.
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1,localhost"
    with open(log, "w", encoding="utf-8") as errors, tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                  timeout=CLIENT_SECONDS, check=False)
            end = f"ended with status {done.returncode}"
            complete = done.returncode in (0, 1)
        except subprocess.TimeoutExpired:
            end, complete = f"took more than {CLIENT_SECONDS} s", False
        output.seek(0)
        reports = reports_of(output.read())
    rows = {}
    for report in reports:
        rows.setdefault(report["api"], Row(client, report["api"])).add(report)
    if not complete or not rows:
        rows["end"] = Row(client, problem=f"{end}, see {log}")
    return list(rows.values())


def test_client(client, environments, arguments):
    begin = time.monotonic()
    try:
        python = environments.python(client)
    except (NotInstalled, subprocess.TimeoutExpired) as error:
        print(f"NOT INSTALLED: {client}: {error}", flush=True)
        return [Row(client, problem="NOT INSTALLED")]
    rows = run_client(client, python, arguments, environments.folder)
    for row in rows:
        for line in row.failures():
            print(line, flush=True)
    failed, slowest = sum(row.failed() for row in rows), max(row.slowest() for row in rows)
    print(f"{client}: {failed} of {len(rows)} rows failed ({time.monotonic() - begin:.0f} s, the slowest flow "
          f"{slowest:.0f} s)", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uv", required=True, help="the program uv, which installs the packages")
    parser.add_argument("--model", required=True, help="a small real model")
    parser.add_argument("--folder", required=True, help="gets the environments, the scripted model and the logs")
    parser.add_argument("clients", nargs="*", help="all clients without an argument")
    flags = parser.parse_args()
    environments = Environments(flags.uv, flags.folder)
    clients = flags.clients or list(environments.packages)
    for client in clients:
        if client not in environments.packages:
            parser.error(f"\"{client}\" is not a client; the clients are: {' '.join(environments.packages)}")
    (environments.folder / "logs").mkdir(parents=True, exist_ok=True)
    scripted_model = environments.folder / "scripted"
    write_model(scripted_model)
    begin, rows = time.monotonic(), []
    with Cluster(flags.model, f"chat_template={TOOL_TEMPLATE}") as real, \
            Cluster(scripted_model, "tool_call_format=hermes") as scripted:
        arguments = ["--real", real.url, "--scripted", scripted.url, "--scripted-model", str(scripted_model)]
        for client in clients:
            rows += test_client(client, environments, arguments)
    print("\n" + format_table(rows, environments.packages), flush=True)
    failed = sum(row.failed() for row in rows)
    print(f"\n{len(rows) - failed} rows passed, {failed} failed ({(time.monotonic() - begin) / 60:.0f} minutes)")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
