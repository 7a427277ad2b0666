"""The virtual environment of each client, because the clients need different versions of the same packages."""
import os
import pathlib
import subprocess
import sys

PACKAGES = pathlib.Path(__file__).with_name("packages.txt")
UNTIL = "# until "
INSTALL_SECONDS = 1800


class NotInstalled(Exception):
    """PyPI does not have the packages, or not for this Python."""


def read_packages():
    """Returns the packages of each client, and the time of which all other packages are."""
    clients, until = {}, ""
    for line in PACKAGES.read_text(encoding="utf-8").splitlines():
        if line.startswith(UNTIL):
            until = line.removeprefix(UNTIL)
        elif line and not line.startswith("#"):
            name, *packages = line.split()
            clients[name] = packages
    return clients, until


class Environments:
    def __init__(self, uv, folder):
        self.uv = uv
        self.folder = pathlib.Path(folder)
        self.packages, self.until = read_packages()

    def python(self, client):
        """The interpreter of the client's environment, which is made anew when the packages have changed."""
        folder = self.folder / client
        python = folder / "bin" / "python"
        wanted = f"{' '.join(self.packages[client])} until {self.until} for Python {sys.version}"
        version = folder / ".packages"
        if version.exists() and version.read_text(encoding="utf-8") == wanted:
            return python
        print(f"installing {' '.join(self.packages[client])} to {folder}", file=sys.stderr, flush=True)
        self._run("venv", "--clear", "--python", sys.executable, str(folder))
        self._run("pip", "install", "--python", str(python), "--exclude-newer", self.until, *self.packages[client])
        version.write_text(wanted, encoding="utf-8")
        return python

    def _run(self, *arguments):
        # The cache is on the same file system, so that environments share files by hard links.
        environment = {**os.environ, "UV_CACHE_DIR": str(self.folder / "cache"), "UV_NO_PROGRESS": "1"}
        done = subprocess.run([self.uv, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=INSTALL_SECONDS, check=False)
        if done.returncode != 0:
            raise NotInstalled(done.stdout.strip())
