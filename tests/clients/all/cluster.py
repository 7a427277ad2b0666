"""A local cluster of `./dev up`."""
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
START_SECONDS = 300
STOP_SECONDS = 60


class Cluster:
    """Starts a router and two workers with free ports. A context manager: the cluster ends with it."""

    def __init__(self, model, *settings):
        self.command = ["./dev", "up", "--model", str(model), "--prefill", "1", "--decode", "1", "--prompt", "",
                        "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        for setting in settings:
            self.command += ["--router-set", setting]
        self.url = ""

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        text=True, start_new_session=True)
        lines = queue.Queue()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()
        self.url = self._address(lines)
        return self

    def _read(self, lines):
        for line in self.process.stdout:
            lines.put(line)
        lines.put(None)

    def _address(self, lines):
        said = ""
        while True:
            try:
                line = lines.get(timeout=START_SECONDS)
            except queue.Empty:
                line = None
            if line is None:
                self._kill()
                raise RuntimeError(f"the cluster did not start: {' '.join(self.command)}\n{said}")
            said += line
            found = re.search(r"curl (http://\S+)/metrics", line)
            if found:
                return found.group(1)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
