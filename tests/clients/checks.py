"""Runs the functions of a script whose names begin with "check_", and reports each failure."""
import asyncio
import inspect
import sys
import time
import traceback


def run(checks, *arguments):
    failed = 0
    for name, check in checks.items():
        if not name.startswith("check_"):
            continue
        begin = time.monotonic()
        try:
            result = check(*arguments)
            if inspect.iscoroutine(result):
                asyncio.run(result)
            outcome = "ok"
        except Exception:
            traceback.print_exc()
            outcome = "FAILED"
            failed += 1
        print(f"{name}: {outcome} ({time.monotonic() - begin:.2f} s)", flush=True)
    sys.exit(1 if failed else 0)


def equal(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")
